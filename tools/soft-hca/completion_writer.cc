// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/completion_writer.h"

#include <endian.h>

#include <algorithm>
#include <cstring>

#include "tools/soft-hca/adapter_identity.h"
#include "tools/soft-hca/clock.h"
#include "tools/soft-hca/vendor_errors.h"

namespace pollgap::soft_hca {
namespace {

// The "timestamp" of a CQE counts the adapter's clock, which is CLOCK_MONOTONIC (hca_core_clock in
// the answer to QUERY_DEVICE is 1 GHz).
mlx5_cqe64 base_cqe(const QueuePair& qp, uint32_t resource, uint16_t counter) {
  mlx5_cqe64 cqe{};
  cqe.srqn_uidx = htobe32(resource);
  cqe.sop_drop_qpn = htobe32(qp.number());
  cqe.wqe_counter = htobe16(counter);
  cqe.timestamp = htobe64(now_ns());
  return cqe;
}

// An error CQE (struct mlx5_err_cqe) shares its layout with others but for the two syndromes, which
// lie in the timestamp.
mlx5_cqe64 error_cqe(const QueuePair& qp, uint32_t resource, uint16_t counter, uint8_t opcode,
                     const WorkError& error) {
  mlx5_err_cqe fields{};
  fields.srqn = htobe32(resource);
  fields.s_wqe_opcode_qpn = htobe32(uint32_t{opcode} << 24 | qp.number());
  fields.wqe_counter = htobe16(counter);
  fields.syndrome = error.syndrome;
  fields.vendor_err_synd = error.vendor;
  mlx5_cqe64 cqe{};
  static_assert(sizeof(cqe) == sizeof(fields));
  std::memcpy(static_cast<void*>(&cqe), &fields, sizeof(cqe));
  return cqe;
}

constexpr WorkError flushed(WorkError::On on) {
  return {on, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, kVendorFlushed};
}

// A datagram's data follow room for the global route header (InfiniBand specification volume 1,
// 11.4.1.2).
constexpr uint32_t kGrhBytes = 40;

}  // namespace

void CompletionWriter::write(CompletionQueue* queue, const QueuePair& qp, const mlx5_cqe64& cqe,
                             uint8_t opcode, bool solicited) {
  const uint64_t now = now_ns();
  uint32_t fault = 0;
  uint64_t release = faults_->release_ns(qp.number(), queue->number(), now, &fault);
  // Behind one that is held it must wait, even if that is due already.
  const uint64_t before = queue->has_held() ? queue->last_release_ns(qp.number()) : 0;
  release = std::max(release, before);
  if (release > now || before != 0) {
    queue->hold({cqe, opcode, solicited, qp.number(), fault, now, release});
    return;
  }
  queue->append(cqe, opcode, solicited);
  queue->publish();
}

void CompletionWriter::send_done(const QueuePair& qp, const Message& message) {
  if (!message.signaled) return;
  mlx5_cqe64 cqe = base_cqe(qp, qp.config().cqe_index, message.counter);
  cqe.sop_drop_qpn = htobe32(uint32_t{message.opcode} << 24 | qp.number());
  cqe.byte_cnt = htobe32(message.bytes);
  write(qp.config().send_cq, qp, cqe, MLX5_CQE_REQ, /*solicited=*/false);
}

void CompletionWriter::receive_done(const QueuePair& qp, uint8_t opcode, const Packet& packet,
                                    uint32_t bytes) {
  const bool datagram = packet.kind == PacketKind::datagram;
  mlx5_cqe64 cqe = base_cqe(qp, qp.config().receive_cqe_index, qp.arrival.index);
  cqe.byte_cnt = htobe32(bytes + (datagram ? kGrhBytes : 0));
  cqe.flags_rqpn =
      htobe32((packet.global ? 1u << 28 : 0) | packet.service_level << 24 | packet.from);
  if (datagram) cqe.slid = htobe16(kLid);
  cqe.imm_inval_pkey = packet.immediate_data;
  write(qp.config().receive_cq, qp, cqe, opcode, packet.solicited);
}

// Error completions always ask for an event (InfiniBand specification volume 1, 11.4.2.2: a
// solicited-only request is also met by an unsuccessful completion).
uint32_t CompletionWriter::flush_sends(QueuePair* qp, const WorkError& error) {
  SendQueue& sends = qp->send_queue;
  uint32_t written = 0;
  if (sends.capacity() == 0) return 0;
  for (const uint16_t producer = sends.producer(); sends.consumer() != producer; ++written) {
    uint8_t opcode = 0;
    const auto available = static_cast<uint16_t>(producer - sends.consumer());
    const uint32_t blocks = sends.blocks_at(sends.consumer(), available, &opcode);
    const bool first_error = written == 0 && error.on == WorkError::On::send;
    const mlx5_cqe64 cqe = error_cqe(*qp, qp->config().cqe_index, sends.consumer(), opcode,
                                     first_error ? error : flushed(WorkError::On::send));
    qp->config().send_cq->append(cqe, MLX5_CQE_REQ_ERR, /*solicited=*/true);
    counters_->add(Counter::req_cqe_error);
    if (!first_error) counters_->add(Counter::req_cqe_flush_error);
    sends.advance(blocks);
  }
  return written;
}

void CompletionWriter::flush_receive(const QueuePair& qp, uint16_t counter,
                                     const WorkError& error) {
  const mlx5_cqe64 cqe = error_cqe(qp, qp.config().receive_cqe_index, counter, 0, error);
  qp.config().receive_cq->append(cqe, MLX5_CQE_RESP_ERR, /*solicited=*/true);
  counters_->add(Counter::resp_cqe_error);
  if (error.syndrome == MLX5_CQE_SYNDROME_WR_FLUSH_ERR) {
    counters_->add(Counter::resp_cqe_flush_error);
  }
}

// Of a shared receive queue only the receive that a message had begun to fill is flushed.
uint32_t CompletionWriter::flush_receives(QueuePair* qp, const WorkError& error) {
  const bool has_error = error.on == WorkError::On::receive;
  if (qp->config().srq != nullptr) {
    if (!qp->arrival.active) return 0;
    flush_receive(*qp, qp->arrival.index, has_error ? error : flushed(WorkError::On::receive));
    qp->end_receive();
    return 1;
  }
  ReceiveQueue& receives = qp->receive_queue;
  uint32_t written = 0;
  qp->arrival = {};
  for (; !receives.empty(); ++written, receives.advance()) {
    flush_receive(*qp, receives.consumer(),
                  written == 0 && has_error ? error : flushed(WorkError::On::receive));
  }
  return written;
}

uint64_t CompletionWriter::held_until_ns(const QueuePair& qp) const {
  const QueuePair::Config& config = qp.config();
  uint64_t until = 0;
  for (CompletionQueue* queue : {config.send_cq, config.receive_cq}) {
    until = std::max(until, faults_->held_until_ns(qp.number(), queue->number()));
    if (queue->has_held()) until = std::max(until, queue->last_release_ns(qp.number()));
  }
  return until;
}

bool CompletionWriter::has_held(const QueuePair& qp) {
  const QueuePair::Config& config = qp.config();
  return config.send_cq->last_release_ns(qp.number()) != 0 ||
         config.receive_cq->last_release_ns(qp.number()) != 0;
}

uint32_t CompletionWriter::flush(QueuePair* qp, uint64_t time_ns) {
  if (held_until_ns(*qp) > time_ns || has_held(*qp)) return 0;
  const WorkError error = qp->take_pending_error();
  const uint32_t written = flush_sends(qp, error) + flush_receives(qp, error);
  qp->doorbells.clear();
  return written;
}

uint32_t CompletionWriter::count_unfinished(const QueuePair& qp) {
  uint32_t count = 0;
  const SendQueue& sends = qp.send_queue;
  if (sends.capacity() != 0) {
    const uint16_t producer = sends.producer();
    uint16_t at = sends.consumer();
    for (uint8_t opcode = 0; at != producer; ++count) {
      const auto available = static_cast<uint16_t>(producer - at);
      at = static_cast<uint16_t>(at + sends.blocks_at(at, available, &opcode));
    }
  }
  if (qp.config().srq != nullptr) return count + (qp.arrival.active ? 1 : 0);
  const ReceiveQueue& receives = qp.receive_queue;
  if (!receives.empty()) {
    count += static_cast<uint16_t>(receives.producer() - receives.consumer());
  }
  return count;
}

}  // namespace pollgap::soft_hca
