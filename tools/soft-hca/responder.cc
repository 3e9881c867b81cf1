// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/responder.h"

#include <atomic>
#include <cstring>

#include "tools/soft-hca/program_memory.h"
#include "tools/soft-hca/vendor_errors.h"

namespace pollgap::soft_hca {
namespace {

constexpr uint32_t kGrhBytes = 40;
constexpr uint32_t kAtomicBytes = 8;
constexpr uint32_t kAnyAtomic = IBV_ACCESS_REMOTE_ATOMIC;

WorkError receive_error(uint8_t syndrome, uint8_t vendor) {
  return {WorkError::On::receive, syndrome, vendor};
}

}  // namespace

void Responder::respond(Packet* response) {
  response->to = qp_->attributes().dest_qp_num;
  response->from = qp_->number();
  counters_->add(Counter::port_xmit_packets,
                 response->kind == PacketKind::read_response ? response->packets : 1);
  counters_->add(Counter::port_xmit_data, response->length);
  const uint32_t fault = faults_->strikes(FaultKind::drop_response, qp_->number());
  if (fault != 0) {
    counters_->add(Counter::port_xmit_discards);
    faults_->log().add({FaultKind::drop_response, fault, qp_->number(), 0, now_ns_, now_ns_, 1});
    return;
  }
  // There is room: the device checked. A read has reserved, and filled, its part already.
  if (response->length == 0 && link_->responses_out.reserve(0) == nullptr) return;
  link_->responses_out.send(*response);
}

void Responder::acknowledge(uint32_t psn) {
  Packet response;
  response.kind = PacketKind::ack;
  response.psn = psn & kPsnMask;
  respond(&response);
}

void Responder::refuse(const Packet& packet, Nak why) {
  Packet response;
  response.kind = PacketKind::nak;
  response.nak = why;
  response.psn = why == Nak::sequence_error ? qp_->receive_psn() : packet.psn;
  response.rnr_timer = qp_->attributes().min_rnr_timer;
  qp_->complained = true;
  respond(&response);
}

// An error of a receive: the queue pair fails, and both ends learn of it (9.9.3).
void Responder::fail_receive(const WorkError& error) {
  requester_->abandon(qp_);
  qp_->fail(error);
  completions_->flush(qp_, now_ns_);
}

// A request that may not be: both ends go to the error state; the responder, which has no work
// request to report it with, gets an asynchronous event (9.9.3, 11.6.3.2).
void Responder::deny(const Packet& packet, Nak why) {
  refuse(packet, why);
  fail_receive({});
  counters_->add(Counter::resp_remote_access_errors);
  qp_->post_async_event(why == Nak::remote_access_error ? IBV_EVENT_QP_ACCESS_ERR
                                                        : IBV_EVENT_QP_REQ_ERR);
}

// The queue pair must permit the operation as well as the memory region (10.6.3.4).
std::byte* Responder::remote_memory(const Packet& packet, uint64_t length, uint32_t access) {
  if ((qp_->attributes().qp_access_flags & access) == 0) return nullptr;
  return memory_->translate(packet.key, packet.address, length, qp_->config().pd, access);
}

// Finds the receive that a message fills; without one the requester is told to wait (9.7.5.2.8).
bool Responder::find_receive(const Packet& packet) {
  const bool ready =
      (qp_->arrival.active || faults_->strikes(FaultKind::rnr, qp_->number()) == 0) &&
      qp_->begin_receive();
  if (ready) return true;
  counters_->add(Counter::out_of_buffer);
  refuse(packet, Nak::receiver_not_ready);
  return false;
}

bool Responder::receive(const Packet& packet, const std::byte* payload) {
  if (!find_receive(packet)) return false;
  const uint32_t so_far = qp_->arrival.bytes;
  qp_->decode_receive(&scatter_);
  if (uint64_t{so_far} + packet.remaining > scatter_.bytes) {
    counters_->add(Counter::resp_local_length_error);
    refuse(packet, Nak::invalid_request);
    fail_receive(receive_error(MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, kVendorLocalOperation));
    return false;
  }
  if (!pieces_.resolve(
          *memory_,
          qp_->config().srq != nullptr ? qp_->config().srq->config().pd : qp_->config().pd,
          scatter_, IBV_ACCESS_LOCAL_WRITE)) {
    refuse(packet, Nak::remote_operation_error);
    fail_receive(receive_error(MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, kVendorLocalProtection));
    return false;
  }
  pieces_.scatter(so_far, payload, packet.length);
  qp_->arrival.bytes += packet.length;
  if (packet.last) {
    completions_->receive_done(*qp_, packet.immediate ? MLX5_CQE_RESP_SEND_IMM : MLX5_CQE_RESP_SEND,
                               packet, qp_->arrival.bytes);
    qp_->end_receive();
  }
  return true;
}

// `arrival.bytes` is not used: a write with immediate data takes a receive but does not fill it,
// and its length is that of the whole message, whose start the last packet does not tell.
bool Responder::write(const Packet& packet, const std::byte* payload) {
  if (packet.first) qp_->write_bytes = packet.remaining;
  if (packet.immediate && !find_receive(packet)) return false;
  if (packet.remaining != 0) {  // the key of an empty write is not looked at (9.7.4.1.7)
    std::byte* target = remote_memory(packet, packet.remaining, IBV_ACCESS_REMOTE_WRITE);
    if (target == nullptr) {
      deny(packet, Nak::remote_access_error);
      return false;
    }
    copy_in_order(target, payload, packet.length);
  }
  if (packet.last) counters_->add(Counter::rx_write_requests);
  if (packet.immediate) {
    completions_->receive_done(*qp_, MLX5_CQE_RESP_WR_IMM, packet, qp_->write_bytes);
    qp_->end_receive();
  }
  return true;
}

bool Responder::read(const Packet& packet) {
  Packet response;
  response.kind = PacketKind::read_response;
  response.psn = (packet.psn + packet.packets - 1) & kPsnMask;
  response.packets = packet.packets;
  response.length = packet.remaining;
  if (packet.remaining > kRecordBytes) return false;
  std::byte* room = link_->responses_out.reserve(response.length);
  if (room == nullptr) return false;
  if (response.length != 0) {
    const std::byte* source = remote_memory(packet, packet.operand, IBV_ACCESS_REMOTE_READ);
    if (source == nullptr) {
      deny(packet, Nak::remote_access_error);
      return false;
    }
    std::memcpy(room, source, response.length);
  }
  respond(&response);
  return true;
}

// Atomic with regard to everything else, the program's own accesses included: IBV_ATOMIC_GLOB is
// more than mlx5 promises.
bool Responder::atomic(const Packet& packet) {
  if (packet.address % kAtomicBytes != 0) {
    deny(packet, Nak::invalid_request);
    return false;
  }
  std::byte* target = remote_memory(packet, kAtomicBytes, kAnyAtomic);
  if (target == nullptr) {
    deny(packet, Nak::remote_access_error);
    return false;
  }
  const std::atomic_ref<uint64_t> word(*reinterpret_cast<uint64_t*>(target));
  uint64_t old = 0;
  if (packet.kind == PacketKind::fetch_add) {
    old = word.fetch_add(packet.operand);
  } else {
    old = packet.compare;
    word.compare_exchange_strong(old, packet.operand);
  }
  qp_->atomic_results[qp_->next_atomic_result++ % qp_->atomic_results.size()] = {true, packet.psn,
                                                                                 old};
  counters_->add(Counter::rx_atomic_requests);
  Packet response;
  response.kind = PacketKind::atomic_response;
  response.psn = packet.psn;
  response.packets = 1;
  response.operand = old;
  respond(&response);
  return true;
}

// The packet that is expected.
void Responder::carry_out(const Packet& packet, const std::byte* payload) {
  qp_->complained = false;
  bool done = false;
  switch (packet.kind) {
    case PacketKind::send:
      done = receive(packet, payload);
      break;
    case PacketKind::write:
      done = write(packet, payload);
      break;
    case PacketKind::read:
      done = read(packet);
      if (done && packet.last) counters_->add(Counter::rx_read_requests);
      break;
    case PacketKind::compare_swap:
    case PacketKind::fetch_add:
      done = atomic(packet);
      break;
    default:
      return;
  }
  if (!done) return;
  qp_->advance_receive_psn(packet.packets);
  const bool answered = packet.kind != PacketKind::send && packet.kind != PacketKind::write;
  if (!answered && packet.wants_ack) acknowledge(packet.psn + packet.packets - 1);
}

// A request that has been carried out, and whose answer was lost: a read is read again, an atomic
// operation must not be done again (9.4.5, 9.7.1).
void Responder::answer_again(const Packet& packet) {
  counters_->add(Counter::duplicate_request);
  if (packet.kind == PacketKind::read) {
    read(packet);
    return;
  }
  if (packet.kind == PacketKind::send || packet.kind == PacketKind::write) {
    acknowledge(qp_->receive_psn() - 1);
    return;
  }
  for (const QueuePair::AtomicResult& result : qp_->atomic_results) {
    if (!result.valid || result.psn != packet.psn) continue;
    Packet response;
    response.kind = PacketKind::atomic_response;
    response.psn = packet.psn;
    response.packets = 1;
    response.operand = result.value;
    respond(&response);
    return;
  }
}

// Without a receive, with another Q_Key, or into too short a receive a datagram is dropped, or the
// receive fails (9.8.2.2, 9.8.3).
void Responder::take_datagram(QueuePair* qp, const Packet& packet, const std::byte* payload) {
  if (packet.key != qp->attributes().qkey) return;
  if (!qp->begin_receive()) {
    counters_->add(Counter::out_of_buffer);
    return;
  }
  qp->decode_receive(&scatter_);
  const uint32_t pd = qp->config().srq != nullptr ? qp->config().srq->config().pd : qp->config().pd;
  if (uint64_t{kGrhBytes} + packet.length > scatter_.bytes) {
    counters_->add(Counter::resp_local_length_error);
    fail_receive(receive_error(MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, kVendorLocalOperation));
    return;
  }
  if (!pieces_.resolve(*memory_, pd, scatter_, IBV_ACCESS_LOCAL_WRITE)) {
    fail_receive(receive_error(MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, kVendorLocalProtection));
    return;
  }
  pieces_.scatter(kGrhBytes, payload, packet.length);
  completions_->receive_done(*qp, packet.immediate ? MLX5_CQE_RESP_SEND_IMM : MLX5_CQE_RESP_SEND,
                             packet, packet.length);
  qp->end_receive();
}

// A queue pair that is not ready to receive, or that is connected elsewhere, drops what it gets
// (9.7.1, 9.9): the requester hears nothing.
void Responder::take_request(QueuePair* qp, Link* link, const Packet& packet,
                             const std::byte* payload, uint64_t now_ns) {
  if (qp->state() != IBV_QPS_RTR && qp->state() != IBV_QPS_RTS) return;
  const bool datagram = packet.kind == PacketKind::datagram;
  if (datagram != qp->datagrams()) return;
  if (!datagram && packet.from != qp->attributes().dest_qp_num) return;
  qp_ = qp;
  link_ = link;
  now_ns_ = now_ns;
  counters_->add(Counter::port_rcv_packets, packet.kind == PacketKind::read ? 1 : packet.packets);
  counters_->add(Counter::port_rcv_data, packet.length);
  if (datagram) {
    take_datagram(qp, packet, payload);
    return;
  }
  const int32_t ahead = psn_distance(packet.psn, qp->receive_psn());
  if (ahead == 0) {
    carry_out(packet, payload);
  } else if (ahead < 0) {
    answer_again(packet);
  } else if (!qp->complained) {
    counters_->add(Counter::out_of_sequence);
    refuse(packet, Nak::sequence_error);
  }
}

}  // namespace pollgap::soft_hca
