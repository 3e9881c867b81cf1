// SPDX-License-Identifier: Apache-2.0
#include "tools/workload/poller.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "tools/soft-hca/soft_hca.h"
#include "tools/workload/cycle_counter.h"
#include "tools/workload/thread_setup.h"

namespace pollgap::workload {
namespace {

constexpr size_t gap_capacity = 1U << 16;
constexpr size_t storm_capacity = 1U << 12;

// ---- the ways to poll: each call of poll() is one poll, stamped around the provider's ----

class PlainStyle {
 public:
  PlainStyle(Endpoint& endpoint, std::vector<ibv_wc>& wc) : cq_(endpoint.cq()), wc_(wc) {}

  int poll(uint64_t& entry, uint64_t& exit) {
    entry = read_cycles();
    const int count = ibv_poll_cq(cq_, static_cast<int>(wc_.size()), wc_.data());
    exit = read_cycles();
    return count;
  }
  // After an empty poll. True if it waited for an event.
  bool wait() { return false; }
  uint64_t polls() const { return 1; }  // of the last call of poll()

 protected:
  ibv_cq* cq_;
  std::vector<ibv_wc>& wc_;
};

// Many polls between two stamps, which take longer than an empty poll.
class BareStyle : public PlainStyle {
 public:
  using PlainStyle::PlainStyle;

  int poll(uint64_t& entry, uint64_t& exit) {
    int count = 0;
    entry = read_cycles();
    for (polls_ = 0; polls_ < 64 && count == 0; ++polls_)
      count = ibv_poll_cq(cq_, static_cast<int>(wc_.size()), wc_.data());
    exit = read_cycles();
    return count;
  }
  uint64_t polls() const { return polls_; }

 private:
  uint64_t polls_ = 0;
};

// The poll is start_poll: what the batch's other completions take is the application's time.
class ExtendedStyle {
 public:
  ExtendedStyle(Endpoint& endpoint, std::vector<ibv_wc>& wc) : cq_(endpoint.cq_ex()), wc_(wc) {}

  int poll(uint64_t& entry, uint64_t& exit) {
    ibv_poll_cq_attr attributes{};
    entry = read_cycles();
    const int error = ibv_start_poll(cq_, &attributes);
    exit = read_cycles();
    if (error == ENOENT) return 0;
    if (error != 0) return -error;
    size_t count = 0;
    do {
      wc_[count].wr_id = cq_->wr_id;
      wc_[count].status = cq_->status;
      ++count;
    } while (count < wc_.size() && ibv_next_poll(cq_) == 0);
    ibv_end_poll(cq_);
    return static_cast<int>(count);
  }
  bool wait() { return false; }
  uint64_t polls() const { return 1; }

 private:
  ibv_cq_ex* cq_;
  std::vector<ibv_wc>& wc_;
};

// Arms the CQ when a poll finds nothing, polls once more, and only then waits.
class EventStyle : public PlainStyle {
 public:
  EventStyle(Endpoint& endpoint, std::vector<ibv_wc>& wc)
      : PlainStyle(endpoint, wc), endpoint_(endpoint) {}

  bool wait() {
    if (!armed_) {
      armed_ = ibv_req_notify_cq(endpoint_.cq(), 0) == 0;
      return false;
    }
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    // Fails when stop() interrupts it: the loop then sees that it is to end.
    if (ibv_get_cq_event(endpoint_.channel(), &cq, &context) == 0) {
      ibv_ack_cq_events(cq, 1);
      armed_ = false;
    }
    return true;
  }

