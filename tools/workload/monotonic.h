// SPDX-License-Identifier: Apache-2.0
// CLOCK_MONOTONIC in nanoseconds: the clock of every time in the log, and of the kernel's evidence.
#pragma once

#include <time.h>

#include <cstdint>

namespace pollgap::workload {

inline constexpr uint64_t ns_per_us = 1'000;
inline constexpr uint64_t ns_per_ms = 1'000'000;
inline constexpr uint64_t ns_per_s = 1'000'000'000;

inline uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * ns_per_s + static_cast<uint64_t>(now.tv_nsec);
}

inline timespec to_timespec(uint64_t ns) {
  return {.tv_sec = static_cast<time_t>(ns / ns_per_s),
          .tv_nsec = static_cast<long>(ns % ns_per_s)};
}

}  // namespace pollgap::workload
