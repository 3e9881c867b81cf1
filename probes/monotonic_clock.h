// SPDX-License-Identifier: Apache-2.0
// Clocks in nanoseconds, CLOCK_MONOTONIC above all: the clock of bpf_ktime_get_ns, and of every
// evidence record.
#pragma once

#include <time.h>

#include <cstdint>

namespace pollgap {

inline uint64_t clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

inline uint64_t monotonic_ns() { return clock_ns(CLOCK_MONOTONIC); }

// The CPU time that the calling thread has used.
inline uint64_t thread_cpu_ns() { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

// Returns earlier where a signal handler interrupts it.
inline void sleep_until_ns(uint64_t ns) {
  const timespec until{static_cast<time_t>(ns / 1'000'000'000),
                       static_cast<long>(ns % 1'000'000'000)};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
}

}  // namespace pollgap
