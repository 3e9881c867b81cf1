// SPDX-License-Identifier: Apache-2.0
// A polling thread: posts, polls, stamps every poll, and now and then does what a disturbance wants
// done in the loop.
#pragma once

#include <sys/types.h>
#include <time.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tools/workload/gap_detector.h"
#include "tools/workload/histogram.h"
#include "tools/workload/options.h"
#include "tools/workload/tsc_clock.h"
#include "tools/workload/verbs_device.h"

namespace pollgap::workload {

class Poller;

// Something to be done by the polling thread itself, between two polls.
class LoopAction {
 public:
  virtual ~LoopAction() = default;
  // Runs on the polling thread once its time has come, and must set the next one.
  virtual void run(Poller& poller) = 0;

  // Acquire and release: what was set up before the time was set is seen by run().
  uint64_t due_ticks() const { return due_ticks_.load(std::memory_order_acquire); }
  void set_due(uint64_t ticks) { due_ticks_.store(ticks, std::memory_order_release); }

 private:
  std::atomic<uint64_t> due_ticks_{UINT64_MAX};
};

// Told when a pause of posting (Poller::pause_posting) is over.
class PauseListener {
 public:
  virtual ~PauseListener() = default;
  virtual void paused(uint64_t start_ticks, uint64_t end_ticks) = 0;
};

class Poller {
 public:
  // A poll that returned completions of storm requests.
  struct StormPoll {
    uint64_t entry_ticks;
    uint64_t exit_ticks;
    uint64_t completions;
  };

  // on_failure: called once, from the polling thread, when it cannot go on.
  Poller(const Options& options, const TscClock& clock, int cpu, unsigned index,
         std::unique_ptr<Endpoint> endpoint, int wc_entries, std::function<void()> on_failure);
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // Before start() only. The action must outlive the thread.
  void add_action(LoopAction* action) { actions_.push_back(action); }

  // Returns when the thread polls, or an Error if it could not be set up (policy, CPU).
  Status start();
  // Ends the thread, and the gap detection with it.
  void stop();

  // For actions, on the polling thread: from when no signaled send is outstanding any more, nothing
  // is posted for that long.
  void pause_posting(uint64_t length_ticks, PauseListener* listener);

  // From any thread: whether sends may be posted, and whether none that is signaled is outstanding
  // since they may not.
  void allow_posting(bool allowed) {
    drained_ = false;
    posting_allowed_ = allowed;
  }
  bool drained() const { return drained_; }

  pid_t tid() const { return tid_; }
  // The thread's CPU-time clock; valid while it runs.
  clockid_t cpu_clock();
  int cpu() const { return cpu_; }
  const ibv_cq* cq() const { return endpoint_->cq(); }
  Endpoint& endpoint() { return *endpoint_; }
  const GapDetector& detector() const { return detector_; }
  const Histogram& poll_ns() const { return poll_ns_; }
  const Histogram& interval_ns() const { return interval_ns_; }
  // From before a signaled send is posted until the poll that has its completion has returned.
  const Histogram& completion_ns() const { return completion_ns_; }
  uint64_t polls() const { return polls_.load(std::memory_order_relaxed); }  // from any thread
  uint64_t completions() const { return completions_; }
  // Of storm requests, so far. Thread-safe.
  uint64_t storm_completions() const { return storm_completions_.load(std::memory_order_relaxed); }
  const std::vector<StormPoll>& storm_polls() const { return storm_polls_; }
  uint64_t posted() const { return posted_; }
  uint64_t last_poll_ticks() const { return last_exit_; }
  const std::string& failure() const { return failure_; }  // empty: none

 private:
  void thread_main(std::atomic<int>& setup);
  Status set_up_thread();
  template <typename Style>
  void loop(Style style);
  void run_due_actions(uint64_t now);
  void post_or_pause();
  void fill();
  void pause_step(uint64_t now);
  void think(uint64_t exit) const;
  uint32_t account(uint64_t wr_id, ibv_wc_status status, uint64_t exit, uint64_t& storm);
  void count_polls(uint64_t entry, uint64_t exit, uint64_t count);
  uint64_t to_ns(uint64_t ticks) const {
    return static_cast<uint64_t>(static_cast<double>(ticks) * ns_per_tick_);
  }
  void count_storm(uint64_t entry, uint64_t exit, uint64_t completions);
  void fail(const std::string& what);

  const Options& options_;
  const int cpu_;
  const unsigned index_;
  std::unique_ptr<Endpoint> endpoint_;
  std::function<void()> on_failure_;
  std::vector<LoopAction*> actions_;
  std::vector<ibv_wc> wc_;
  GapDetector detector_;
  const std::atomic<uint64_t>* ready_since_ns_;  // soft adapter, else null
  Histogram poll_ns_;
  Histogram interval_ns_;  // entry to entry
  Histogram completion_ns_;
  std::vector<uint64_t> posted_ticks_;  // of signaled sends, by number modulo the depth
  double ns_per_tick_;
  uint64_t think_ticks_;
  uint64_t think_cycle_ticks_;      // 0: at all times
  std::atomic<uint64_t> polls_{0};  // written by the polling thread alone
  uint64_t completions_ = 0;
  std::atomic<uint64_t> storm_completions_{0};  // written by the thread alone
  std::vector<StormPoll> storm_polls_;
  uint64_t posted_ = 0;   // sends
  uint64_t retired_ = 0;  // sends known to have completed
  uint64_t last_entry_ = 0;
  uint64_t last_exit_ = 0;
  PauseListener* pause_ = nullptr;
  uint64_t pause_length_ = 0;
  uint64_t pause_start_ = 0;  // 0: sends are still outstanding
  std::atomic<bool> posting_allowed_{true};
  std::atomic<bool> drained_{false};
  std::string failure_;
  Status setup_error_;
  pid_t tid_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<bool> done_{false};
  std::thread thread_;
};

}  // namespace pollgap::workload
