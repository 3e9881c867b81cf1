// SPDX-License-Identifier: Apache-2.0
// Gaps of threads whose polls are not timed: from silences of their CQs, and from what the kernel
// says of the threads meanwhile. Pure: its input is the evidence stream and the silences.
//
// A gap's edges lie in windows between two looks at the CQ. Where the thread ran no user code over
// such a window (it was off the CPU, or interrupted), the edge is where that began or ended,
// exactly; else it is the middle of the window. A window that is wider than looks are apart,
// because the agent itself came late, gives an edge that surely belongs to the gap: nothing is made
// longer by it. And of a gap half the threshold must surely have been: looks that are as far apart
// as that see of each completion only that it came and went between two of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "agent/observe/silence.h"
#include "bpf/evidence.h"

namespace pollgap {

struct ObservedGapOptions {
  uint32_t pid = 0;
  uint64_t threshold_ns = 0;
  uint64_t period_ns = 0;  // from one look to the next
  // Stretches without user code that are no further apart are one: it takes the kernel as long to
  // leave one and enter the next.
  uint64_t kernel_entry_ns = 0;
  bool nothing_steals = false;  // no hypervisor: the steal clock has nothing to tell
};

class ObservedGaps {
 public:
  // Takes EV_GAP records, and before one an EV_WC_ERROR if an error completion ended it, and an
  // EV_STAMP if it is known when the adapter made that completion.
  using Sink = std::function<void(std::span<const std::byte>)>;

  explicit ObservedGaps(const ObservedGapOptions& options) : options_(options) {}

  // Its own time begins: stalls that have ended by then are not told. It ends: nor are those that
  // begin later. Without either it is all time.
  void begin(uint64_t ns);
  void end(uint64_t ns) { until_ns_ = ns; }
  // Looks are so far apart from now on.
  void set_period(uint64_t ns) { options_.period_ns = ns; }

  // A thread that polls CQs runs on that CPU. Its kernel evidence counts from then on.
  void add_thread(uint32_t tid, uint32_t cpu);
  // A record of the evidence stream, in its order.
  void accept(std::span<const std::byte> record);
  // A silence of a CQ that the thread polls, by the poll function `site`.
  void add(uint32_t tid, uint32_t site, const Silence& silence);

  // Tells the gaps of the silences added, whose time the stream has told of whole, and what else of
  // it was a stall. served_until(tid): until then no completion of the thread's CQs lies ready
  // unconsumed; a stall after it may yet be part of such a gap. `last`: nothing comes after this.
  void tell(const std::function<uint64_t(uint32_t tid)>& served_until, const Sink& sink,
            bool last = false);

 private:
  struct Stretch {
    uint64_t start_ns = 0;
    uint64_t end_ns = 0;

    uint64_t length_ns() const { return end_ns - start_ns; }
  };
  struct Pending {
    uint32_t site = 0;
    Silence silence;
  };
  struct Cpu {
    uint64_t from_ns = 0;
    uint32_t cpu = 0;
  };
  struct Thread {
    std::vector<Stretch> away;    // in which it ran no user code; sorted, apart
    std::vector<Stretch> events;  // in which it waited for a completion event; sorted
    std::vector<Stretch> gaps;    // unpolled_completion, told
    std::vector<Stretch> stalls;  // told
    std::vector<Cpu> cpus;        // where it ran from when; never empty
    std::vector<Pending> pending;
    uint64_t stalls_told_ns = 0;  // those that ended until then
    uint64_t exited_ns = UINT64_MAX;
  };
  struct Edge {
    uint64_t at_ns = 0;
    uint64_t uncertainty_ns = 0;
    uint64_t surely_ns = 0;  // surely in the gap

    static Edge exact(uint64_t ns) { return {ns, 0, ns}; }
  };
  struct Bounds {
    Edge start, end;
    uint64_t duration_ns() const { return end.at_ns > start.at_ns ? end.at_ns - start.at_ns : 0; }
    uint64_t surely_ns() const {
      return end.surely_ns > start.surely_ns ? end.surely_ns - start.surely_ns : 0;
    }
  };

  void take_off_cpu(const ev_off_cpu& off);
  void take_stretch(uint32_t tid, const ev_header& header);
  void take_interrupt(const ev_header& header);
  void add_away(Thread& thread, uint64_t start_ns, uint64_t end_ns) const;
  static const Stretch* away_at(const Thread& thread, uint64_t ns);
  static uint32_t cpu_at(const Thread& thread, uint64_t ns);
  static void forget(Thread& thread, uint64_t served_ns);

  bool is_ordinary(uint64_t width_ns) const;
  bool is_gap(const Bounds& bounds) const;
  Edge start_in(const Window& window) const;
  Edge end_in(const Window& window) const;
  Bounds unpolled(const Thread& thread, const Silence& silence) const;
  // `taken`: what is a gap of another kind already.
  std::vector<Bounds> late(const Thread& thread, const Silence& silence, const Bounds& taken) const;
  void find_gaps(uint32_t tid, Thread& thread, const Pending& pending);
  void find_stalls(uint32_t tid, Thread& thread, uint64_t decided_ns);
  // `of`: the silence that the gap is of; nullptr: a stall.
  void found(uint32_t tid, ev_gap_kind kind, const Bounds& bounds, const Pending* of);

  ObservedGapOptions options_;
  uint64_t from_ns_ = 0;
  uint64_t until_ns_ = UINT64_MAX;
  std::map<uint32_t, Thread> threads_;
  struct Found {
    ev_gap gap{};
    std::optional<CompletionError> error = std::nullopt;
    std::optional<ev_stamp> stamp = std::nullopt;
  };
  std::vector<Found> found_;  // to be told
};

}  // namespace pollgap
