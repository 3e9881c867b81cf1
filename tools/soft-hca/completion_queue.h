// SPDX-License-Identifier: Apache-2.0
// A completion queue as the adapter sees it: a ring in the program's memory into which it writes
// completion queue entries (CQEs), and a doorbell record from which it learns what the program has
// consumed and whether it wants an event. Layouts: infiniband/mlx5dv.h.
#pragma once

#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tools/soft-hca/event_pipe.h"
#include "tools/soft-hca/program_memory.h"

namespace pollgap::soft_hca {

// All functions but the constructor and the plain getters are for the device thread.
class CompletionQueue {
 public:
  struct Config {
    uint32_t number = 0;
    uint64_t user_handle = 0;  // the program's name for it: goes into events
    uint64_t buffer = 0;
    uint32_t cqe_size = 64;  // 64 or 128
    uint32_t entries = 0;    // a power of two
    uint64_t doorbell = 0;   // two big-endian words: consumer index, arm request
    bool ignore_overrun = false;
    std::shared_ptr<EventPipe> channel;  // null: no completion events
    std::shared_ptr<EventPipe> async;    // of the context
  };

  explicit CompletionQueue(const Config& config);

  uint32_t number() const { return config_.number; }
  uint64_t user_handle() const { return config_.user_handle; }
  // When a CQE was last handed over while the program had polled all before it; 0: not yet.
  const std::atomic<uint64_t>& ready_since_ns() const { return ready_since_ns_; }
  // Whether it has failed since this was last asked.
  bool take_failure() { return std::exchange(new_failure_, false); }

  // Writes the next CQE but leaves it the hardware's, invisible to a poller, until publish().
  // `cqe.op_own` is not used. On overrun the CQ fails, as IBV_EVENT_CQ_ERR tells the program, and
  // this and all later CQEs are lost; returns false then.
  bool append(const mlx5_cqe64& cqe, uint8_t opcode, bool solicited);

  // A CQE that a fault keeps back.
  struct Held {
    mlx5_cqe64 cqe{};
    uint8_t opcode = 0;
    bool solicited = false;
    uint32_t queue_pair = 0;
    uint32_t fault = 0;  // 0: a hold, which has a log line of its own
    uint64_t since_ns = 0;
    uint64_t release_ns = 0;  // when it is to be written
  };

  // Keeps a CQE back; those of one queue pair must be released in the order in which they came.
  void hold(const Held& held) { held_.push_back(held); }
  bool has_held() const { return !held_.empty(); }
  // When the last CQE that is held of this queue pair is due; 0: there is none.
  uint64_t last_release_ns(uint32_t queue_pair) const;
  // Writes what is due, all to become visible at once, and tells `done(held)` of each. Returns when
  // the next is due; UINT64_MAX: nothing is held.
  template <typename Done>
  uint64_t release(uint64_t now_ns, Done done);
  // What is held of a queue pair is due at `until(queue_pair)` at the latest.
  template <typename Until>
  void shorten(Until until) {
    for (Held& held : held_) held.release_ns = std::min(held.release_ns, until(held.queue_pair));
  }
  // Drops what is held of a queue pair that is reset or destroyed.
  void forget(uint32_t queue_pair);

  // Fails as if it had overrun, and tells the program. False: it has failed before.
  bool overrun();

  // Hands all appended CQEs to the program, newest first: a poller, which reads from the oldest,
  // sees either none or all of them.
  void publish();

  // Sends a completion event if the program has asked for one and there is something to tell.
  void deliver_event();

  // Moves to another buffer; the numbering of CQEs goes on. Returns 0, or an errno value with
  // nothing changed: EINVAL when the outstanding CQEs do not fit.
  int resize(uint64_t buffer, uint32_t cqe_size, uint32_t entries);

  // Withdraw unread events, at destruction; return how many events the program did read.
  uint32_t completion_events_read();
  uint32_t async_events_read();

 private:
  mlx5_cqe64* slot(uint32_t index) const;
  uint8_t owner_bit(uint32_t index) const { return (index & config_.entries) != 0 ? 1 : 0; }
  uint32_t* consumer_word() const { return at_address<uint32_t>(config_.doorbell); }
  uint32_t* arm_word() const { return consumer_word() + 1; }
  uint32_t outstanding() const;

  Config config_;
  bool failed_ = false;
  bool new_failure_ = false;
  uint32_t producer_ = 0;    // CQEs written so far
  uint32_t published_ = 0;   // of these, handed over
  uint32_t solicited_ = 0;   // one past the newest CQE that asked for an event
  uint32_t notified_ = 0;    // producer index at the last event
  uint32_t fired_sequence_;  // arm_sn of the last event
  uint32_t completion_events_ = 0;
  uint32_t async_events_ = 0;
  std::vector<Held> held_;  // oldest first
  std::atomic<uint64_t> ready_since_ns_ = 0;
};

template <typename Done>
uint64_t CompletionQueue::release(uint64_t now_ns, Done done) {
  uint64_t next_ns = UINT64_MAX;
  size_t kept = 0;
  for (const Held& held : held_) {
    if (held.release_ns > now_ns) {
      next_ns = next_ns < held.release_ns ? next_ns : held.release_ns;
      held_[kept++] = held;
      continue;
    }
    append(held.cqe, held.opcode, held.solicited);
    done(held);
  }
  held_.resize(kept);
  publish();
  return next_ns;
}

}  // namespace pollgap::soft_hca
