// SPDX-License-Identifier: Apache-2.0
#include "probes/mlx5_queues.h"

#include <endian.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "bpf/mlx5_syndrome.h"
#include "probes/cq_layout.h"

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

struct HeadAndTail {
  uint32_t head = 0, tail = 0;

  uint32_t outstanding() const { return head - tail; }
};

struct Counters {
  uint32_t blocks, most_posted;
  HeadAndTail indices;
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

std::optional<Counters> read_counters(MemoryReader& memory, const Mlx5SendQueue& queue) {
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
                                                               const HeadAndTail& indices) {
  std::vector<std::pair<uint32_t, uint32_t>> found;  // place among the outstanding, block
  for (uint32_t block = 0; block < heads.size(); ++block) {
    const uint32_t place = heads[block] - indices.tail;
    if (place < indices.outstanding()) found.emplace_back(place, block);
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool is_request(const RequestHead& head, uint32_t block, const Mlx5SendQueue& queue,
                const Counters& values) {
  const uint32_t number = be32toh(head.block_and_opcode) >> 8 & 0xffff;
  const uint32_t behind = (values.next_block - number) & 0xffff;
  return (number & (queue.blocks - 1)) == block && behind != 0 && behind <= queue.blocks &&
         be32toh(head.qp_and_size) >> 8 == queue.qp_num;
}

std::optional<SignaledSends> signaled_sends(MemoryReader& memory, const Mlx5SendQueue& queue) {
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

// ---- looks ----

// struct mlx5_cqe64 and its opcodes, <infiniband/mlx5dv.h>.
// Places in the last 16 bytes of an entry; of an error's, what struct mlx5_err_cqe has there.
constexpr size_t timestamp = 0, vendor_syndrome = 6, syndrome = 7, qp_number = 8,
                 opcode_and_owner = 15;
constexpr unsigned requester_error = 13, responder_error = 14, invalid = 15;
constexpr uint8_t format_bits = 3 << 2, compressed = 3 << 2;  // of opcode_and_owner

template <typename T>
T value_at(std::span<const std::byte> bytes, size_t offset) {
  T value;
  memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// As software owns an entry: providers/mlx5/cq.c, get_sw_cqe().
NextCqe next_cqe(uint8_t opcode_owner, uint32_t index, uint32_t entries) {
  const unsigned opcode = opcode_owner >> 4;
  const bool owner = (opcode_owner & 1) != 0;
  if (opcode == invalid || owner != ((index & entries) != 0)) return NextCqe::absent;
  return opcode == requester_error || opcode == responder_error ? NextCqe::error : NextCqe::ready;
}

CompletionError error_in(std::span<const std::byte> tail) {
  return {.status = mlx5_wc_status(value_at<uint8_t>(tail, syndrome)),
          .vendor_error = value_at<uint8_t>(tail, vendor_syndrome),
          .qp_num = be32toh(value_at<uint32_t>(tail, qp_number)) & 0xffffff,
          .wr_id = 0};
}

// In ticks of the adapter's clock. One that gives UTC as seconds and nanoseconds is known by its
// seconds, which are beyond 2001: so many times 2^32 no counter from zero on reaches. An entry
// without it has 0 there; an error's, other things; of compressed entries it is not told apart.
std::optional<uint64_t> stamp_in(std::span<const std::byte> tail, uint32_t index,
                                 uint32_t entries) {
  constexpr uint64_t second_ns = 1'000'000'000;
  const auto opcode_owner = value_at<uint8_t>(tail, opcode_and_owner);
  const uint64_t value = be64toh(value_at<uint64_t>(tail, timestamp));
  if (next_cqe(opcode_owner, index, entries) != NextCqe::ready || value == 0 ||
      (opcode_owner & format_bits) == compressed) {
    return std::nullopt;
  }
  const uint64_t seconds = value >> 32, fraction = value & 0xffffffff;
  return seconds > second_ns && fraction < second_ns ? seconds * second_ns + fraction : value;
}

// An entry that is to be written soon, awaited: only of one that looks have seen come is it known
// when that was.
class AwaitedEntry {
 public:
  explicit AwaitedEntry(uint32_t entries) : entries_(entries) {}

  uint32_t index() const { return index_; }

  // Its last bytes, read after `consumer_index` was. Returns its stamp if it came after the look
  // before; then, or when it was there already, another is awaited.
  std::optional<uint64_t> look(std::span<const std::byte> tail, uint32_t consumer_index) {
    const auto ahead = static_cast<int32_t>(index_ - consumer_index);
    const auto whole_ring = static_cast<int32_t>(entries_);
    const bool in_ring = -whole_ring < ahead && ahead < whole_ring;
    const NextCqe state = next_cqe(value_at<uint8_t>(tail, opcode_and_owner), index_, entries_);
    if (in_ring && ahead >= 0 && state == NextCqe::absent) {
      was_absent_ = true;
      return std::nullopt;
    }
    // Of one consumed long ago the place may hold the entry of the next round: absent by its owner.
    const auto stamp =
        was_absent_ && in_ring ? stamp_in(tail, index_, entries_) : std::optional<uint64_t>();
    distance_ = was_absent_ ? distance_ / 2 : std::min(2 * distance_ + 1, entries_ - 1);
    index_ = consumer_index + distance_;
    was_absent_ = false;
    return stamp;
  }

 private:
  const uint32_t entries_;
  uint32_t index_ = 0;
  uint32_t distance_ = 0;  // so far ahead of what is consumed an entry is looked for
  bool was_absent_ = false;
};

class Mlx5Looks : public CqLooks {
 public:
  Mlx5Looks(const Mlx5CqRing& ring, const CqLayout& layout, std::vector<Mlx5SendQueue> queues)
      : ring_(ring),
        layout_(layout),
        queues_(std::move(queues)),
        awaited_(ring.entries),
        read_indices_(queues_.size()) {
    sends_.resize(queues_.size());
  }

  // What the poll function writes last is read first. A send that is no longer outstanding has its
  // completion consumed, and an entry that is ready has not been. Whose the entry is, which the
  // adapter writes last, is read before what it says.
  std::vector<MemoryPiece> pieces() override {
    std::vector<MemoryPiece> pieces;
    for (size_t i = 0; i < queues_.size(); ++i)
      pieces.push_back(
          {queues_[i].indices, std::as_writable_bytes(std::span(&read_indices_[i], 1)), false});
    const size_t own = layout_.entry_bytes + sizeof(uint32_t) - layout_.active_buffer;
    pieces.push_back({ring_.cq, object_, false});
    pieces.push_back({ring_.buffer, std::as_writable_bytes(std::span(&ring_address_, 1)), false});
    pieces.push_back({ring_.cq + layout_.active_buffer, std::span(own_).first(own), false});
    pieces.push_back({0, owner_, false});
    pieces.push_back({0, tail_, false});
    pieces.push_back({0, awaited_tail_, false});
    aim(pieces);
    return pieces;
  }

  void aim(std::span<MemoryPiece> pieces) const override {
    const std::span<MemoryPiece> of_entries = pieces.last(3);
    of_entries[0].address = tail_address(read_index_) + opcode_and_owner;
    of_entries[1].address = tail_address(read_index_);
    of_entries[2].address = tail_address(awaited_.index());
  }

  void judge(std::span<const MemoryPiece> pieces) override {
    reading_ = {};
    if (!is_as_verified(pieces.subspan(queues_.size()))) return;
    const auto index = own_value<uint32_t>(layout_.consumer_index);
    reading_.intact = true;
    reading_.consumer_index = index;
    const NextCqe next = next_cqe(static_cast<uint8_t>(owner_[0]), read_index_, ring_.entries);
    if (seen_ && index == read_index_) reading_.next = next;
    if (reading_.next == NextCqe::error) reading_.error = error_in(tail_);
    if (seen_ && next == NextCqe::ready && index - read_index_ < ring_.entries)
      reading_.next_stamp = stamp_in(tail_, read_index_, ring_.entries);
    reading_.new_stamp = awaited_.look(awaited_tail_, index);
    read_index_ = index;
    seen_ = true;
    for (size_t i = 0; i < queues_.size(); ++i) {
      const HeadAndTail& read = read_indices_[i];
      const bool possible = pieces[i].complete && read.outstanding() <= queues_[i].most_posted;
      sends_[i] = possible ? SendIndices{read.head, read.tail} : SendIndices{};
    }
  }

  std::optional<SignaledSends> signaled(MemoryReader& memory, size_t send_queue) const override {
    return signaled_sends(memory, queues_[send_queue]);
  }

 private:
  static constexpr size_t object_bytes = 32;  // of the ibv_cq, up to cqe
  static constexpr size_t own_bytes = 96;     // of mlx5's part: from active_buffer to entry_bytes
  static constexpr size_t tail_bytes = 16;    // of an entry

  uint64_t tail_address(uint32_t index) const {
    const uint64_t place = index & (ring_.entries - 1);
    return ring_.ring + (place + 1) * ring_.entry_bytes - tail_bytes;
  }

  template <typename T>
  T own_value(uint32_t offset) const {
    return value_at<T>(own_, offset - layout_.active_buffer);
  }

  bool is_as_verified(std::span<const MemoryPiece> pieces) const {
    return std::ranges::all_of(pieces, &MemoryPiece::complete) &&
           value_at<uint64_t>(object_, offsetof(ibv_cq, context)) == ring_.context &&
           value_at<uint32_t>(object_, offsetof(ibv_cq, cqe)) == ring_.entries - 1 &&
           own_value<uint64_t>(layout_.active_buffer) == ring_.buffer &&
           ring_address_ == ring_.ring &&
           own_value<uint64_t>(layout_.doorbell_record) == ring_.doorbell &&
           own_value<uint32_t>(layout_.entry_bytes) == ring_.entry_bytes;
  }

  const Mlx5CqRing ring_;
  const CqLayout& layout_;
  const std::vector<Mlx5SendQueue> queues_;
  uint32_t read_index_ = 0;  // of the entry that is read
  bool seen_ = false;
  AwaitedEntry awaited_;
  // What is read.
  std::vector<HeadAndTail> read_indices_;
  std::array<std::byte, object_bytes> object_;
  uint64_t ring_address_ = 0;
  std::array<std::byte, own_bytes> own_;
  std::array<std::byte, 1> owner_;
  std::array<std::byte, tail_bytes> tail_, awaited_tail_;
};

ReadableCq readable(const Mlx5CqRing& ring, const CqLayout& layout,
                    const std::vector<Mlx5SendQueue>& sends, size_t unreadable_sends);

class Mlx5Queues : public ProviderQueues {
 public:
  Mlx5Queues(const Mlx5CqRing& ring, const CqLayout& layout, std::vector<Mlx5SendQueue> sends,
             size_t unreadable_sends)
      : ring_(ring),
        layout_(layout),
        sends_(std::move(sends)),
        unreadable_sends_(unreadable_sends) {}

  std::unique_ptr<CqLooks> look() const override {
    return std::make_unique<Mlx5Looks>(ring_, layout_, sends_);
  }
  std::optional<ReadableCq> again(MemoryReader& memory, const MemoryMap& map,
                                  const CqInfo& now) const override {
    const auto ring = find_cq_ring(memory, map, now, layout_);
    if (!ring) return std::nullopt;
    return readable(*ring, layout_, sends_, unreadable_sends_);
  }

 private:
  const Mlx5CqRing ring_;
  const CqLayout& layout_;
  const std::vector<Mlx5SendQueue> sends_;
  const size_t unreadable_sends_;
};

ReadableCq readable(const Mlx5CqRing& ring, const CqLayout& layout,
                    const std::vector<Mlx5SendQueue>& sends, size_t unreadable_sends) {
  ReadableCq cq{.ring = {ring.cq, ring.context, ring.ring, ring.entries},
                .layout = layout.name,
                .sends = {},
                .unreadable_sends = unreadable_sends,
                .queues = std::make_shared<Mlx5Queues>(ring, layout, sends, unreadable_sends)};
  for (const Mlx5SendQueue& queue : sends) cq.sends.push_back({queue.qp, queue.qp_num, queue.ring});
  return cq;
}

// The layout that most objects have; nullptr where none has any.
template <typename Layout, typename Object, typename Fits>
const Layout* most_common(std::span<const Layout> layouts, const std::vector<Object>& objects,
                          const Fits& fits) {
  const Layout* best = nullptr;
  std::ptrdiff_t most = 0;
  for (const Layout& layout : layouts) {
    const auto count =
        std::ranges::count_if(objects, [&](const Object& object) { return fits(object, layout); });
    if (count > most) {
      most = count;
      best = &layout;
    }
  }
  return best;
}

}  // namespace

std::span<const SendQueueLayout> mlx5_send_queue_layouts() { return mlx5_layouts; }

std::optional<Mlx5SendQueue> find_mlx5_send_queue(MemoryReader& memory, const MemoryMap& map,
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
  return Mlx5SendQueue{.qp = qp.address,
                       .context = qp.context,
                       .qp_num = qp.qp_num,
                       .blocks = values->blocks,
                       .most_posted = values->most_posted,
                       .indices = queue + counters + offsetof(Counters, indices),
                       .block_heads = *heads,
                       .ring = *ring};
}

void find_mlx5_queues(MemoryReader& memory, const MemoryMap& map, const ProviderObjects& objects,
                      ReadableQueues& found) {
  const CqLayout* layout =
      most_common(mlx5_cq_layouts(), objects.cqs, [&](const CqInfo& cq, const CqLayout& candidate) {
        return has_layout(memory, map, cq, candidate);
      });
  const SendQueueLayout* send_layout =
      most_common(mlx5_send_queue_layouts(), objects.qps,
                  [&](const QpInfo& qp, const SendQueueLayout& candidate) {
                    return find_mlx5_send_queue(memory, map, qp, candidate).has_value();
                  });
  for (const CqInfo& cq : objects.cqs) {
    const auto ring = layout == nullptr ? std::nullopt : find_cq_ring(memory, map, cq, *layout);
    if (!ring) {
      found.refused.push_back({cq.address,
                               "its memory has none of the known layouts of mlx5's "
                               "CQs (rdma-core 35 and later)"});
      continue;
    }
    std::vector<Mlx5SendQueue> sends;
    size_t unreadable = 0;
    for (const QpInfo& qp : objects.qps) {
      if (qp.send_cq != cq.address) continue;
      const auto queue = send_layout == nullptr
                             ? std::nullopt
                             : find_mlx5_send_queue(memory, map, qp, *send_layout);
      if (queue) {
        sends.push_back(*queue);
      } else {
        ++unreadable;
      }
    }
    found.cqs.push_back(readable(*ring, *layout, sends, unreadable));
  }
}

}  // namespace pollgap
