// SPDX-License-Identifier: Apache-2.0
// The CPU's free-running counter, read without a system call: the only part of the workload that
// depends on the architecture.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#elif !defined(__aarch64__)
#error "no cycle counter for this architecture: add it here"
#endif

namespace pollgap::workload {

// Ticks since boot. Not serialized: off by at most the few tens of nanoseconds that the CPU
// reorders it.
inline uint64_t read_cycles() {
#if defined(__x86_64__)
  return __rdtsc();
#else
  uint64_t ticks;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#endif
}

inline void cpu_relax() {
#if defined(__x86_64__)
  _mm_pause();
#else
  asm volatile("yield");
#endif
}

}  // namespace pollgap::workload
