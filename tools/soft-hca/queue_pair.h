// SPDX-License-Identifier: Apache-2.0
// A queue pair, of a reliable connection or for datagrams: its two queues, its state and what it
// still has to do.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "tools/soft-hca/completion_queue.h"
#include "tools/soft-hca/event_pipe.h"
#include "tools/soft-hca/shared_receive_queue.h"
#include "tools/soft-hca/timer_wheel.h"
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

// A send request on its way: sent, at least in part, and not yet acknowledged.
struct Message {
  uint16_t counter = 0;  // of its WQE, as the CQE names it
  uint16_t blocks = 0;
  uint8_t opcode = 0;
  bool signaled = false;
  bool awaits_data = false;  // a read or atomic operation without all of its response
  uint32_t bytes = 0;
  uint32_t psn = 0;  // of the first packet
  uint32_t packets = 0;
  uint32_t answered = 0;  // packets acknowledged; of a read: of its response that have come
  uint32_t last_psn() const { return (psn + packets - 1) & 0xffffff; }
};

// The messages on their way, oldest first, and how far the sending has got in them.
class Window {
 public:
  static constexpr uint32_t kMessages = 128;

  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == kMessages; }
  uint32_t count() const { return count_; }
  Message& at(uint32_t index) { return messages_[(head_ + index) % kMessages]; }
  Message& oldest() { return at(0); }
  void push(const Message& message) { at(count_++) = message; }
  void pop();
  void clear() { *this = {}; }
  // Everything has been sent that is in the window.
  bool all_sent() const { return current == count_; }
  // Anything has been sent and is not acknowledged.
  bool any_sent() const { return current != 0 || offset != 0; }

  uint32_t current = 0;  // index of the message that is being sent; count(): none
  uint32_t offset = 0;   // bytes of it that have been sent

 private:
  std::array<Message, kMessages> messages_{};
  uint32_t head_ = 0;
  uint32_t count_ = 0;
};

// All functions but the constructor and number() are for the device thread. The timer is that of
// the requester: see there.
class QueuePair : public Timer {
 public:
  struct Config {
    ibv_qp_type type = IBV_QPT_RC;  // or IBV_QPT_UD
    uint32_t number = 0;
    uint32_t pd = 0;
    // What names it in its CQEs: the user index (CQE version 1); or nothing, and for receives the
    // number of the shared receive queue (version 0).
    uint32_t cqe_index = 0;
    uint32_t receive_cqe_index = 0;
    uint64_t user_handle = 0;
    bool signal_all = false;
    CompletionQueue* send_cq = nullptr;  // never null
    CompletionQueue* receive_cq = nullptr;
    SharedReceiveQueue* srq = nullptr;  // or null: its own receive queue
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
  bool datagrams() const { return config_.type == IBV_QPT_UD; }
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

  // Sends that fell due by `time_ns` may be carried out. Returns when the next will; UINT64_MAX:
  // there is none.
  uint64_t admit(uint64_t time_ns);

  // How often the oldest message may still be tried.
  struct Attempts {
    uint8_t transport = 0;
    uint8_t receiver_not_ready = 0;
  };
  void renew_attempts();

  // Packet sequence numbers, 24 bits: of the next packet sent, and of the next expected.
  uint32_t send_psn() const { return attributes_.sq_psn; }
  uint32_t receive_psn() const { return attributes_.rq_psn; }
  void set_send_psn(uint32_t psn) { attributes_.sq_psn = psn & 0xffffff; }
  void advance_receive_psn(uint32_t packets);

  // The receive that an arriving message fills: takes one, unless one is being filled. False: there
  // is none.
  bool begin_receive();
  void decode_receive(SegmentList* segments) const;
  void end_receive();

  SendQueue send_queue;  // its consumer is the oldest request without an end
  ReceiveQueue receive_queue;
  DoorbellLog doorbells;

  // The requester's.
  Window window;
  Attempts attempts;
  uint16_t next_send = 0;      // the WQE after those in the window
  uint16_t admitted = 0;       // the WQE after those that may be sent
  uint32_t awaiting_data = 0;  // messages in the window that await data
  bool receiver_not_ready =
      false;                // the timer runs until the next try; else for an acknowledgement
  uint64_t wire_mark = 0;   // of the last packet on the wire
  uint64_t dropped_ns = 0;  // since when a packet of this queue pair, lost to a fault, is missing
  uint32_t dropped_psn = 0;
  uint32_t dropped_fault = 0;
  uint32_t dropped_count = 0;

  // The responder's.
  struct Arrival {
    bool active = false;
    uint16_t index = 0;  // of the WQE
    uint32_t bytes = 0;
  };
  Arrival arrival;
  uint32_t write_bytes = 0;  // of the write that is arriving
  bool complained = false;   // a NAK is out, until the expected packet comes
  // The results of the latest atomic operations, for a requester that asks again (9.4.5).
  struct AtomicResult {
    bool valid = false;
    uint32_t psn = 0;
    uint64_t value = 0;
  };
  std::array<AtomicResult, 16> atomic_results{};
  uint32_t next_atomic_result = 0;

 private:
  void reset();
  void tell_last_receive();

  Config config_;
  WorkError pending_error_;
  uint16_t observed_producer_ = 0;
  uint32_t async_events_ = 0;
  ib_uverbs_query_qp_resp attributes_{};  // last: it ends in a flexible array
};

}  // namespace pollgap::soft_hca
