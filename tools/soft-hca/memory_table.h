// SPDX-License-Identifier: Apache-2.0
// Registered memory, by key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pollgap::soft_hca {

struct MemoryRegion {
  uint64_t address = 0;  // in the process
  uint64_t iova = 0;     // as the adapter addresses it
  uint64_t length = 0;
  uint32_t pd = 0;
  uint32_t access = 0;  // IBV_ACCESS_*
};

// The table has a fixed size, so that the device thread neither allocates nor frees.
class MemoryTable {
 public:
  explicit MemoryTable(uint32_t capacity) : slots_(capacity) {}

  // Returns the key (lkey and rkey are the same, as on mlx5), or 0 when the table is full.
  uint32_t add(const MemoryRegion& region);
  bool remove(uint32_t key);

  // Where `length` bytes at `iova` are in this process; null when the key is unknown, of another
  // protection domain, too short, or lacks one of the `access` rights.
  std::byte* translate(uint32_t key, uint64_t iova, uint64_t length, uint32_t pd,
                       uint32_t access) const;

 private:
  struct Slot {
    uint32_t key = 0;  // 0: free
    uint8_t variant = 0;
    MemoryRegion region;
  };
  // An mlx5 key is an index and 8 bits that change with every use of the index. Index 1 with
  // variant 0 is MLX5_INVALID_LKEY, which ends a receive's scatter list.
  static constexpr uint32_t kFirstIndex = 2;

  std::vector<Slot> slots_;
  uint32_t next_ = 0;
};

}  // namespace pollgap::soft_hca
