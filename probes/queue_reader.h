// SPDX-License-Identifier: Apache-2.0
// Looks at CQs and send queues of a live process, all of them in one reading of its memory: what
// has been consumed, whether the next completion lies ready, and what is outstanding.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "probes/memory_reader.h"
#include "probes/provider_queues.h"

namespace pollgap {

class QueueReader {
 public:
  explicit QueueReader(std::unique_ptr<MemoryReader> memory) : memory_(std::move(memory)) {}

  // Returns its number, from 0.
  size_t add(const ReadableCq& cq);
  size_t size() const { return cqs_.size(); }

  // Reads all CQs. What CQ `number` looked like is told by the next two until the next reading.
  void read();
  const CqReading& cq(size_t number) const { return cqs_[number].looks->reading(); }
  // In the order they were given.
  const std::vector<SendIndices>& sends(size_t number) const { return cqs_[number].looks->sends(); }

  // Which of that send queue's outstanding requests ask for a completion; nullopt: that cannot be
  // told.
  std::optional<SignaledSends> signaled(size_t number, size_t send_queue) {
    return cqs_[number].looks->signaled(*memory_, send_queue);
  }

 private:
  struct Cq {
    std::unique_ptr<CqLooks> looks;
    size_t first_piece = 0;
    size_t pieces = 0;
  };

  std::span<MemoryPiece> pieces_of(const Cq& cq) {
    return std::span(pieces_).subspan(cq.first_piece, cq.pieces);
  }

  std::unique_ptr<MemoryReader> memory_;
  std::vector<Cq> cqs_;
  std::vector<MemoryPiece> pieces_;
};

}  // namespace pollgap
