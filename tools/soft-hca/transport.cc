// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/transport.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "tools/soft-hca/adapter_identity.h"
#include "tools/soft-hca/clock.h"
#include "tools/soft-hca/program_memory.h"
#include "tools/soft-hca/vendor_errors.h"

namespace pollgap::soft_hca {
namespace {

constexpr uint8_t kRetryForEver = 7;  // of rnr_retry (11.2.5.2)
constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

// The RNR NAK timer field (table 45 of the specification), in units of 10 us.
constexpr uint32_t kRnrTimer[32] = {65536, 1,    2,    3,     4,     6,     8,     12,
                                    16,    24,   32,   48,    64,    96,    128,   192,
                                    256,   384,  512,  768,   1024,  1536,  2048,  3072,
                                    4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};

// ACK timeout: 4.096 us times two to the timeout field (9.7.6.1.3); 0 means no timeout.
uint64_t ack_timeout_ns(uint8_t timeout) {
  return timeout == 0 ? kNever : uint64_t{4096} << timeout;
}

bool is_send(uint8_t opcode) {
  return opcode == MLX5_OPCODE_SEND || opcode == MLX5_OPCODE_SEND_IMM;
}

bool is_write(uint8_t opcode) {
  return opcode == MLX5_OPCODE_RDMA_WRITE || opcode == MLX5_OPCODE_RDMA_WRITE_IMM;
}

uint32_t packets(uint64_t bytes, uint8_t path_mtu) {
  const uint64_t mtu = uint64_t{128} << path_mtu;  // IBV_MTU_256 is 1
  return std::max<uint32_t>(1, static_cast<uint32_t>((bytes + mtu - 1) / mtu));
}

// How much is copied at a time: some 10 us worth.
constexpr uint64_t kPartBytes = 64 << 10;

// A place in a list of pieces of memory, which has more bytes than it is advanced by.
template <typename Piece>
class Cursor {
 public:
  Cursor(std::span<const Piece> pieces, uint64_t offset) : pieces_(pieces) { advance(offset); }

  std::byte* data() const { return pieces_[index_].data + offset_; }
  uint64_t contiguous() const { return pieces_[index_].length - offset_; }
  void advance(uint64_t bytes) {
    offset_ += bytes;
    while (index_ < pieces_.size() && offset_ >= pieces_[index_].length) {
      offset_ -= pieces_[index_++].length;
    }
  }

