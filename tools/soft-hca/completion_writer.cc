// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/completion_writer.h"

#include <endian.h>

#include <cstring>

#include "tools/soft-hca/clock.h"
#include "tools/soft-hca/vendor_errors.h"

namespace pollgap::soft_hca {
namespace {

// The "timestamp" of a CQE counts the adapter's clock, which is CLOCK_MONOTONIC (hca_core_clock in
// the answer to QUERY_DEVICE is 1 GHz).
mlx5_cqe64 base_cqe(const QueuePair& qp, uint16_t counter) {
  mlx5_cqe64 cqe{};
  cqe.srqn_uidx = htobe32(qp.config().cqe_index);
  cqe.sop_drop_qpn = htobe32(qp.number());
  cqe.wqe_counter = htobe16(counter);
  cqe.timestamp = htobe64(now_ns());
  return cqe;
}

// An error CQE (struct mlx5_err_cqe) shares its layout with others but for the two syndromes, which
// lie in the timestamp.
mlx5_cqe64 error_cqe(const QueuePair& qp, uint16_t counter, uint8_t opcode, uint8_t syndrome,
                     uint8_t vendor) {
  mlx5_err_cqe error{};
  error.srqn = htobe32(qp.config().cqe_index);
  error.s_wqe_opcode_qpn = htobe32(uint32_t{opcode} << 24 | qp.number());
  error.wqe_counter = htobe16(counter);
  error.syndrome = syndrome;
  error.vendor_err_synd = vendor;
  mlx5_cqe64 cqe{};
  static_assert(sizeof(cqe) == sizeof(error));
  std::memcpy(static_cast<void*>(&cqe), &error, sizeof(cqe));
  return cqe;
}

}  // namespace

void CompletionWriter::send_done(const QueuePair& qp, const SendRequest& request) {
  if (!request.signaled) return;
  mlx5_cqe64 cqe = base_cqe(qp, request.counter);
  cqe.sop_drop_qpn = htobe32(uint32_t{request.opcode} << 24 | qp.number());
  cqe.byte_cnt = htobe32(static_cast<uint32_t>(request.segments.bytes));
  CompletionQueue* queue = qp.config().send_cq;
  queue->append(cqe, MLX5_CQE_REQ, /*solicited=*/false);
  publish(queue);
}

void CompletionWriter::receive_done(const QueuePair& qp, const QueuePair& requester, uint8_t opcode,
                                    const SendRequest& request) {
  mlx5_cqe64 cqe = base_cqe(qp, qp.receive_queue.consumer());
  cqe.byte_cnt = htobe32(static_cast<uint32_t>(request.segments.bytes));
  cqe.flags_rqpn = htobe32(requester.number());
  cqe.imm_inval_pkey = request.immediate;
  CompletionQueue* queue = qp.config().receive_cq;
  queue->append(cqe, opcode, request.solicited);
  publish(queue);
}

// Error completions always ask for an event (InfiniBand specification volume 1, 11.4.2.2: a
// solicited-only request is also met by an unsuccessful completion).
uint32_t CompletionWriter::flush_sends(QueuePair* qp, const WorkError& error) {
  SendQueue& sends = qp->send_queue;
  uint32_t written = 0;
  bool use_error = error.on == WorkError::On::send;
  if (sends.capacity() == 0) return 0;
  for (const uint16_t producer = sends.producer(); sends.consumer() != producer; ++written) {
    uint8_t opcode = 0;
    const auto available = static_cast<uint16_t>(producer - sends.consumer());
    const uint32_t blocks = sends.blocks_at(sends.consumer(), available, &opcode);
    const uint8_t syndrome = use_error ? error.syndrome : uint8_t{MLX5_CQE_SYNDROME_WR_FLUSH_ERR};
    const uint8_t vendor = use_error ? error.vendor : kVendorFlushed;
    qp->config().send_cq->append(error_cqe(*qp, sends.consumer(), opcode, syndrome, vendor),
                                 MLX5_CQE_REQ_ERR, /*solicited=*/true);
    sends.advance(blocks);
    use_error = false;
  }
  return written;
}

uint32_t CompletionWriter::flush_receives(QueuePair* qp, const WorkError& error) {
  ReceiveQueue& receives = qp->receive_queue;
  uint32_t written = 0;
  bool use_error = error.on == WorkError::On::receive;
  for (; !receives.empty(); ++written) {
    const uint8_t syndrome = use_error ? error.syndrome : uint8_t{MLX5_CQE_SYNDROME_WR_FLUSH_ERR};
    const uint8_t vendor = use_error ? error.vendor : kVendorFlushed;
    qp->config().receive_cq->append(error_cqe(*qp, receives.consumer(), 0, syndrome, vendor),
                                    MLX5_CQE_RESP_ERR, /*solicited=*/true);
    receives.advance();
    use_error = false;
  }
  return written;
}

uint32_t CompletionWriter::flush(QueuePair* qp) {
  const WorkError error = qp->take_pending_error();
  const uint32_t written = flush_sends(qp, error) + flush_receives(qp, error);
  qp->doorbells.clear();
  if (written != 0) {
    publish(qp->config().send_cq);
    publish(qp->config().receive_cq);
  }
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
  const ReceiveQueue& receives = qp.receive_queue;
  if (!receives.empty()) {
    count += static_cast<uint16_t>(receives.producer() - receives.consumer());
  }
  return count;
}

}  // namespace pollgap::soft_hca
