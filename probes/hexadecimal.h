// SPDX-License-Identifier: Apache-2.0
// Bytes as a build-id is written: two lower-case digits each.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace pollgap {

inline std::string hexadecimal(std::span<const unsigned char> bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

}  // namespace pollgap
