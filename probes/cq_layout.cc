// SPDX-License-Identifier: Apache-2.0
#include "probes/cq_layout.h"

#include <endian.h>

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

namespace pollgap {
namespace {

constexpr uint32_t doorbell_index_bits = 0xffffff;
constexpr uint64_t max_entries = 1 << 22;  // log_max_cq_sz of the adapter has no more

// From the sources of those releases.
constexpr std::array<CqLayout, 2> mlx5_layouts = {{
    {"mlx5, rdma-core 35 to 63", 456, 416, 464, 480},
    {"mlx5, rdma-core 64 and later", 472, 432, 480, 504},
}};

// The poll function counts several completions before it tells the adapter: seen in between, the
// two differ by less than the CQ has entries. The CQ may be polled meanwhile: so what follows is
// read first, and both are read again where they lie too far apart, as they do if this was
// preempted.
bool doorbell_follows(MemoryReader& memory, uint64_t consumer_index, uint64_t doorbell,
                      uint64_t entries) {
  constexpr int attempts = 4;
  for (int i = 0; i < attempts; ++i) {
    const auto told = memory.load<uint32_t>(doorbell);
    const auto consumed = memory.load<uint32_t>(consumer_index);
    if (!consumed || !told) return false;
    if (((*consumed - be32toh(*told)) & doorbell_index_bits) < entries) return true;
  }
  return false;
}

}  // namespace

std::span<const CqLayout> mlx5_cq_layouts() { return mlx5_layouts; }

std::optional<Mlx5CqRing> find_cq_ring(MemoryReader& memory, const MemoryMap& map, const CqInfo& cq,
                                       const CqLayout& layout) {
  const auto entry_bytes = memory.load<int32_t>(cq.address + layout.entry_bytes);
  if (!entry_bytes || (*entry_bytes != 64 && *entry_bytes != 128)) return std::nullopt;
  const uint64_t entries = static_cast<uint64_t>(cq.cqe) + 1;
  if (!std::has_single_bit(entries) || entries > max_entries) return std::nullopt;
  const auto buffer = memory.load<uint64_t>(cq.address + layout.active_buffer);
  const auto ring = buffer ? memory.load<uint64_t>(*buffer) : std::nullopt;
  if (!ring) return std::nullopt;
  const Mapping* mapping = map.find(*ring);
  if (mapping == nullptr || !mapping->readable || !mapping->writable ||
      mapping->end - *ring < entries * static_cast<uint64_t>(*entry_bytes)) {
    return std::nullopt;
  }
  const auto doorbell = memory.load<uint64_t>(cq.address + layout.doorbell_record);
  if (!doorbell ||
      !doorbell_follows(memory, cq.address + layout.consumer_index, *doorbell, entries))
    return std::nullopt;
  return Mlx5CqRing{.cq = cq.address,
                    .context = cq.context,
                    .buffer = *buffer,
                    .ring = *ring,
                    .doorbell = *doorbell,
                    .entries = static_cast<uint32_t>(entries),
                    .entry_bytes = static_cast<uint32_t>(*entry_bytes)};
}

bool has_layout(MemoryReader& memory, const MemoryMap& map, const CqInfo& cq,
                const CqLayout& layout) {
  return find_cq_ring(memory, map, cq, layout).has_value();
}

const CqLayout* find_cq_layout(MemoryReader& memory, const MemoryMap& map,
                               std::span<const ContextInfo> contexts, const std::string& provider) {
  if (provider.find("/libmlx5") == std::string::npos) return nullptr;
  std::vector<const CqInfo*> cqs;
  for (const ContextInfo& context : contexts) {
    if (context.provider != provider) continue;
    for (const CqInfo& cq : context.cqs) cqs.push_back(&cq);
  }
  for (const CqLayout& layout : mlx5_layouts) {
    const bool all = std::ranges::all_of(
        cqs, [&](const CqInfo* cq) { return has_layout(memory, map, *cq, layout); });
    if (all && !cqs.empty()) return &layout;
  }
  return nullptr;
}

}  // namespace pollgap
