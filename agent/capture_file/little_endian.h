// SPDX-License-Identifier: Apache-2.0
// Little-endian integers in byte arrays.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pollgap {

inline void store_le32(std::byte* to, uint32_t value) {
  for (unsigned i = 0; i < 4; ++i) {
    to[i] = static_cast<std::byte>(value >> (8 * i));
  }
}

inline uint32_t load_le32(const std::byte* from) {
  uint32_t value = 0;
  for (unsigned i = 0; i < 4; ++i) {
    value |= static_cast<uint32_t>(from[i]) << (8 * i);
  }
  return value;
}

}  // namespace pollgap