 private:
  std::span<const Piece> pieces_;
  size_t index_ = 0;
  uint64_t offset_ = 0;
};

// A program may poll the last byte of a buffer to learn that a message is there: it comes last.
void copy_in_order(std::byte* to, const std::byte* from, uint64_t length) {
  if (length == 0) return;
  std::memmove(to, from, length - 1);
  std::atomic_ref<std::byte>(to[length - 1]).store(from[length - 1], std::memory_order_release);
}

}  // namespace

// Moves the next part of the message, and returns whether that was the last. All has been checked
// anew before each part, so that neither a queue nor a region can vanish under it.
bool Transport::transfer(QueuePair* qp, std::span<const Piece> to, std::span<const Piece> from) {
  const uint64_t end = std::min(qp->transferred + kPartBytes, request_.segments.bytes);
  Cursor source(from, qp->transferred);
  Cursor target(to, qp->transferred);
  while (qp->transferred < end) {
    const uint64_t length =
        std::min({source.contiguous(), target.contiguous(), end - qp->transferred});
    copy_in_order(target.data(), source.data(), length);
    source.advance(length);
    target.advance(length);
    qp->transferred += length;
  }
  return end == request_.segments.bytes;
}

// A queue pair that is not ready to receive, that is connected elsewhere, or that expects another
// packet drops what it gets (9.7.1, 9.9): the requester hears nothing.
QueuePair* Transport::answering_peer(const QueuePair& qp) {
  QueuePair* peer = peers_->find(qp.attributes().dest_qp_num);
  if (peer == nullptr) return nullptr;
  if (peer->state() != IBV_QPS_RTR && peer->state() != IBV_QPS_RTS) return nullptr;
  if (peer->attributes().dest_qp_num != qp.number()) return nullptr;
  return peer->receive_psn() == qp.send_psn() ? peer : nullptr;
}

bool Transport::retransmit(QueuePair* qp) {
  QueuePair::Attempts& attempts = qp->attempts();
  const uint64_t timeout = ack_timeout_ns(qp->attributes().timeout);
  if (attempts.next_ns != 0 && attempts.transport-- == 0) {
    fail_send(qp, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, kVendorRetryExceeded);
    return true;
  }
  attempts.next_ns = timeout == kNever ? kNever : now_ns() + timeout;
  return false;
}

bool Transport::receiver_not_ready(QueuePair* qp, const QueuePair& peer) {
  QueuePair::Attempts& attempts = qp->attempts();
  if (attempts.receiver_not_ready == 0) {
    fail_send(qp, MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR, kVendorRnrRetryExceeded);
    return true;
  }
  if (attempts.receiver_not_ready != kRetryForEver) --attempts.receiver_not_ready;
  attempts.next_ns = now_ns() + uint64_t{kRnrTimer[peer.attributes().min_rnr_timer]} * 10'000;
  return false;
}

bool Transport::resolve(const QueuePair& qp, const SegmentList& segments, uint32_t access,
                        Pieces* pieces) {
  pieces->clear();
  for (uint32_t i = 0; i < segments.count; ++i) {
    const Segment& segment = segments.items[i];
    std::byte* data = segment.is_inline
                          ? at_address<std::byte>(segment.address)
                          : memory_->translate(segment.key, segment.address, segment.length,
                                               qp.config().pd, access);
    if (data == nullptr) return false;
    pieces->add({data, segment.length});
  }
  return true;
}

// The queue pair must permit the operation as well as the memory region (10.6.3.4).
std::byte* Transport::remote_memory(const QueuePair& peer, uint32_t access) const {
  if ((peer.attributes().qp_access_flags & access) == 0) return nullptr;
  return memory_->translate(request_.remote_key, request_.remote_address, request_.segments.bytes,
                            peer.config().pd, access);
}

void Transport::fail_send(QueuePair* qp, uint8_t syndrome, uint8_t vendor) {
  if (qp->state() == IBV_QPS_ERR) return;  // its own peer, and flushed already
  qp->fail({WorkError::On::send, syndrome, vendor});
  completions_->flush(qp);
}

void Transport::fail_receive(QueuePair* qp, uint8_t syndrome, uint8_t vendor) {
  qp->fail({WorkError::On::receive, syndrome, vendor});
  completions_->flush(qp);
}

// A remote access error takes both ends to the error state; the responder, which has no work
// request to report it with, gets an asynchronous event (9.9.3, 11.6.3.2).
void Transport::deny_access(QueuePair* qp, QueuePair* peer) {
  peer->fail({});
  completions_->flush(peer);
  peer->post_async_event(IBV_EVENT_QP_ACCESS_ERR);
  fail_send(qp, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, kVendorRemoteAccess);
}

void Transport::complete(QueuePair* qp, QueuePair* peer) {
  const uint32_t count = packets(request_.segments.bytes, qp->attributes().path_mtu);
  peer->advance_receive_psn(count);
  qp->advance_send_psn(count);
  qp->send_queue.advance(request_.blocks);
  qp->transferred = 0;
  qp->renew_attempts();
  completions_->send_done(*qp, request_);
}

bool Transport::send_to(QueuePair* qp, QueuePair* peer) {
  if (peer->receive_queue.empty()) return receiver_not_ready(qp, *peer);
  peer->receive_queue.decode(&scatter_);
  if (request_.segments.bytes > scatter_.bytes) {
    fail_receive(peer, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, kVendorLocalOperation);
    fail_send(qp, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, kVendorRemoteInvalidRequest);
    return true;
  }
  if (!resolve(*peer, scatter_, IBV_ACCESS_LOCAL_WRITE, &receive_)) {
    fail_receive(peer, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, kVendorLocalProtection);
    fail_send(qp, MLX5_CQE_SYNDROME_REMOTE_OP_ERR, kVendorRemoteOperation);
    return true;
  }
  if (!transfer(qp, receive_.all(), local_.all())) return false;
  const bool immediate = request_.opcode == MLX5_OPCODE_SEND_IMM;
  completions_->receive_done(*peer, *qp, immediate ? MLX5_CQE_RESP_SEND_IMM : MLX5_CQE_RESP_SEND,
                             request_);
  peer->receive_queue.advance();
  complete(qp, peer);
  return true;
}

bool Transport::write_to(QueuePair* qp, QueuePair* peer) {
  const bool immediate = request_.opcode == MLX5_OPCODE_RDMA_WRITE_IMM;
  if (immediate && peer->receive_queue.empty()) return receiver_not_ready(qp, *peer);
  if (request_.segments.bytes != 0) {  // the key of an empty write is not looked at (9.7.4.1.7)
    std::byte* target = remote_memory(*peer, IBV_ACCESS_REMOTE_WRITE);
    if (target == nullptr) {
      deny_access(qp, peer);
      return true;
    }
    const Piece piece{target, request_.segments.bytes};
    if (!transfer(qp, {&piece, 1}, local_.all())) return false;
  }
  if (immediate) {
    completions_->receive_done(*peer, *qp, MLX5_CQE_RESP_WR_IMM, request_);
    peer->receive_queue.advance();
  }
  complete(qp, peer);
  return true;
}

bool Transport::read_from(QueuePair* qp, QueuePair* peer) {
  if (request_.segments.bytes != 0) {
    std::byte* source = remote_memory(*peer, IBV_ACCESS_REMOTE_READ);
    if (source == nullptr) {
      deny_access(qp, peer);
      return true;
    }
    const Piece piece{source, request_.segments.bytes};
    if (!transfer(qp, local_.all(), {&piece, 1})) return false;
  }
  complete(qp, peer);
  return true;
}

bool Transport::carry_out(QueuePair* qp) {
  const auto available =
      static_cast<uint16_t>(qp->doorbells.front().producer - qp->send_queue.consumer());
  qp->send_queue.decode(qp->send_queue.consumer(), available, &request_);
  const uint8_t opcode = request_.opcode;
  const bool read = opcode == MLX5_OPCODE_RDMA_READ;
  if (!request_.valid || (!is_send(opcode) && !is_write(opcode) && !read)) {
    fail_send(qp, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, kVendorLocalOperation);
    return true;
  }
  if (request_.segments.bytes > kMaxMessageBytes) {
    fail_send(qp, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, kVendorLocalOperation);
    return true;
  }
  if (!resolve(*qp, request_.segments, read ? IBV_ACCESS_LOCAL_WRITE : 0, &local_)) {
    fail_send(qp, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, kVendorLocalProtection);
    return true;
  }
  QueuePair* peer = answering_peer(*qp);
  if (peer == nullptr) return retransmit(qp);
  if (is_send(opcode)) return send_to(qp, peer);
  if (is_write(opcode)) return write_to(qp, peer);
  return read_from(qp, peer);
}

}  // namespace pollgap::soft_hca
