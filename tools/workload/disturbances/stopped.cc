// SPDX-License-Identifier: Apache-2.0
// The process is stopped by a signal, and continued. The signals come from another process: one
// that sends SIGSTOP to its own process does not live to continue it.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "tools/workload/disturbances/catalog.h"
#include "tools/workload/helper_process.h"
#include "tools/workload/monotonic.h"

namespace pollgap::workload {
namespace {

constexpr const char* stopper_comm = "pg-stopper";
constexpr int stopper_priority = 20;
constexpr useconds_t look_every_us = 20;

// The state letter of a thread of another process: "R", "T", ... (proc(5), stat). 0: it is gone.
char state_of(int stat_fd) {
  char text[64] = {};
  if (pread(stat_fd, text, sizeof text - 1, 0) <= 0) return 0;
  const char* const name_end = std::strrchr(text, ')');
  return name_end == nullptr ? '\0' : name_end[2];
}

bool has_stopped(int stat_fd) {
  const char state = state_of(stat_fd);
  return state == 'T' || state == 0;
}

// The thread stops only when it, or a thread that was asked before it, has got round to the signal:
// so it is watched. The length counts from when it is seen to have stopped; the occurrence begins
// when it was last seen not to have.
Occurrence stop_for(pid_t pid, pid_t tid, uint64_t length_ns) {
  const std::string path = fmt::format("/proc/{}/task/{}/stat", pid, tid);
  const int stat_fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  uint64_t start = monotonic_ns();
  kill(pid, SIGSTOP);
  // Not a busy wait: who has to get round to it may need this CPU.
  for (uint64_t look = start; !has_stopped(stat_fd); look = monotonic_ns()) {
    start = look;
    usleep(look_every_us);
  }
  const uint64_t seen = monotonic_ns();
  const timespec until = to_timespec(seen + length_ns);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
  }
  const uint64_t stopped_ns = monotonic_ns() - seen;
  kill(pid, SIGCONT);
  const uint64_t end = monotonic_ns();
  close(stat_fd);
  return {.start_ns = start, .end_ns = end, .detail = stopped_ns};
}

class Stop final : public Disturbance {
 public:
  using Disturbance::Disturbance;
  ~Stop() override { end(); }

  Status spawn(const Options& options) override {
    const pid_t pid = getpid();
    const uint64_t length_ns = spec().length_ns;
    Status error =
        stopper_.spawn({.comm = stopper_comm,
                        .cpu = options.other_cpu,
                        .policy = Policy::fifo,
                        .priority = stopper_priority,
                        .finish_occurrence = true},
                       [this, pid, length_ns] { return stop_for(pid, *victim_tid_, length_ns); });
    if (error) return refusal(error->message, error->code);
    return std::nullopt;
  }
  Status prepare(Environment& environment) override {
    victim_poller_ = &victim(environment);
    return std::nullopt;
  }
  Status begin(uint64_t first_ns) override {
    *victim_tid_ = victim_poller_->tid();
    stopper_.begin(schedule(first_ns));
    return std::nullopt;
  }
  // Waits for a stop that is under way: nobody else would continue this process.
  void end() override { stopper_.end(); }
  void report(const Environment& environment, TruthLog& log) override {
    const pid_t pid = stopper_.pid();
    const nlohmann::ordered_json culprit{
        {"kind", "signal"},
        {"signal", "SIGSTOP"},
        {"task", {{"comm", stopper_comm}, {"pid", pid}, {"tid", pid}}}};
    for (const Occurrence& occurrence : stopper_.occurrences()) {
      log_occurrence(environment, log, "stopped", occurrence, culprit,
                     {{"stopped_ns", occurrence.detail}});
    }
  }

 private:
  const Poller* victim_poller_ = nullptr;
  SharedMemory<pid_t> victim_tid_;
  HelperProcess stopper_;
};

}  // namespace

DisturbancePtr make_stop(const DisturbanceSpec& spec, unsigned index) {
  return std::make_unique<Stop>(spec, index);
}

}  // namespace pollgap::workload
