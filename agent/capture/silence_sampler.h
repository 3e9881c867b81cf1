// SPDX-License-Identifier: Apache-2.0
// Asks where a target thread stands when it has been silent in user code for half the threshold.
//
// A thread on a housekeeping core looks, every half threshold (or less often: set_period), at when
// each target thread polled last (shared memory, no system call but its own sleep). Only when one
// is silent, on its CPU, and in no kernel entry does it run a program on that CPU, by an IPI: once
// at half the threshold, then each time the silence has doubled. While the target polls, its core
// is left alone.
//
// It is also the witness of standstills: where its sleep ends late because the timer's interrupt
// came late, its own core did not run.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>

#include "agent/capture/kernel_programs.h"

namespace pollgap {

class SilenceSampler {
 public:
  // `programs` must outlive the sampler.
  SilenceSampler(KernelPrograms& programs, uint64_t threshold_ns);
  ~SilenceSampler();
  SilenceSampler(const SilenceSampler&) = delete;
  SilenceSampler& operator=(const SilenceSampler&) = delete;

  // Looks so far apart from now on, but no less than half the threshold.
  void set_period(uint64_t ns) { period_ns_ = std::max(ns, first_ns_); }

  uint64_t asked() const { return asked_; }
  uint64_t cpu_ns() const { return cpu_ns_; }  // that looking has taken

 private:
  void watch();
  void sleep();

  KernelPrograms& programs_;
  const uint64_t first_ns_;
  std::atomic<uint64_t> period_ns_;
  std::atomic<bool> stop_ = false;
  std::atomic<uint64_t> asked_ = 0;
  std::atomic<uint64_t> cpu_ns_ = 0;
  std::thread thread_;
};

// Runs the sampler's program on `cpu`. `snapshot`: tell also of another task that runs there now.
void sample_cpu(KernelPrograms& programs, uint32_t cpu, bool snapshot);

}  // namespace pollgap
