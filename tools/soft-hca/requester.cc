// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/requester.h"

#include <algorithm>
#include <limits>

#include "tools/soft-hca/adapter_identity.h"
#include "tools/soft-hca/clock.h"
#include "tools/soft-hca/vendor_errors.h"

namespace pollgap::soft_hca {
namespace {

// How many records of one queue pair are sent before the others get their turn.
constexpr int kRecordsPerTurn = 16;
constexpr uint8_t kRetryForEver = 7;  // of rnr_retry (11.2.5.2)
// How long to wait for an end that has not had the CPU time to take its packets.
constexpr uint64_t kWireGraceNs = 1'000'000;
constexpr uint32_t kAtomicBytes = 8;
// A long message asks for an acknowledgement on its way, or its end might come after the timeout.
constexpr uint32_t kRecordsPerAck = 8;

// The RNR NAK timer field (table 45 of the specification), in units of 10 us.
constexpr uint32_t kRnrTimer[32] = {65536, 1,    2,    3,     4,     6,     8,     12,
                                    16,    24,   32,   48,    64,    96,    128,   192,
                                    256,   384,  512,  768,   1024,  1536,  2048,  3072,
                                    4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};

// ACK timeout: 4.096 us times two to the timeout field (9.7.6.1.3); 0 means no timeout.
uint64_t ack_timeout_ns(uint8_t timeout) { return timeout == 0 ? 0 : uint64_t{4096} << timeout; }

// The kind of packet that carries out `opcode`; padding: none does.
PacketKind kind_of(uint8_t opcode) {
  switch (opcode) {
    case MLX5_OPCODE_SEND:
    case MLX5_OPCODE_SEND_IMM:
      return PacketKind::send;
    case MLX5_OPCODE_RDMA_WRITE:
    case MLX5_OPCODE_RDMA_WRITE_IMM:
      return PacketKind::write;
    case MLX5_OPCODE_RDMA_READ:
      return PacketKind::read;
    case MLX5_OPCODE_ATOMIC_CS:
      return PacketKind::compare_swap;
    case MLX5_OPCODE_ATOMIC_FA:
      return PacketKind::fetch_add;
    default:
      return PacketKind::padding;
  }
}

bool has_immediate(uint8_t opcode) {
  return opcode == MLX5_OPCODE_SEND_IMM || opcode == MLX5_OPCODE_RDMA_WRITE_IMM;
}

bool fetches(PacketKind kind) {
  return kind == PacketKind::read || kind == PacketKind::compare_swap ||
         kind == PacketKind::fetch_add;
}

WorkError send_error(uint8_t syndrome, uint8_t vendor) {
  return {WorkError::On::send, syndrome, vendor};
}

uint64_t mtu_of(const QueuePair& qp) { return uint64_t{128} << qp.attributes().path_mtu; }

}  // namespace

void Requester::abandon(QueuePair* qp) {
  timers_->stop(qp);
  if (qp->dropped_ns != 0) {
    faults_->log().add({FaultKind::drop_request, qp->dropped_fault, qp->number(), 0, qp->dropped_ns,
                        now_ns(), qp->dropped_count});
    qp->dropped_ns = 0;
  }
}

void Requester::fail(QueuePair* qp, const WorkError& error) {
  if (qp->state() == IBV_QPS_ERR) return;
  abandon(qp);
  qp->fail(error);
  completions_->flush(qp, now_ns());
}

// The error that the request at hand would end with.
bool Requester::check(const QueuePair& qp, WorkError* error) {
  const PacketKind kind = kind_of(request_.opcode);
  const uint64_t bytes = request_.segments.bytes;
  const bool atomic = is_atomic(request_.opcode);
  if (!request_.valid || kind == PacketKind::padding ||
      (qp.datagrams() && kind != PacketKind::send) ||
      (fetches(kind) && qp.attributes().max_rd_atomic == 0)) {
    *error = send_error(MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, kVendorLocalOperation);
    return false;
  }
  const uint64_t longest = qp.datagrams() ? uint64_t{128} << kActiveMtu : kMaxMessageBytes;
  if (bytes > longest || (atomic && bytes != kAtomicBytes)) {
    *error = send_error(MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, kVendorLocalOperation);
    return false;
  }
  const uint32_t access = fetches(kind) ? IBV_ACCESS_LOCAL_WRITE : 0;
  if (!local_.resolve(*memory_, qp.config().pd, request_.segments, access)) {
    *error = send_error(MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, kVendorLocalProtection);
    return false;
  }
  return true;
}

// The message whose packets come next. An error of a later one waits until all before it have
// ended.
bool Requester::next_message(QueuePair* qp, Message** message) {
  if (qp->window.all_sent()) return new_message(qp, message);
  Message& old = qp->window.at(qp->window.current);
  qp->send_queue.decode(old.counter, old.blocks, qp->datagrams(), &request_);
  WorkError error;
  if (!check(*qp, &error)) {
    if (qp->window.current == 0) fail(qp, error);
    return false;
  }
  *message = &old;
  return true;
}

bool Requester::new_message(QueuePair* qp, Message** message) {
  if (qp->next_send == qp->admitted || qp->window.full()) return false;
  const auto available = static_cast<uint16_t>(qp->admitted - qp->next_send);
  qp->send_queue.decode(qp->next_send, available, qp->datagrams(), &request_);
  WorkError error;
  if (!check(*qp, &error)) {
    if (qp->window.empty()) fail(qp, error);
    return false;
  }
  const bool fetching = fetches(kind_of(request_.opcode));
  if (qp->awaiting_data != 0) {
    if (request_.fence == MLX5_WQE_CTRL_FENCE) return false;  // 10.8.3.3
    if (fetching && qp->awaiting_data >= qp->attributes().max_rd_atomic) return false;
  }
  Message added;
  added.counter = request_.counter;
  added.blocks = static_cast<uint16_t>(request_.blocks);
  added.opcode = request_.opcode;
  added.signaled = request_.signaled;
  added.awaits_data = fetching;
  added.bytes = static_cast<uint32_t>(request_.segments.bytes);
  added.psn = qp->send_psn();
  added.packets = qp->datagrams() || is_atomic(added.opcode)
                      ? 1
                      : packets_of(added.bytes, qp->attributes().path_mtu);
  qp->window.push(added);
  qp->next_send = static_cast<uint16_t>(qp->next_send + added.blocks);
  qp->set_send_psn(added.psn + added.packets);
  if (fetching) ++qp->awaiting_data;
  *message = &qp->window.at(qp->window.current);
  return true;
}

bool Requester::send_some(QueuePair* qp, uint64_t now_ns) {
  bool worked = false;
  for (int sent = 0; sent < kRecordsPerTurn && !qp->receiver_not_ready; ++sent) {
    Message* message = nullptr;
    if (!next_message(qp, &message)) return worked || qp->state() == IBV_QPS_ERR;
    const bool done =
        qp->datagrams() ? send_datagram(qp, *message, now_ns) : send_packet(qp, *message, now_ns);
    if (!done) return worked;
    worked = true;
  }
  return worked;
}

void Requester::lose(QueuePair* qp, uint32_t psn, uint32_t fault, uint64_t now_ns) {
  counters_->add(Counter::port_xmit_discards);
  ++qp->dropped_count;
  if (qp->dropped_ns != 0) return;
  qp->dropped_ns = now_ns;
  qp->dropped_psn = psn;
  qp->dropped_fault = fault;
  qp->dropped_count = 1;
}

void Requester::advance(QueuePair* qp, const Message& message, uint32_t length) {
  qp->window.offset += length;
  if (qp->window.offset < message.bytes && !is_atomic(message.opcode)) return;
  qp->window.offset = 0;
  ++qp->window.current;
}

bool Requester::send_packet(QueuePair* qp, const Message& message, uint64_t now_ns) {
  const Route route = routes_->route_to(qp->attributes().dest_qp_num, now_ns);
  if (route.state == Route::State::pending) return false;
  const uint32_t offset = qp->window.offset;
  const PacketKind kind = kind_of(message.opcode);
  Packet packet;
  packet.kind = kind;
  packet.to = qp->attributes().dest_qp_num;
  packet.from = qp->number();
  packet.psn = (message.psn + static_cast<uint32_t>(offset / mtu_of(*qp))) & kPsnMask;
  const uint32_t left = message.bytes - offset;
  const uint32_t length = std::min(left, kRecordBytes);
  packet.packets = is_atomic(message.opcode) ? 1 : packets_of(length, qp->attributes().path_mtu);
  packet.first = offset == 0;
  packet.last = length == left;
  packet.wants_ack = packet.last || offset / kRecordBytes % kRecordsPerAck == kRecordsPerAck - 1;
  packet.immediate = packet.last && has_immediate(message.opcode);
  packet.immediate_data = request_.immediate;
  packet.solicited = packet.last && request_.solicited;
  packet.key = request_.remote_key;
  packet.address = request_.remote_address + offset;
  packet.remaining = kind == PacketKind::read ? length : left;
  packet.length = fetches(kind) ? 0 : length;
  packet.operand = kind == PacketKind::read ? left : request_.swap_or_add;
  packet.compare = request_.compare;

  const bool reachable = route.state == Route::State::up && qp->attributes().dest.dlid == kLid;
  const uint32_t fault = faults_->strikes(FaultKind::drop_request, qp->number());
  if (fault != 0) {
    lose(qp, packet.psn, fault, now_ns);
  } else if (reachable) {
    std::byte* payload = route.link->requests_out.reserve(packet.length);
    if (payload == nullptr) return false;
    local_.gather(offset, payload, packet.length);
    qp->wire_mark = route.link->requests_out.send(packet);
  }
  counters_->add(Counter::port_xmit_packets, fetches(kind) ? 1 : packet.packets);
  counters_->add(Counter::port_xmit_data, packet.length);
  advance(qp, message, length);
  if (!qp->running()) start_ack_timer(qp, now_ns);
  return true;
}

// A datagram is done once it has left; nobody tells what becomes of it (9.8.3).
bool Requester::send_datagram(QueuePair* qp, const Message& message, uint64_t now_ns) {
  const Route route = routes_->route_to(request_.datagram_qp, now_ns);
  if (route.state == Route::State::pending) return false;
  Packet packet;
  packet.kind = PacketKind::datagram;
  packet.first = packet.last = true;
  packet.immediate = has_immediate(message.opcode);
  packet.immediate_data = packet.immediate ? request_.immediate : 0;
  packet.solicited = request_.solicited;
  packet.global = request_.global;
  packet.to = request_.datagram_qp;
  packet.from = qp->number();
  packet.psn = message.psn;
  packet.packets = 1;
  packet.length = packet.remaining = message.bytes;
  // A Q_Key with its top bit set stands for the queue pair's own (10.2.5).
  packet.key =
      (request_.datagram_key & 0x80000000) != 0 ? qp->attributes().qkey : request_.datagram_key;
  packet.service_level = request_.service_level;
  const uint32_t fault = faults_->strikes(FaultKind::drop_request, qp->number());
  if (fault != 0) {
    counters_->add(Counter::port_xmit_discards);
    faults_->log().add({FaultKind::drop_request, fault, qp->number(), 0, now_ns, now_ns, 1});
  } else if (route.state == Route::State::up && request_.datagram_lid == kLid) {
    std::byte* payload = route.link->requests_out.reserve(packet.length);
    if (payload == nullptr) return false;
    local_.gather(0, payload, packet.length);
    route.link->requests_out.send(packet);
  }
  counters_->add(Counter::port_xmit_packets);
  counters_->add(Counter::port_xmit_data, packet.length);
  qp->window.current = 1;
  complete_oldest(qp);
  return true;
}

void Requester::start_ack_timer(QueuePair* qp, uint64_t now_ns) {
  const uint64_t timeout = ack_timeout_ns(qp->attributes().timeout);
  if (timeout != 0) timers_->start(qp, now_ns + timeout);
}

void Requester::complete_oldest(QueuePair* qp) {
  const Message done = qp->window.oldest();
  qp->window.pop();
  qp->send_queue.advance(done.blocks);
  completions_->send_done(*qp, done);
}

// Progress gives all attempts back and starts the timer anew (9.7.6.1.3).
void Requester::progressed(QueuePair* qp, uint64_t now_ns) {
  qp->renew_attempts();
  if (qp->dropped_ns != 0 &&
      (qp->window.empty() || psn_distance(qp->window.oldest().psn, qp->dropped_psn) > 0)) {
    faults_->log().add({FaultKind::drop_request, qp->dropped_fault, qp->number(), 0, qp->dropped_ns,
                        now_ns, qp->dropped_count});
    qp->dropped_ns = 0;
  }
  if (qp->receiver_not_ready) return;
  timers_->stop(qp);
  if (qp->window.any_sent()) start_ack_timer(qp, now_ns);
}

// Everything up to `psn` has arrived. Data that should have come before that has been lost: an
// implied NAK (9.7.5.1.1), and false.
bool Requester::acknowledge(QueuePair* qp, uint32_t psn, uint64_t now_ns) {
  bool any = false;
  bool complete = true;
  while (!qp->window.empty() && psn_distance(psn, qp->window.oldest().last_psn()) >= 0) {
    const Message& oldest = qp->window.oldest();
    if (oldest.awaits_data) {
      counters_->add(Counter::implied_nak_seq_err);
      go_back(qp, oldest.psn + oldest.answered);
      complete = false;
      break;
    }
    complete_oldest(qp);
    any = true;
  }
  if (complete && !qp->window.empty() && !qp->window.oldest().awaits_data) {
    Message& oldest = qp->window.oldest();
    const int32_t arrived = psn_distance(psn, oldest.psn) + 1;
    if (arrived > static_cast<int32_t>(oldest.answered)) {
      oldest.answered = static_cast<uint32_t>(arrived);
      any = true;
    }
  }
  if (any) progressed(qp, now_ns);
  return complete;
}

// Sends again from `psn` on.
void Requester::go_back(QueuePair* qp, uint32_t psn) {
  Window& window = qp->window;
  for (uint32_t i = 0; i < window.count() && i <= window.current; ++i) {
    const Message& message = window.at(i);
    if (psn_distance(psn, message.last_psn()) > 0) continue;
    const auto skipped = static_cast<uint32_t>(std::max(0, psn_distance(psn, message.psn)));
    const auto offset = static_cast<uint32_t>(skipped * mtu_of(*qp));
    if (i == window.current && offset >= window.offset) return;  // it comes anyway
    window.current = i;
    window.offset = offset;
    return;
  }
}

void Requester::take_data(QueuePair* qp, const Packet& packet, const std::byte* payload,
                          uint64_t now_ns) {
  const uint32_t first = (packet.psn - packet.packets + 1) & kPsnMask;
  if (!acknowledge(qp, first - 1, now_ns) || qp->window.empty()) return;
  Message& message = qp->window.oldest();
  const int32_t ahead = psn_distance(first, message.psn + message.answered);
  if (!message.awaits_data || ahead < 0) return;  // a duplicate
  if (ahead > 0) {
    counters_->add(Counter::implied_nak_seq_err);
    go_back(qp, message.psn + message.answered);
    return;
  }
  qp->send_queue.decode(message.counter, message.blocks, false, &request_);
  WorkError error;
  if (!check(*qp, &error)) {
    fail(qp, error);
    return;
  }
  const uint64_t offset = message.answered * mtu_of(*qp);
  if (packet.kind == PacketKind::atomic_response) {
    local_.scatter(0, reinterpret_cast<const std::byte*>(&packet.operand), kAtomicBytes);
  } else {
    local_.scatter(offset, payload,
                   std::min<uint64_t>(packet.length,
                                      message.bytes - std::min<uint64_t>(message.bytes, offset)));
  }
  message.answered += packet.packets;
  if (message.answered >= message.packets) {
    message.awaits_data = false;
    --qp->awaiting_data;
    complete_oldest(qp);
  }
  progressed(qp, now_ns);
}

void Requester::take_nak(QueuePair* qp, const Packet& packet, uint64_t now_ns) {
  if (!acknowledge(qp, packet.psn - 1, now_ns) || qp->window.empty()) return;
  switch (packet.nak) {
    case Nak::receiver_not_ready:
      counters_->add(Counter::rnr_nak_retry_err);
      if (qp->attempts.receiver_not_ready == 0) {
        return fail(qp, send_error(MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR, kVendorRnrRetryExceeded));
      }
      if (qp->attempts.receiver_not_ready != kRetryForEver) --qp->attempts.receiver_not_ready;
      go_back(qp, packet.psn);
      qp->receiver_not_ready = true;
      // From now, not from when the round began: never too short.
      timers_->start(qp, soft_hca::now_ns() + uint64_t{kRnrTimer[packet.rnr_timer & 31]} * 10'000);
      return;
    case Nak::sequence_error:
      counters_->add(Counter::packet_seq_err);
      if (qp->attempts.transport == 0) {
        return fail(qp,
                    send_error(MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, kVendorRetryExceeded));
      }
      --qp->attempts.transport;
      go_back(qp, packet.psn);
      if (!qp->receiver_not_ready) timers_->stop(qp);
      return;
    case Nak::invalid_request:
      counters_->add(Counter::req_remote_invalid_request);
      return fail(qp,
                  send_error(MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, kVendorRemoteInvalidRequest));
    case Nak::remote_access_error:
      counters_->add(Counter::req_remote_access_errors);
      return fail(qp, send_error(MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, kVendorRemoteAccess));
    case Nak::remote_operation_error:
      return fail(qp, send_error(MLX5_CQE_SYNDROME_REMOTE_OP_ERR, kVendorRemoteOperation));
  }
}

void Requester::take_response(QueuePair* qp, const Packet& packet, const std::byte* payload,
                              uint64_t now_ns) {
  if (qp->state() != IBV_QPS_RTS || packet.from != qp->attributes().dest_qp_num) return;
  counters_->add(Counter::port_rcv_packets,
                 packet.kind == PacketKind::read_response ? packet.packets : 1);
  counters_->add(Counter::port_rcv_data, packet.length);
  if (qp->window.empty()) return;
  // Of an earlier time, or about what was never sent (9.7.5.1.4: a "ghost" acknowledgement).
  if (psn_distance(packet.psn, qp->window.oldest().psn) < 0 ||
      psn_distance(packet.psn, qp->send_psn()) >= 0) {
    return;
  }
  switch (packet.kind) {
    case PacketKind::ack:
      acknowledge(qp, packet.psn, now_ns);
      return;
    case PacketKind::nak:
      take_nak(qp, packet, now_ns);
      return;
    case PacketKind::read_response:
    case PacketKind::atomic_response:
      take_data(qp, packet, payload, now_ns);
      return;
    default:
      return;
  }
}

// An adapter always takes its packets at once. Here the other end is a thread, and it may have to
// wait for a CPU longer than a timeout: its packets are not lost.
bool Requester::still_on_the_wire(const QueuePair& qp, uint64_t now_ns) {
  const Route route = routes_->route_to(qp.attributes().dest_qp_num, now_ns);
  if (route.state == Route::State::pending) return true;
  return route.state == Route::State::up && !route.link->requests_out.receiver_paused() &&
         !route.link->requests_out.taken(qp.wire_mark);
}

void Requester::time_out(QueuePair* qp, uint64_t now_ns) {
  if (qp->state() != IBV_QPS_RTS) return;
  if (qp->receiver_not_ready) {
    qp->receiver_not_ready = false;
    return;
  }
  if (!qp->window.any_sent()) return;
  if (still_on_the_wire(*qp, now_ns)) {
    timers_->start(qp, now_ns + kWireGraceNs);
    return;
  }
  counters_->add(Counter::local_ack_timeout_err);
  if (qp->attempts.transport == 0) {
    fail(qp, send_error(MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, kVendorRetryExceeded));
    return;
  }
  --qp->attempts.transport;
  const Message& oldest = qp->window.oldest();
  go_back(qp, oldest.psn + oldest.answered);
}

}  // namespace pollgap::soft_hca
