// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/queue_pair.h"

#include <cerrno>
#include <limits>
#include <utility>

#include "tools/soft-hca/adapter_identity.h"
#include "tools/soft-hca/clock.h"
#include "tools/soft-hca/packet.h"
#include "tools/soft-hca/qp_transitions.h"

namespace pollgap::soft_hca {
namespace {

constexpr uint8_t kPort = 1;

// The send queue begins where the receive queue ends (mlx5_calc_wq_size of libmlx5,
// set_user_buf_size of the kernel's mlx5_ib).
uint64_t send_buffer(const QueuePair::Config& config) {
  return config.buffer + (uint64_t{config.receive_entries} << config.receive_shift);
}

// What the kernel (modify_qp in drivers/infiniband/core/uverbs_cmd.c) or mlx5_ib refuses besides
// the state rules.
bool attributes_valid(const ib_uverbs_modify_qp& change) {
  const uint32_t mask = change.attr_mask;
  if ((mask & IBV_QP_PORT) != 0 && change.port_num != kPort) return false;
  if ((mask & IBV_QP_PKEY_INDEX) != 0 && change.pkey_index != 0) return false;
  if ((mask & IBV_QP_AV) != 0 && (change.dest.port_num != kPort ||
                                  (change.dest.is_global != 0 && change.dest.sgid_index != 0))) {
    return false;
  }
  if ((mask & IBV_QP_PATH_MTU) != 0 &&
      (change.path_mtu < IBV_MTU_256 || change.path_mtu > kActiveMtu)) {
    return false;
  }
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0 && change.max_rd_atomic > kMaxReads) return false;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0 && change.max_dest_rd_atomic > kMaxReads)
    return false;
  return change.timeout < 32 && change.retry_cnt < 8 && change.rnr_retry < 8 &&
         change.min_rnr_timer < 32;
}

}  // namespace

QueuePair::QueuePair(const Config& config)
    : send_queue(send_buffer(config), config.send_blocks, config.doorbell),
      receive_queue(config.buffer, config.receive_entries, config.receive_shift, config.doorbell),
      doorbells(config.send_blocks),
      config_(config) {
  attributes_.max_send_wr = config.capacity.max_send_wr;
  attributes_.max_recv_wr = config.capacity.max_recv_wr;
  attributes_.max_send_sge = config.capacity.max_send_sge;
  attributes_.max_recv_sge = config.capacity.max_recv_sge;
  attributes_.max_inline_data = config.capacity.max_inline_data;
  attributes_.sq_sig_all = config.signal_all ? 1 : 0;
  reset();
}

void QueuePair::reset() {
  attributes_.qp_state = IBV_QPS_RESET;
  attributes_.cur_qp_state = IBV_QPS_RESET;
  send_queue.reset();
  receive_queue.reset();
  doorbells.clear();
  pending_error_ = {};
  attempts = {};
  window.clear();
  next_send = admitted = 0;
  awaiting_data = 0;
  receiver_not_ready = false;
  wire_mark = dropped_ns = 0;
  arrival = {};
  complained = false;
  atomic_results = {};
  observed_producer_ = 0;
}

int QueuePair::modify(const ib_uverbs_modify_qp& change) {
  const uint32_t mask = change.attr_mask;
  const auto to = (mask & IBV_QP_STATE) != 0 ? static_cast<ibv_qp_state>(change.qp_state) : state();
  if ((mask & IBV_QP_CUR_STATE) != 0 && change.cur_qp_state != state()) return EINVAL;
  if (!transition_allowed(config_.type, state(), to, mask) || !attributes_valid(change))
    return EINVAL;
  if (to == IBV_QPS_RESET) {
    reset();
    return 0;
  }
  ib_uverbs_query_qp_resp& now = attributes_;
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) now.qp_access_flags = change.qp_access_flags;
  if ((mask & IBV_QP_PKEY_INDEX) != 0) now.pkey_index = change.pkey_index;
  if ((mask & IBV_QP_PORT) != 0) now.port_num = change.port_num;
  if ((mask & IBV_QP_AV) != 0) now.dest = change.dest;
  if ((mask & IBV_QP_PATH_MTU) != 0) now.path_mtu = change.path_mtu;
  if ((mask & IBV_QP_TIMEOUT) != 0) now.timeout = change.timeout;
  if ((mask & IBV_QP_RETRY_CNT) != 0) now.retry_cnt = change.retry_cnt;
  if ((mask & IBV_QP_RNR_RETRY) != 0) now.rnr_retry = change.rnr_retry;
  if ((mask & IBV_QP_RQ_PSN) != 0) now.rq_psn = change.rq_psn & kPsnMask;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) now.max_rd_atomic = change.max_rd_atomic;
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) now.min_rnr_timer = change.min_rnr_timer;
  if ((mask & IBV_QP_SQ_PSN) != 0) now.sq_psn = change.sq_psn & kPsnMask;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) now.max_dest_rd_atomic = change.max_dest_rd_atomic;
  if ((mask & IBV_QP_QKEY) != 0) now.qkey = change.qkey;
  if ((mask & IBV_QP_DEST_QPN) != 0) now.dest_qp_num = change.dest_qp_num & kPsnMask;
  if (to == IBV_QPS_ERR) tell_last_receive();
  now.qp_state = now.cur_qp_state = static_cast<uint8_t>(to);
  if (to == IBV_QPS_RTS) renew_attempts();
  return 0;
}

