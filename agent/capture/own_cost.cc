// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/own_cost.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <ctime>
#include <vector>

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

// A timer that tells nobody: its expiry is an interrupt on the CPU that armed it, and nothing else.
class SilentTimer {
 public:
  explicit SilentTimer(std::chrono::nanoseconds period) {
    sigevent nobody{};
    nobody.sigev_notify = SIGEV_NONE;
    armed_ = timer_create(CLOCK_MONOTONIC, &nobody, &timer_) == 0;
    const timespec interval{0, static_cast<long>(period.count())};
    const itimerspec when{interval, interval};
    if (armed_) timer_settime(timer_, 0, &when, nullptr);
  }
  ~SilentTimer() {
    if (armed_) timer_delete(timer_);
  }
  SilentTimer(const SilentTimer&) = delete;
  SilentTimer& operator=(const SilentTimer&) = delete;

 private:
  timer_t timer_{};
  bool armed_ = false;
};

}  // namespace

uint64_t measure_interrupt_cost_ns() {
  constexpr auto kSpin = std::chrono::milliseconds(10);
  constexpr uint64_t kLooksNs = 1000;  // two looks at the clock are closer than this
  const SilentTimer timer(std::chrono::microseconds(500));
  std::vector<uint64_t> jumps;
  const auto start = std::chrono::steady_clock::now();
  auto before = start;
  while (before - start < kSpin) {
    const auto now = std::chrono::steady_clock::now();
    const auto jump_ns = static_cast<uint64_t>((now - before).count());
    if (jump_ns > kLooksNs) jumps.push_back(jump_ns);
    before = now;
  }
  if (jumps.empty()) return 0;
  const auto middle = jumps.begin() + static_cast<ptrdiff_t>(jumps.size() / 2);
  std::nth_element(jumps.begin(), middle, jumps.end());
  return *middle;
}

KernelEntryCost measure_kernel_entry_cost() {
  return {best_of(fault_round_ns), best_of(system_call_round_ns)};
}

}  // namespace pollgap
