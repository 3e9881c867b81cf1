// SPDX-License-Identifier: Apache-2.0
// A reliable-connection queue pair: its two queues, its state and what it still has to do.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tools/soft-hca/completion_queue.h"
#include "tools/soft-hca/event_pipe.h"
#include "tools/soft-hca/work_queues.h"

namespace pollgap::soft_hca {

// When the program rang, and what it had posted by then; as many as there are blocks in the queue.
class DoorbellLog {
 public:
  struct Entry {
    uint64_t due_ns = 0;    // when the work is to be carried out
    uint16_t producer = 0;  // the send producer counter
  };

  explicit DoorbellLog(uint32_t capacity) : entries_(capacity == 0 ? 1 : capacity) {}

  void add(const Entry& entry) { entries_[tail_++ % entries_.size()] = entry; }
  bool empty() const { return head_ == tail_; }
  const Entry& front() const { return entries_[head_ % entries_.size()]; }
  void pop() { ++head_; }
  void clear() { head_ = tail_ = 0; }

 private:
  std::vector<Entry> entries_;
  uint64_t head_ = 0;
  uint64_t tail_ = 0;
};

// An error that a work request ends with, before the flush of what is behind it.
struct WorkError {
  enum class On : uint8_t { nothing, send, receive };
  On on = On::nothing;   // the oldest unfinished request of that queue
  uint8_t syndrome = 0;  // MLX5_CQE_SYNDROME_*
  uint8_t vendor = 0;
};

// All functions but the constructor and number() are for the device thread.
class QueuePair {
 public:
  struct Config {
    uint32_t number = 0;
    uint32_t pd = 0;
    uint32_t cqe_index = 0;  // goes into its CQEs: the user index (CQE version 1) or 0 (version 0)
    uint64_t user_handle = 0;
    bool signal_all = false;
    CompletionQueue* send_cq = nullptr;  // never null
    CompletionQueue* receive_cq = nullptr;
    std::shared_ptr<EventPipe> async;
    uint64_t buffer = 0;
    uint64_t doorbell = 0;
    uint32_t send_blocks = 0;
    uint32_t receive_entries = 0;
    uint32_t receive_shift = 0;
    ibv_qp_cap capacity{};
  };

  explicit QueuePair(const Config& config);

  uint32_t number() const { return config_.number; }
  const Config& config() const { return config_; }
  uint64_t receive_capacity() const { return config_.receive_entries; }

  ibv_qp_state state() const { return static_cast<ibv_qp_state>(attributes_.qp_state); }
  const ib_uverbs_query_qp_resp& attributes() const { return attributes_; }

  // ibv_modify_qp: 0, or EINVAL for a transition or attribute that is not allowed, with nothing
  // changed. Moving to ERR does not flush by itself.
  int modify(const ib_uverbs_modify_qp& change);

  // Puts it into ERR; `error` is what the next flush begins with.
  void fail(const WorkError& error);
  // That error, once.
  WorkError take_pending_error();

  void post_async_event(ibv_event_type type);
  // Withdraws unread events, at destruction; returns how many events the program did read.
  uint32_t async_events_read();

  // Notes sends posted since the last call: they are due at `due_ns`. Returns whether there were
  // any.
  bool observe(uint64_t due_ns);

  // Retransmission: how often the request at the head may still be tried, and when next.
  struct Attempts {
    uint8_t transport = 0;
    uint8_t receiver_not_ready = 0;
    uint64_t next_ns = 0;
  };
  Attempts& attempts() { return attempts_; }
  const Attempts& attempts() const { return attempts_; }
  void renew_attempts();

  // Packet sequence numbers, 24 bits: of the next request sent, and of the next expected.
  uint32_t send_psn() const { return attributes_.sq_psn; }
  uint32_t receive_psn() const { return attributes_.rq_psn; }
  void advance_send_psn(uint32_t packets);
  void advance_receive_psn(uint32_t packets);

  SendQueue send_queue;
  ReceiveQueue receive_queue;
  DoorbellLog doorbells;
  uint64_t transferred = 0;  // bytes of the request at the head of the send queue, so far

 private:
  void reset();

  Config config_;
  WorkError pending_error_;
  Attempts attempts_;
  uint16_t observed_producer_ = 0;
  uint32_t async_events_ = 0;
  ib_uverbs_query_qp_resp attributes_{};  // last: it ends in a flexible array
};

}  // namespace pollgap::soft_hca
