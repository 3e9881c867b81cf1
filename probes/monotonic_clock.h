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

// Returns earlier where a signal handler interrupts it.
inline void sleep_until_ns(uint64_t ns) {
  const timespec until{static_cast<time_t>(ns / 1'000'000'000),
                       static_cast<long>(ns % 1'000'000'000)};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
}

}  // namespace pollgap
