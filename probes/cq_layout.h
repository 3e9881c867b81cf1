// SPDX-License-Identifier: Apache-2.0
// Where a provider keeps, in its own CQ object, what has been consumed of a CQ. These objects are
// no ABI: each layout is of certain releases of rdma-core, and is believed only of a CQ that has
// all its invariants.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "probes/memory_map.h"
#include "probes/memory_reader.h"
#include "probes/sites.h"

namespace pollgap {

// Offsets in bytes from the ibv_cq, which comes first in the provider's object.
struct CqLayout {
  const char* name;          // "mlx5, rdma-core 35 to 63"
  uint32_t consumer_index;   // u32: completions consumed since the CQ was made
  uint32_t active_buffer;    // pointer to an object whose first word is the ring's address
  uint32_t doorbell_record;  // pointer to the consumer index as the adapter sees it, big endian
  uint32_t entry_bytes;      // int: 64 or 128
};

// Every layout of mlx5's CQs that is known (providers/mlx5/mlx5.h: struct mlx5_cq).
std::span<const CqLayout> mlx5_cq_layouts();

// What of a CQ stays as it is until the CQ is resized or destroyed.
struct Mlx5CqRing {
  uint64_t cq = 0;        // the ibv_cq
  uint64_t context = 0;   // its first word
  uint64_t buffer = 0;    // the object that describes the ring
  uint64_t ring = 0;      // the first entry
  uint64_t doorbell = 0;  // the doorbell record
  uint32_t entries = 0;   // a power of two
  uint32_t entry_bytes = 0;
};

// The CQ's ring, if its memory has what the layout says: an entry size that there is, a mapped ring
// of as many entries as the CQ has, and a doorbell record with the low 24 bits of the consumer
// index.
std::optional<Mlx5CqRing> find_cq_ring(MemoryReader& memory, const MemoryMap& map, const CqInfo& cq,
                                       const CqLayout& layout);
// Whether there is one.
bool has_layout(MemoryReader& memory, const MemoryMap& map, const CqInfo& cq,
                const CqLayout& layout);

// The layout that all CQs of that provider's contexts have; null where there is none, or no CQ to
// see it by.
const CqLayout* find_cq_layout(MemoryReader& memory, const MemoryMap& map,
                               std::span<const ContextInfo> contexts, const std::string& provider);

}  // namespace pollgap
