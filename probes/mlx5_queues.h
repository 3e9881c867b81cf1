// SPDX-License-Identifier: Apache-2.0
// Looking at mlx5's CQs and send queues: how far a QP's send queue has been filled and completed,
// and which of its sends ask for a completion; of a CQ what probes/cq_layout.h says. No ABI:
// believed only of an object that has all its invariants.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "probes/memory_map.h"
#include "probes/memory_reader.h"
#include "probes/provider_queues.h"
#include "probes/sites.h"

namespace pollgap {

struct SendQueueLayout {
  const char* name;     // "mlx5, rdma-core 45 to 63"
  uint32_t send_queue;  // bytes from the ibv_qp to the struct mlx5_wq of its sends
};

// Every layout that is known (providers/mlx5/mlx5.h: struct mlx5_qp, member sq).
std::span<const SendQueueLayout> mlx5_send_queue_layouts();

// What of a QP's send queue stays as it is while the QP lives.
struct Mlx5SendQueue {
  uint64_t qp = 0;       // the ibv_qp
  uint64_t context = 0;  // its first word
  uint32_t qp_num = 0;
  uint32_t blocks = 0;       // 64-byte blocks of the ring: a power of two
  uint32_t most_posted = 0;  // work requests that it takes
  uint64_t indices = 0;      // where its head and tail are
  uint64_t block_heads =
      0;              // u32 for each block: the head when the request that begins there was posted
  uint64_t ring = 0;  // the first block
};

// The QP's send queue, if its memory has what the layout says: a ring of a power of two of mapped
// blocks, indices no further apart than it takes requests, and a doorbell record that is behind the
// post function by less than the ring has blocks. One without sends (0 blocks) has none.
std::optional<Mlx5SendQueue> find_mlx5_send_queue(MemoryReader& memory, const MemoryMap& map,
                                                  const QpInfo& qp, const SendQueueLayout& layout);

// Of the layouts the one that most objects have is taken; an object that lacks an invariant of it
// is refused.
void find_mlx5_queues(MemoryReader& memory, const MemoryMap& map, const ProviderObjects& objects,
                      ReadableQueues& found);

}  // namespace pollgap
