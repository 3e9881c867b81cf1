// SPDX-License-Identifier: Apache-2.0
// The CPU time that the calling thread has used, in nanoseconds.
#pragma once

#include <time.h>

#include <cstdint>

namespace pollgap {

inline uint64_t thread_cpu_ns() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<uint64_t>(used.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(used.tv_nsec);
}

}  // namespace pollgap
