// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "tools/workload/cycle_counter.h"

namespace pollgap::workload {

// Of a loop of short, equal steps: the time of those that took about as long as the shortest. In
// the others something else had the core: an interrupt, or the machine's hypervisor.
class StepTime {
 public:
  // Ends a step and begins the next.
  void step() {
    const uint64_t now = read_cycles();
    const uint64_t took = now - last_;
    least_ = std::min(least_, took);
    if (took < longest_of_least * least_) ran_ += took;
    last_ = now;
  }
  uint64_t step_start() const { return last_; }
  uint64_t ran_ticks() const { return ran_; }

 private:
  static constexpr uint64_t longest_of_least = 8;

  uint64_t last_ = read_cycles();
  uint64_t least_ = UINT64_MAX;
  uint64_t ran_ = 0;
};

}  // namespace pollgap::workload
