// SPDX-License-Identifier: Apache-2.0
// Looks at CQs and send queues of a live process, all of them in one reading of its memory: what
// has been consumed, whether the next completion lies ready, and what is outstanding.
//
// mlx5 only. The target is not trusted: whatever is read is compared with what was verified when
// the CQ was added, and a CQ that differs in any of it is not intact.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "probes/cq_layout.h"
#include "probes/memory_reader.h"
#include "probes/send_queue.h"

namespace pollgap {

enum class NextCqe {
  unknown,  // the consumer index has moved since the look before: another entry was read
  absent,   // the adapter has not written it
  ready,
  error,  // ready, and it tells of an error
};

struct CqReading {
  bool intact = false;  // false: the rest means nothing
  uint32_t consumer_index = 0;
  NextCqe next = NextCqe::unknown;
};

class QueueReader {
 public:
  explicit QueueReader(std::unique_ptr<MemoryReader> memory);

  // A CQ and the send queues that complete to it. Returns its number, from 0.
  size_t add(const CqRing& ring, const CqLayout& layout, const std::vector<SendQueue>& sends);
  size_t size() const { return cqs_.size(); }

  // Reads all CQs. What CQ `number` looked like is told by the next two until the next reading.
  void read();
  const CqReading& cq(size_t number) const { return cqs_[number].reading; }
  // In the order they were given; {0, 0} for one that cannot be read or has impossible indices.
  const std::vector<SendIndices>& sends(size_t number) const { return cqs_[number].indices; }

  // Which of that send queue's outstanding requests ask for a completion.
  std::optional<SignaledSends> signaled(size_t number, size_t send_queue);

 private:
  static constexpr size_t object_bytes = 32;  // of the ibv_cq, up to cqe
  static constexpr size_t own_bytes = 96;     // of mlx5's part: from active_buffer to entry_bytes
  static constexpr size_t tail_bytes = 16;    // of an entry

  struct Bytes {
    std::array<std::byte, object_bytes> object;
    std::array<std::byte, own_bytes> own;
    uint64_t ring;
    std::array<std::byte, tail_bytes> tail;
  };
  struct Cq {
    CqRing ring;
    CqLayout layout;
    std::vector<SendQueue> queues;
    CqReading reading;
    std::vector<SendIndices> indices;
    uint32_t read_index = 0;  // of the entry that was read
    bool seen = false;
    std::unique_ptr<Bytes> bytes;
    std::unique_ptr<SendIndices[]> read_indices;
    size_t first_piece = 0;
  };

  uint64_t tail_address(const Cq& cq) const;
  void judge(Cq& cq);
  bool is_as_verified(const Cq& cq) const;

  std::unique_ptr<MemoryReader> memory_;
  std::vector<Cq> cqs_;
  std::vector<MemoryPiece> pieces_;
};

}  // namespace pollgap
