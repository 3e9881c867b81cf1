// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/program_pieces.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "tools/soft-hca/program_memory.h"

namespace pollgap::soft_hca {

void copy_in_order(std::byte* to, const std::byte* from, uint64_t length) {
  if (length == 0) return;
  std::memmove(to, from, length - 1);
  std::atomic_ref<std::byte>(to[length - 1]).store(from[length - 1], std::memory_order_release);
}

bool ProgramPieces::resolve(const MemoryTable& memory, uint32_t pd, const SegmentList& segments,
                            uint32_t access) {
  count_ = 0;
  for (uint32_t i = 0; i < segments.count; ++i) {
    const Segment& segment = segments.items[i];
    std::byte* data = segment.is_inline ? at_address<std::byte>(segment.address)
                                        : memory.translate(segment.key, segment.address,
                                                           segment.length, pd, access);
    if (data == nullptr) return false;
    items_[count_++] = {data, segment.length};
  }
  return true;
}

template <typename Copy>
void ProgramPieces::walk(uint64_t offset, uint64_t length, Copy copy) const {
  uint64_t done = 0;
  for (size_t i = 0; i < count_ && done < length; ++i) {
    const Piece& piece = items_[i];
    if (offset >= piece.length) {
      offset -= piece.length;
      continue;
    }
    const uint64_t part = std::min(piece.length - offset, length - done);
    copy(piece.data + offset, done, part);
    done += part;
    offset = 0;
  }
}

void ProgramPieces::gather(uint64_t offset, std::byte* to, uint64_t length) const {
  walk(offset, length, [&](const std::byte* data, uint64_t at, uint64_t part) {
    std::memcpy(to + at, data, part);
  });
}

void ProgramPieces::scatter(uint64_t offset, const std::byte* from, uint64_t length) const {
  walk(offset, length,
       [&](std::byte* data, uint64_t at, uint64_t part) { copy_in_order(data, from + at, part); });
}

}  // namespace pollgap::soft_hca
