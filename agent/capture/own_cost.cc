// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/own_cost.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <ctime>

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

// A timer whose expiry nobody waits for: an interrupt on the CPU that armed it, and nothing else.
// (A POSIX timer with SIGEV_NONE is never queued: kernel/time/posix-timers.c.)
class SilentTimer {
 public:
  SilentTimer() : fd_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)) {}
  ~SilentTimer() {
    if (fd_ >= 0) close(fd_);
  }
  SilentTimer(const SilentTimer&) = delete;
  SilentTimer& operator=(const SilentTimer&) = delete;

  bool arm(std::chrono::steady_clock::time_point expiry) const {
    constexpr long kSecondNs = 1'000'000'000;
    const auto time = std::chrono::nanoseconds(expiry.time_since_epoch()).count();
    const itimerspec when{{0, 0}, {time / kSecondNs, time % kSecondNs}};
    return timerfd_settime(fd_, TFD_TIMER_ABSTIME, &when, nullptr) == 0;
  }

 private:
  int fd_;
};

}  // namespace

uint64_t measure_interrupt_cost_ns() {
  using Clock = std::chrono::steady_clock;
  constexpr auto kAhead = std::chrono::microseconds(200);
  constexpr auto kLatest = std::chrono::microseconds(200);  // an interrupt begins by then
  constexpr uint64_t kDearestNs = 100'000;                  // what takes longer is no bare one
  const SilentTimer timer;
  std::array<uint64_t, 21> jumps{};  // of the clock, the longest after each expiry
  for (uint64_t& jump_ns : jumps) {
    const auto expiry = Clock::now() + kAhead;
    if (!timer.arm(expiry)) return 0;
    for (auto before = Clock::now(); before < expiry + kLatest;) {
      const auto now = Clock::now();
      if (now >= expiry) jump_ns = std::max(jump_ns, static_cast<uint64_t>((now - before).count()));
      before = now;
    }
  }
  // The lower quartile: on a busy machine other tasks come in between as often as not. Where even
  // those are no bare interrupts, the least.
  std::sort(jumps.begin(), jumps.end());
  const uint64_t quartile_ns = jumps[jumps.size() / 4];
  const uint64_t cost_ns = quartile_ns <= kDearestNs ? quartile_ns : jumps.front();
  return cost_ns <= kDearestNs ? cost_ns : 0;
}

KernelEntryCost measure_kernel_entry_cost() {
  return {best_of(fault_round_ns), best_of(system_call_round_ns)};
}

}  // namespace pollgap