 private:
  Endpoint& endpoint_;
  bool armed_ = false;
};

void interrupt_only(int) {}

}  // namespace

Poller::Poller(const Options& options, const TscClock& clock, int cpu, unsigned index,
               std::unique_ptr<Endpoint> endpoint, int wc_entries, std::function<void()> on_failure)
    : options_(options),
      cpu_(cpu),
      index_(index),
      endpoint_(std::move(endpoint)),
      on_failure_(std::move(on_failure)),
      wc_(static_cast<size_t>(wc_entries)),
      detector_({.log_ticks = clock.ticks_in(options.log_threshold_ns),
                 .stall_ticks = clock.ticks_in(options.stall_threshold_ns)},
                gap_capacity),
      ready_since_ns_(soft_hca::ready_since_ns(endpoint_->cq())),
      posted_ticks_(options.depth),
      ns_per_tick_(1 / clock.ticks_per_ns()),
      think_ticks_(clock.ticks_in(options.think_ns)),
      think_cycle_ticks_(clock.ticks_in(options.think_cycle_ns)) {
  storm_polls_.reserve(storm_capacity);
}

Poller::~Poller() { stop(); }

Status Poller::start() {
  struct sigaction action {};
  action.sa_handler = interrupt_only;
  sigaction(SIGUSR1, &action, nullptr);
  std::atomic<int> setup{0};
  thread_ = std::thread([this, &setup] { thread_main(setup); });
  setup.wait(0);
  return setup_error_;
}

void Poller::stop() {
  if (!thread_.joinable()) return;
  stop_ = true;
  // It may sit in ibv_get_cq_event; a signal that comes just before it does is lost, so repeat.
  while (!done_ && options_.style == PollStyle::event) {
    pthread_kill(thread_.native_handle(), SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  thread_.join();
}

clockid_t Poller::cpu_clock() {
  clockid_t clock = CLOCK_MONOTONIC;
  pthread_getcpuclockid(thread_.native_handle(), &clock);
  return clock;
}

Status Poller::set_up_thread() {
  tid_ = gettid();
  name_thread(fmt::format("pg-poll-{}", index_));
  prctl(PR_SET_TIMERSLACK, 1UL);  // a sleep in the loop lasts as long as it was asked to
  if (Status error = pin_thread(cpu_)) return error;
  return set_thread_policy(options_.policy, options_.priority);
}

void Poller::thread_main(std::atomic<int>& setup) {
  setup_error_ = set_up_thread();
  const bool ready = !setup_error_;
  setup = 1;
  setup.notify_one();  // `setup` is gone after this
  if (ready) {
    switch (options_.style) {
      case PollStyle::poll:
        loop(PlainStyle(*endpoint_, wc_));
        break;
      case PollStyle::bare:
        loop(BareStyle(*endpoint_, wc_));
        break;
      case PollStyle::extended:
        loop(ExtendedStyle(*endpoint_, wc_));
        break;
      case PollStyle::event:
        loop(EventStyle(*endpoint_, wc_));
        break;
    }
  }
  detector_.finish();
  done_ = true;
}

template <typename Style>
void Poller::loop(Style style) {
  bool waited = false;
  last_exit_ = read_cycles();
  while (!stop_.load(std::memory_order_relaxed)) {
    run_due_actions(last_exit_);
    post_or_pause();
    uint64_t entry = 0;
    uint64_t exit = 0;
    const int count = style.poll(entry, exit);
    if (count < 0) return fail(fmt::format("the poll function returned {}", count));
    uint32_t signaled_sends = 0;
    uint64_t storm = 0;
    for (int i = 0; i < count; ++i) {
      const ibv_wc& wc = wc_[static_cast<size_t>(i)];
      signaled_sends += account(wc.wr_id, wc.status, exit, storm);
    }
    const size_t gaps = detector_.gaps().size();
    detector_.polled(entry, exit, static_cast<uint32_t>(count), signaled_sends, waited);
    if (detector_.gaps().size() != gaps && ready_since_ns_ != nullptr) [[unlikely]]
      detector_.completions_came(gaps, *ready_since_ns_);
    count_polls(entry, exit, style.polls());
    if (storm != 0) count_storm(entry, exit, storm);
    if (!failure_.empty()) return;
    waited = count == 0 && style.wait();
    if (think_ticks_ != 0) think(exit);
  }
}

void Poller::think(uint64_t exit) const {
  if (think_cycle_ticks_ != 0 && exit / think_cycle_ticks_ % 2 == 0) return;
  while (read_cycles() - exit < think_ticks_) cpu_relax();
}

void Poller::run_due_actions(uint64_t now) {
  for (LoopAction* action : actions_) {
    if (now < action->due_ticks()) [[likely]]
      continue;
    action->run(*this);
    return;  // at most one between two polls, so that each has a gap of its own
  }
}

void Poller::post_or_pause() {
  if (pause_ != nullptr) {
    pause_step(last_exit_);
  } else if (!posting_allowed_.load(std::memory_order_relaxed)) {
    drained_.store(detector_.outstanding() == 0, std::memory_order_relaxed);
  } else if (options_.post) {
    fill();
  }
}

void Poller::fill() {
  while (posted_ - retired_ < options_.depth) {
    const bool signaled = (posted_ + 1) % options_.signal_every == 0;
    bool begins = false;
    if (signaled) {
      const uint64_t now = read_cycles();
      begins = detector_.posts_signaled(now);
      posted_ticks_[(posted_ + 1) % options_.depth] = now;
    }
    if (const int error = endpoint_->post(posted_ + 1, signaled); error != 0) {
      return fail(fmt::format("ibv_post_send: {}", std::strerror(error)));
    }
    if (begins) detector_.posted(read_cycles());
    ++posted_;
  }
}

// Returns 1 if this was the completion of a signaled send.
uint32_t Poller::account(uint64_t wr_id, ibv_wc_status status, uint64_t exit, uint64_t& storm) {
  ++completions_;
  const Request kind = request_kind(wr_id);
  if (kind == Request::storm) {
    ++storm;
    return 0;
  }
  if (status != IBV_WC_SUCCESS) {
    fail(fmt::format("work completion with status \"{}\"", ibv_wc_status_str(status)));
    return 0;
  }
  if (kind == Request::receive) {
    if (const int error = endpoint_->post_receive(); error != 0) {
      fail(fmt::format("ibv_post_recv: {}", std::strerror(error)));
    }
    return 0;
  }
  retired_ = request_number(wr_id);  // an RC queue pair completes in order
  completion_ns_.add(to_ns(exit - posted_ticks_[retired_ % options_.depth]));
  return 1;
}

void Poller::count_polls(uint64_t entry, uint64_t exit, uint64_t count) {
  polls_.store(polls() + count, std::memory_order_relaxed);  // one writer: no locked instruction
  poll_ns_.add(to_ns((exit - entry) / count));
  if (last_entry_ != 0) interval_ns_.add(to_ns(entry - last_entry_));
  last_entry_ = entry;
  last_exit_ = exit;
}

void Poller::count_storm(uint64_t entry, uint64_t exit, uint64_t completions) {
  storm_completions_.store(storm_completions() + completions, std::memory_order_relaxed);
  if (storm_polls_.size() < storm_capacity) storm_polls_.push_back({entry, exit, completions});
}

void Poller::pause_posting(uint64_t length_ticks, PauseListener* listener) {
  pause_ = listener;
  pause_length_ = length_ticks;
  pause_start_ = 0;
}

void Poller::pause_step(uint64_t now) {
  if (pause_start_ == 0) {
    if (detector_.outstanding() == 0) pause_start_ = now;
    return;
  }
  if (now - pause_start_ < pause_length_) return;
  pause_->paused(pause_start_, now);
  pause_ = nullptr;
}

void Poller::fail(const std::string& what) {
  if (!failure_.empty()) return;
  failure_ = what;
  on_failure_();
}

}  // namespace pollgap::workload
