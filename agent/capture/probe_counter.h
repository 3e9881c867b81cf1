// SPDX-License-Identifier: Apache-2.0
// How often the target has run into probes of polls and posts, from memory shared with the kernel's
// programs.
#pragma once

#include <cstdint>
#include <vector>

#include "agent/capture/kernel_programs.h"

namespace pollgap {

class ProbeCounter {
 public:
  // `programs` must outlive it.
  explicit ProbeCounter(const KernelPrograms& programs) : programs_(programs) {}

  // Since the last call (or the session's begin), on the core that had most of them; threads count
  // for the core that they are on now, and those that are not followed as if they shared one.
  uint64_t most_on_a_core();
  // The least time between two polls of one thread and CQ in bursts of probes: no less than what an
  // entry probe takes. 0: not known.
  uint64_t closest_ns() const;

 private:
  const KernelPrograms& programs_;
  std::vector<uint64_t> counted_;  // by slot of the thread clocks
  uint64_t others_counted_ = 0;
};

}  // namespace pollgap
