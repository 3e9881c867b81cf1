// SPDX-License-Identifier: Apache-2.0
#include "agent/timeline/thread_activity.h"

#include <algorithm>

namespace pollgap {
namespace {

// Lays stints one after the other; each takes what the ones before left of its interval, so that
// overlapping records (clocks of two CPUs) cannot break the order.
class StintBuilder {
 public:
  StintBuilder(uint64_t start_ns, uint64_t end_ns) : cursor_ns_(start_ns), end_ns_(end_ns) {}

  void add_until(uint64_t until_ns, Stint stint) {
    const uint64_t end_ns = std::min(until_ns, end_ns_);
    if (end_ns <= cursor_ns_) {
      return;
    }
    stint.start_ns = cursor_ns_;
    stint.end_ns = end_ns;
    stints_.push_back(stint);
    cursor_ns_ = end_ns;
  }

  std::vector<Stint> take() { return std::move(stints_); }

 private:
  uint64_t cursor_ns_;
  uint64_t end_ns_;
  std::vector<Stint> stints_;
};

bool was_runnable_all_along(const OffCpu& off) {
  return off.state == 0 || (off.flags & EV_OFF_PREEMPTED) != 0;
}

// When the thread became able to run: at once, when it was woken, or (unseen) when it ran again.
uint64_t runnable_from_ns(const OffCpu& off) {
  if (was_runnable_all_along(off)) {
    return off.header.start_ns;
  }
  if (off.wakeup_ns == 0) {
    return off.header.end_ns;
  }
  return std::clamp<uint64_t>(off.wakeup_ns, off.header.start_ns, off.header.end_ns);
}

void add_runnable(const ThreadTimeline& thread, const OffCpu& off, uint64_t from_ns,
                  StintBuilder& stints) {
  // A wakeup may place the thread elsewhere: that move lies before from_ns.
  uint32_t cpu = off.out_cpu;
  bool move_seen = false;
  thread.migrations.for_each_overlapping(
      off.header.start_ns, off.header.end_ns, [&](const ev_migrate& move) {
        if (move.header.start_ns > from_ns) {
          stints.add_until(move.header.start_ns, {.activity = Activity::runnable,
                                                  .cpu = cpu,
                                                  .off = &off,
                                                  .moved_away = move.to_cpu != cpu});
        }
        cpu = move.to_cpu;
        move_seen = true;
      });
  if (!move_seen && !was_runnable_all_along(off)) {
    cpu = off.header.cpu;
  }
  stints.add_until(off.header.end_ns, {.activity = Activity::runnable,
                                       .cpu = cpu,
                                       .off = &off,
                                       .moved_away = cpu != off.header.cpu});
}

}  // namespace

std::vector<Stint> thread_activity(const ThreadTimeline* thread, uint64_t start_ns, uint64_t end_ns,
                                   uint32_t start_cpu) {
  StintBuilder stints(start_ns, end_ns);
  uint32_t cpu = start_cpu;
  if (thread != nullptr) {
    thread->off_cpu.for_each_overlapping(start_ns, end_ns, [&](const OffCpu& off) {
      stints.add_until(off.header.start_ns, {.activity = Activity::on_cpu, .cpu = off.out_cpu});
      const uint64_t from_ns = runnable_from_ns(off);
      stints.add_until(from_ns,
                       {.activity = Activity::not_runnable, .cpu = off.out_cpu, .off = &off});
      add_runnable(*thread, off, from_ns, stints);
      cpu = off.header.cpu;
    });
  }
  stints.add_until(end_ns, {.activity = Activity::on_cpu, .cpu = cpu});
  return stints.take();
}

}  // namespace pollgap