// Once in the error state it takes no more from its shared receive queue, which the program cannot
// tell from completions (InfiniBand specification volume 1, 11.6.3.1).
void QueuePair::tell_last_receive() {
  if (config_.srq != nullptr && state() != IBV_QPS_ERR) {
    post_async_event(IBV_EVENT_QP_LAST_WQE_REACHED);
  }
}

void QueuePair::fail(const WorkError& error) {
  tell_last_receive();
  attributes_.qp_state = attributes_.cur_qp_state = IBV_QPS_ERR;
  pending_error_ = error;
  window.clear();
  awaiting_data = 0;
  dropped_ns = 0;
}

WorkError QueuePair::take_pending_error() { return std::exchange(pending_error_, {}); }

void QueuePair::post_async_event(ibv_event_type type) {
  ib_uverbs_async_event_desc event{};
  event.element = config_.user_handle;
  event.event_type = type;
  if (config_.async->post(&event, sizeof(event))) ++async_events_;
}

uint32_t QueuePair::async_events_read() {
  if (async_events_ == 0) return 0;
  return async_events_ -
         config_.async->withdraw(config_.user_handle, sizeof(ib_uverbs_async_event_desc));
}

// The time is taken after the doorbell was seen, or a device thread that was preempted before it
// looked would count that time in.
bool QueuePair::observe(uint64_t delay_ns) {
  if (send_queue.capacity() == 0) return false;
  const uint16_t producer = send_queue.producer();
  if (producer == observed_producer_) return false;
  observed_producer_ = producer;
  doorbells.add({delay_ns == 0 ? 0 : now_ns() + delay_ns, producer});
  return true;
}

uint64_t QueuePair::admit(uint64_t time_ns) {
  while (!doorbells.empty()) {
    const DoorbellLog::Entry& next = doorbells.front();
    if (next.due_ns > time_ns) return next.due_ns;
    admitted = next.producer;
    doorbells.pop();
  }
  return std::numeric_limits<uint64_t>::max();
}

void QueuePair::renew_attempts() { attempts = {attributes_.retry_cnt, attributes_.rnr_retry}; }

void QueuePair::advance_receive_psn(uint32_t packets) {
  attributes_.rq_psn = (attributes_.rq_psn + packets) & kPsnMask;
}

bool QueuePair::begin_receive() {
  if (arrival.active) return true;
  if (config_.srq != nullptr) {
    if (!config_.srq->take(&arrival.index)) return false;
  } else {
    if (receive_queue.empty()) return false;
    arrival.index = receive_queue.consumer();
  }
  arrival.active = true;
  arrival.bytes = 0;
  return true;
}

void QueuePair::decode_receive(SegmentList* segments) const {
  if (config_.srq != nullptr) {
    config_.srq->decode(arrival.index, segments);
  } else {
    receive_queue.decode(segments);
  }
}

void QueuePair::end_receive() {
  if (config_.srq == nullptr) receive_queue.advance();
  arrival = {};
}

void Window::pop() {
  head_ = (head_ + 1) % kMessages;
  --count_;
  if (current != 0) {
    --current;
  } else {
    offset = 0;  // it was being sent again, and has been acknowledged meanwhile
  }
}

}  // namespace pollgap::soft_hca
