// SPDX-License-Identifier: Apache-2.0
#include "probes/send_queue.h"

#include <endian.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <utility>
#include <vector>

namespace pollgap {
namespace {

// From the sources of those releases.
constexpr std::array<SendQueueLayout, 6> mlx5_layouts = {{
    {"mlx5, rdma-core 35", 616},
    {"mlx5, rdma-core 36", 672},
    {"mlx5, rdma-core 37 to 43", 696},
    {"mlx5, rdma-core 44", 704},
    {"mlx5, rdma-core 45 to 63", 712},
    {"mlx5, rdma-core 64 and later", 728},
}};

// Around struct mlx5_wq, the same in all of them; bytes from its beginning.
constexpr uint64_t ring_pointer = static_cast<uint64_t>(-8);  // mlx5_qp.sq_start
constexpr uint64_t block_heads_pointer = 8;                   // wqe_head
constexpr uint64_t counters = 28;                             // wqe_cnt and what follows it
constexpr uint64_t doorbell_pointer = 80;                     // mlx5_qp.db

struct Counters {
  uint32_t blocks, most_posted;
  SendIndices indices;
  uint32_t next_block;  // cur_post
};
static_assert(sizeof(Counters) == 20);

constexpr uint64_t block_bytes = 64;
constexpr uint32_t max_blocks = 1 << 16;  // requests number their first block with 16 bits
constexpr uint64_t send_doorbell = 4;     // the second word of the doorbell record

// struct mlx5_wqe_ctrl_seg of <infiniband/mlx5dv.h>, up to fm_ce_se.
struct RequestHead {
  uint32_t block_and_opcode;  // big endian: 8 bits, 16 bits of the first block's number, opcode
  uint32_t qp_and_size;       // big endian: 24 bits QP number, size
  uint8_t signature, dci[2], flags;
};
static_assert(sizeof(RequestHead) == 12);
constexpr uint8_t completion_bits = 3 << 2;
constexpr uint8_t completion_always = 2 << 2;  // MLX5_WQE_CTRL_CQ_UPDATE

bool is_mapped(const MemoryMap& map, uint64_t address, uint64_t bytes) {
  const Mapping* mapping = map.find(address);
  return mapping != nullptr && mapping->readable && mapping->writable &&
         mapping->end - address >= bytes;
}

bool plausible(const Counters& values) {
  return std::has_single_bit(values.blocks) && values.blocks <= max_blocks &&
         values.most_posted <= values.blocks && values.indices.outstanding() <= values.most_posted;
}

// The post function fills blocks before it tells the adapter. Posts go on meanwhile: so what
// follows is read first, and both are read again where they lie too far apart.
bool doorbell_follows(MemoryReader& memory, uint64_t queue, uint64_t doorbell) {
  constexpr int attempts = 4;
  for (int i = 0; i < attempts; ++i) {
    const auto told = memory.load<uint32_t>(doorbell + send_doorbell);
    const auto values = memory.load<Counters>(queue + counters);
    if (!values || !told || !plausible(*values)) return false;
    if (((values->next_block - be32toh(*told)) & 0xffff) <= values->blocks) return true;
  }
  return false;
}

std::optional<Counters> read_counters(MemoryReader& memory, const SendQueue& queue) {
  const uint64_t before_indices = offsetof(Counters, indices);
  const auto values = memory.load<Counters>(queue.indices - before_indices);
  const auto context = memory.load<uint64_t>(queue.qp);
  if (!values || context != queue.context || values->blocks != queue.blocks ||
      !plausible(*values)) {
    return std::nullopt;
  }
  return values;
}

// Which block each outstanding request may begin in, the oldest request first. The list of heads
// keeps entries of earlier rounds, and of blocks in which no request begins.
std::vector<std::pair<uint32_t, uint32_t>> possible_beginnings(std::span<const uint32_t> heads,
                                                               const SendIndices& indices) {
  std::vector<std::pair<uint32_t, uint32_t>> found;  // place among the outstanding, block
  for (uint32_t block = 0; block < heads.size(); ++block) {
    const uint32_t place = heads[block] - indices.tail;
    if (place < indices.outstanding()) found.emplace_back(place, block);
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool is_request(const RequestHead& head, uint32_t block, const SendQueue& queue,
                const Counters& values) {
  const uint32_t number = be32toh(head.block_and_opcode) >> 8 & 0xffff;
  const uint32_t behind = (values.next_block - number) & 0xffff;
  return (number & (queue.blocks - 1)) == block && behind != 0 && behind <= queue.blocks &&
         be32toh(head.qp_and_size) >> 8 == queue.qp_num;
}

}  // namespace

std::span<const SendQueueLayout> mlx5_send_queue_layouts() { return mlx5_layouts; }

std::optional<SendQueue> find_send_queue(MemoryReader& memory, const MemoryMap& map,
                                         const QpInfo& qp, const SendQueueLayout& layout) {
  const uint64_t queue = qp.address + layout.send_queue;
  const auto values = memory.load<Counters>(queue + counters);
  if (!values || !plausible(*values)) return std::nullopt;
  const auto ring = memory.load<uint64_t>(queue + ring_pointer);
  const auto heads = memory.load<uint64_t>(queue + block_heads_pointer);
  if (!ring || !is_mapped(map, *ring, values->blocks * block_bytes)) return std::nullopt;
  if (!heads || !is_mapped(map, *heads, values->blocks * sizeof(uint32_t))) return std::nullopt;
  const auto doorbell = memory.load<uint64_t>(queue + doorbell_pointer);
  if (!doorbell || !doorbell_follows(memory, queue, *doorbell)) return std::nullopt;
  return SendQueue{.qp = qp.address,
                   .context = qp.context,
                   .qp_num = qp.qp_num,
                   .blocks = values->blocks,
                   .most_posted = values->most_posted,
                   .indices = queue + counters + offsetof(Counters, indices),
                   .block_heads = *heads,
                   .ring = *ring};
}

std::optional<SignaledSends> signaled_sends(MemoryReader& memory, const SendQueue& queue) {
  constexpr size_t at_once = 64;
  const auto values = read_counters(memory, queue);
  if (!values) return std::nullopt;
  std::vector<uint32_t> heads(queue.blocks);
  const auto bytes = std::as_writable_bytes(std::span(heads));
  if (memory.read(queue.block_heads, bytes) != bytes.size()) return std::nullopt;
  const auto beginnings = possible_beginnings(heads, values->indices);
  SignaledSends sends;
  for (size_t first = 0; first < beginnings.size(); first += at_once) {
    const auto batch =
        std::span(beginnings).subspan(first).first(std::min(at_once, beginnings.size() - first));
    std::array<RequestHead, at_once> requests;
    std::array<MemoryPiece, at_once> pieces;
    for (size_t i = 0; i < batch.size(); ++i)
      pieces[i] = {queue.ring + batch[i].second * block_bytes,
                   std::as_writable_bytes(std::span(&requests[i], 1)), false};
    memory.read_pieces(std::span(pieces).first(batch.size()));
    for (size_t i = 0; i < batch.size(); ++i) {
      if (!pieces[i].complete) return std::nullopt;
      if (!is_request(requests[i], batch[i].second, queue, *values) ||
          (requests[i].flags & completion_bits) != completion_always) {
        continue;
      }
      if (sends.count++ == 0) sends.oldest = batch[i].first;
    }
  }
  return sends;
}

}  // namespace pollgap
