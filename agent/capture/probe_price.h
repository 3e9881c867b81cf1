// SPDX-License-Identifier: Apache-2.0
// What a probe costs the thread that runs into it, measured on this machine, in this process.
#pragma once

#include <cstdint>

#include "agent/capture/kernel_programs.h"
#include "probes/sites.h"

namespace pollgap {

// Each for one call of a function; 0: could not be measured.
struct ProbePrices {
  uint64_t emulated_ns = 0;        // an entry probe on an instruction that the kernel emulates
  uint64_t single_stepped_ns = 0;  // on another
  uint64_t at_return_ns = 0;       // a return probe, on top of that

  // Of the entry probe of a poll at that site.
  uint64_t of(const Site& site) const;
};

// Places the programs' own probes on functions of the agent, and calls those. Takes some
// milliseconds, and what the kernel takes to remove probes.
ProbePrices measure_probe_prices(KernelPrograms& programs);

}  // namespace pollgap
