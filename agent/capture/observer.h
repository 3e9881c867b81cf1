// SPDX-License-Identifier: Apache-2.0
// Looks at the target's CQs some thousand times a second, from a core that no target thread polls
// on, and tells their silences. The target is not touched: its memory is read, no more.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "agent/capture/kernel_programs.h"
#include "agent/observe/adapter_clock.h"
#include "agent/observe/cq_watch.h"
#include "probes/process.h"
#include "probes/queue_reader.h"
#include "probes/readable_queues.h"

namespace pollgap {

// Which thread polls a CQ, by which poll function.
struct CqOwner {
  uint32_t tid = 0;
  uint32_t site = 0;
};

struct ObservedCq {
  ReadableCq queues;
  std::vector<CqOwner> owners;  // one without is looked at, but nothing is told of it
};

struct OwnedSilence {
  CqOwner owner;
  Silence silence;
};

// What was seen of a CQ.
struct ObservedTotals {
  uint64_t first_ns = 0;
  uint64_t last_ns = 0;
  uint64_t consumed = 0;
  uint64_t posted = 0;
  uint64_t idle_ns = 0;
};

// Looks were half the threshold apart or more, again and again: what the CQs did meanwhile is known
// only in so far as the next look tells.
struct BlindTime {
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
};

// How regularly it looked.
struct LookFacts {
  uint64_t looks = 0;
  uint64_t late = 0;  // more than two periods after the one before
  uint64_t longest_apart_ns = 0;
  uint64_t blind_ns = 0;         // between two looks that were so far apart, in all
  std::vector<BlindTime> blind;  // the first of these times
  std::set<uint64_t> uncounted;  // CQs of which more may have been consumed than was counted
};

class Observer {
 public:
  // `programs` and `process` must outlive it.
  Observer(KernelPrograms& programs, const Process& process, uint64_t period_ns,
           uint64_t threshold_ns);
  ~Observer() { stop(); }
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;

  // From now on these are looked at. What is known of a CQ that was among them before, with the
  // same ring and send queues, goes on.
  void observe(std::vector<ObservedCq> cqs);
  // No look any more, until observe() is called. What it has found remains to be taken.
  void stop();
  // Stops, and forgets what it knows of CQs.
  void forget();
  // So far apart from the next look on.
  void set_period(uint64_t ns) { period_ns_ = ns; }

  // The silences that have ended since the last call. Those of a thread that end before what
  // served_until(), asked before this, says of it are among them.
  std::vector<OwnedSilence> take();
  // By thread: until then no completion has lain ready that it had to consume.
  std::map<uint32_t, uint64_t> served_until() const;
  // The silences that go on; only while it is stopped.
  std::vector<OwnedSilence> open_silences() const;

  // CQs that have not been as they were verified since the last call: resized, or destroyed.
  std::set<uint64_t> take_changed();
  // CQs of which something was consumed, by a thread that is not known.
  std::set<uint64_t> take_ownerless();

  const std::vector<ObservedCq>& cqs() const { return cqs_; }
  std::map<uint64_t, ObservedTotals> totals() const;  // only while it is stopped
  LookFacts facts() const;
  uint64_t cpu_ns() const { return cpu_ns_; }  // that looking has taken

 private:
  struct Watched {
    CqWatch watch;
    uint64_t first_ns = 0;
    LookTime last;
    bool changed = false;
  };
  // Until when a thread was served; read by others while it is written.
  struct Served {
    size_t slot = SIZE_MAX;  // in the thread clocks
    std::vector<size_t> cqs;
    std::atomic<uint64_t> until_ns = 0;
  };

  void start();
  void run();
  void look();
  void note_lateness(LookTime when);
  void look_at(size_t number, LookTime when);
  void tell_served();
  void hand_over();
  void hand_over_facts();

  KernelPrograms& programs_;
  const Process& process_;
  std::atomic<uint64_t> period_ns_;
  const uint64_t threshold_ns_;

  // The observing thread's while it runs.
  std::vector<ObservedCq> cqs_;
  std::vector<Watched> watched_;  // by the same numbers
  std::unique_ptr<QueueReader> reader_;
  std::map<uint32_t, Served> served_;
  std::map<uint64_t, AdapterClock> clocks_;  // by the context whose adapter's it is
  std::vector<OwnedSilence> found_;
  std::set<uint64_t> changed_, ownerless_;
  std::map<uint64_t, ObservedTotals> past_totals_;  // of CQs that are looked at no more
  uint64_t last_look_ns_ = 0;
  LookFacts facts_;

  mutable std::mutex mutex_;  // of the next
  LookFacts facts_handed_over_;
  std::vector<OwnedSilence> handed_over_;
  std::set<uint64_t> changed_handed_over_, ownerless_handed_over_;
  std::atomic<uint64_t> cpu_ns_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace pollgap
