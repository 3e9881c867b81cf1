// SPDX-License-Identifier: Apache-2.0
// Each CPU's counter of system management interrupts, as perf events: they count from opening to
// closing, and interrupt nobody. Opening one, and closing it, sends an IPI to its CPU.
#pragma once

#include <bpf/libbpf.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "probes/file_descriptor.h"
#include "probes/result.h"

namespace pollgap {

// How the kernel names the count (PMU "msr", event "smi": Intel's CPUs of family 6).
struct SmiEvent {
  uint32_t type = 0;
  uint64_t config = 0;
};

// Error: this machine does not count them, and why.
Result<SmiEvent> find_smi_event();

class SmiCounters {
 public:
  // One for each CPU that is online. Error: why SMIs are not counted.
  static Result<SmiCounters> open();

  // Puts them where the programs read them: a map of perf events by CPU. False: it takes them not.
  bool put(const bpf_map* map) const;

 private:
  std::vector<std::pair<uint32_t, FileDescriptor>> counters_;  // CPU
};

}  // namespace pollgap
