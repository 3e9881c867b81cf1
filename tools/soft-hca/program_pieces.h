// SPDX-License-Identifier: Apache-2.0
// The memory of the program that a list of segments names, and copies out of it and into it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tools/soft-hca/memory_table.h"
#include "tools/soft-hca/work_queues.h"

namespace pollgap::soft_hca {

class ProgramPieces {
 public:
  // Looks up every segment. False when a key is wrong, of another protection domain, too short, or
  // lacks one of the `access` rights.
  bool resolve(const MemoryTable& memory, uint32_t pd, const SegmentList& segments,
               uint32_t access);

  // Copies `length` bytes that begin at `offset` of the list; it has that many.
  void gather(uint64_t offset, std::byte* to, uint64_t length) const;
  void scatter(uint64_t offset, const std::byte* from, uint64_t length) const;

 private:
  struct Piece {
    std::byte* data;
    uint64_t length;
  };
  template <typename Copy>
  void walk(uint64_t offset, uint64_t length, Copy copy) const;

  // At most as many as a WQE has segments.
  std::array<Piece, 64> items_{};
  size_t count_ = 0;
};

// Copies with the last byte last: a program may poll it to learn that a message is there.
void copy_in_order(std::byte* to, const std::byte* from, uint64_t length);

}  // namespace pollgap::soft_hca
