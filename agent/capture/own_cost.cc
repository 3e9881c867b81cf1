// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/own_cost.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace pollgap {
namespace {

constexpr int kRounds = 5;
constexpr size_t kCalls = 64;

uint64_t elapsed_ns(std::chrono::steady_clock::time_point since) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - since)
          .count());
}

uint64_t fault_round_ns() {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* memory =
      mmap(nullptr, kCalls * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 0;
  madvise(memory, kCalls * page, MADV_NOHUGEPAGE);
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < kCalls; ++i) static_cast<volatile char*>(memory)[i * page] = 1;
  const uint64_t total_ns = elapsed_ns(start);
  munmap(memory, kCalls * page);
  return total_ns / kCalls;
}

uint64_t system_call_round_ns() {
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < kCalls; ++i) syscall(SYS_getppid);
  return elapsed_ns(start) / kCalls;
}

template <typename Round>
uint64_t best_of(Round round) {
  uint64_t best = round();
  for (int i = 1; i < kRounds; ++i) best = std::min(best, round());
  return best;
}

}  // namespace

KernelEntryCost measure_kernel_entry_cost() {
  return {best_of(fault_round_ns), best_of(system_call_round_ns)};
}

}  // namespace pollgap
