// SPDX-License-Identifier: Apache-2.0
// Reading the memory of a target: the interface that scanners take, so that tests and fuzzers can
// feed them memory of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

namespace pollgap {

struct AddressRange {
  uint64_t start = 0;
  uint64_t end = 0;
};

// Where to copy memory from, and to; `complete`: all of it was copied by the latest reading.
struct MemoryPiece {
  uint64_t address = 0;
  std::span<std::byte> out;
  bool complete = false;
};

class MemoryReader {
 public:
  MemoryReader() = default;
  virtual ~MemoryReader() = default;
  MemoryReader(const MemoryReader&) = delete;
  MemoryReader& operator=(const MemoryReader&) = delete;

  // Copies memory from `address` on into `out`. Returns how many bytes were copied: fewer than
  // asked for where the memory ends or cannot be read.
  virtual size_t read(uint64_t address, std::span<std::byte> out) = 0;

  // Reads each piece, as nearly at once and in that order as can be.
  virtual void read_pieces(std::span<MemoryPiece> pieces) {
    for (MemoryPiece& piece : pieces)
      piece.complete = read(piece.address, piece.out) == piece.out.size();
  }

  // The parts of the range worth reading, in order: reading a page that the target never touched,
  // or that was swapped out, would change the target.
  virtual std::vector<AddressRange> resident(AddressRange range) { return {range}; }

  // One object, or nothing where it is not readable as a whole.
  template <typename T>
  std::optional<T> load(uint64_t address) {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span<T, 1>(&value, 1));
    if (read(address, bytes) != sizeof(T)) return std::nullopt;
    return value;
  }
};

}  // namespace pollgap
