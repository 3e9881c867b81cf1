// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/memory_table.h"

#include "tools/soft-hca/program_memory.h"

namespace pollgap::soft_hca {

uint32_t MemoryTable::add(const MemoryRegion& region) {
  for (size_t tried = 0; tried < slots_.size(); ++tried) {
    const uint32_t index = next_;
    next_ = (next_ + 1) % static_cast<uint32_t>(slots_.size());
    Slot& slot = slots_[index];
    if (slot.key != 0) continue;
    slot.key = (index + kFirstIndex) << 8 | slot.variant++;
    slot.region = region;
    return slot.key;
  }
  return 0;
}

bool MemoryTable::remove(uint32_t key) {
  const uint32_t index = (key >> 8) - kFirstIndex;
  if (index >= slots_.size() || slots_[index].key != key) return false;
  slots_[index].key = 0;
  return true;
}

std::byte* MemoryTable::translate(uint32_t key, uint64_t iova, uint64_t length, uint32_t pd,
                                  uint32_t access) const {
  const uint32_t index = (key >> 8) - kFirstIndex;
  if (index >= slots_.size() || slots_[index].key != key) return nullptr;
  const MemoryRegion& region = slots_[index].region;
  if (region.pd != pd || (region.access & access) != access) return nullptr;
  if (iova < region.iova || length > region.length || iova - region.iova > region.length - length) {
    return nullptr;
  }
  return at_address<std::byte>(region.address + (iova - region.iova));
}

}  // namespace pollgap::soft_hca
