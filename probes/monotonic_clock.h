// SPDX-License-Identifier: Apache-2.0
// CLOCK_MONOTONIC in nanoseconds: the clock of bpf_ktime_get_ns, and of every evidence record.
#pragma once

#include <time.h>

#include <cstdint>

namespace pollgap {

inline uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace pollgap
