// SPDX-License-Identifier: Apache-2.0
// The one clock of the adapter.
#pragma once

#include <cstdint>
#include <ctime>

namespace pollgap::soft_hca {

// CLOCK_MONOTONIC in nanoseconds; answered by the vDSO, without a system call.
inline uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace pollgap::soft_hca
