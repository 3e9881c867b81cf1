// SPDX-License-Identifier: Apache-2.0
// The reliable-connection transport between queue pairs of this adapter: what a send request does
// at the peer, and what becomes of it there. Rules: InfiniBand specification volume 1, chapter 9.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tools/soft-hca/completion_writer.h"
#include "tools/soft-hca/memory_table.h"
#include "tools/soft-hca/queue_pair.h"

namespace pollgap::soft_hca {

// Finds a queue pair by number.
class PeerDirectory {
 public:
  virtual ~PeerDirectory() = default;
  virtual QueuePair* find(uint32_t number) = 0;
};

// For the device thread.
class Transport {
 public:
  Transport(PeerDirectory* peers, const MemoryTable* memory, CompletionWriter* completions)
      : peers_(peers), memory_(memory), completions_(completions) {}

  // Carries out the send request at the head of `qp`, or a part of it when it is big. Returns false
  // when it is to be called again, at qp->attempts().next_ns or later; the queue has not moved
  // then. Otherwise the request is over: done, or failed with `qp` (and perhaps its peer) in the
  // error state and flushed.
  bool carry_out(QueuePair* qp);

 private:
  struct Piece {
    std::byte* data;
    uint64_t length;
  };
  // At most as many as a WQE has segments.
  class Pieces {
   public:
    void clear() { count_ = 0; }
    void add(const Piece& piece) { items_[count_++] = piece; }
    std::span<const Piece> all() const { return {items_.data(), count_}; }

   private:
    std::array<Piece, 64> items_{};
    size_t count_ = 0;
  };

  QueuePair* answering_peer(const QueuePair& qp);
  bool retransmit(QueuePair* qp);
  bool receiver_not_ready(QueuePair* qp, const QueuePair& peer);
  bool resolve(const QueuePair& qp, const SegmentList& segments, uint32_t access, Pieces* pieces);
  bool send_to(QueuePair* qp, QueuePair* peer);
  bool write_to(QueuePair* qp, QueuePair* peer);
  bool read_from(QueuePair* qp, QueuePair* peer);
  std::byte* remote_memory(const QueuePair& peer, uint32_t access) const;
  void deny_access(QueuePair* qp, QueuePair* peer);
  void complete(QueuePair* qp, QueuePair* peer);
  void fail_send(QueuePair* qp, uint8_t syndrome, uint8_t vendor);
  void fail_receive(QueuePair* qp, uint8_t syndrome, uint8_t vendor);
  bool transfer(QueuePair* qp, std::span<const Piece> to, std::span<const Piece> from);

  PeerDirectory* peers_;
  const MemoryTable* memory_;
  CompletionWriter* completions_;
  SendRequest request_;
  SegmentList scatter_;
  Pieces local_;
  Pieces receive_;
};

}  // namespace pollgap::soft_hca
