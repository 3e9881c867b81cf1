// SPDX-License-Identifier: Apache-2.0
// Where mlx5 keeps how far a QP's send queue has been filled and completed, and which of its sends
// ask for a completion. No ABI: believed only of a QP that has all its invariants.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "probes/memory_map.h"
#include "probes/memory_reader.h"
#include "probes/sites.h"

namespace pollgap {

struct SendQueueLayout {
  const char* name;     // "mlx5, rdma-core 45 to 63"
  uint32_t send_queue;  // bytes from the ibv_qp to the struct mlx5_wq of its sends
};

// Every layout that is known (providers/mlx5/mlx5.h: struct mlx5_qp, member sq).
std::span<const SendQueueLayout> mlx5_send_queue_layouts();

// The indices of a send queue: work requests posted, and those known to be completed (by the
// completion of a later one, too), since the queue was made or reset.
struct SendIndices {
  uint32_t head = 0;
  uint32_t tail = 0;

  uint32_t outstanding() const { return head - tail; }
};

// What of a QP's send queue stays as it is while the QP lives.
struct SendQueue {
  uint64_t qp = 0;       // the ibv_qp
  uint64_t context = 0;  // its first word
  uint32_t qp_num = 0;
  uint32_t blocks = 0;       // 64-byte blocks of the ring: a power of two
  uint32_t most_posted = 0;  // work requests that it takes
  uint64_t indices = 0;      // where its SendIndices are
  uint64_t block_heads =
      0;              // u32 for each block: the head when the request that begins there was posted
  uint64_t ring = 0;  // the first block
};

// The QP's send queue, if its memory has what the layout says: a ring of a power of two of mapped
// blocks, indices no further apart than it takes requests, and a doorbell record that is behind the
// post function by less than the ring has blocks. One without sends (0 blocks) has none.
std::optional<SendQueue> find_send_queue(MemoryReader& memory, const MemoryMap& map,
                                         const QpInfo& qp, const SendQueueLayout& layout);

// The sends among those outstanding that ask for a completion.
struct SignaledSends {
  uint32_t count = 0;
  uint32_t oldest = 0;  // its place among the outstanding ones, 0 the oldest; without one: 0
};

// Reads the requests themselves, some of the ring and 4 bytes for each block: not for every look.
// nullopt: the QP is not as it was, or cannot be read.
std::optional<SignaledSends> signaled_sends(MemoryReader& memory, const SendQueue& queue);

}  // namespace pollgap
