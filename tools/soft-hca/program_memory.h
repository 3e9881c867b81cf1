// SPDX-License-Identifier: Apache-2.0
// The verbs ABI and the WQEs name memory by 64-bit integers.
#pragma once

#include <cstdint>

namespace pollgap::soft_hca {

// What is at `address` in this process.
template <typename T>
T* at_address(uint64_t address) {
  return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr): see above
}

}  // namespace pollgap::soft_hca
