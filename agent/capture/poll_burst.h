// SPDX-License-Identifier: Apache-2.0
// Which thread polls which CQ, where polls are not timed: entry probes for some milliseconds.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <vector>

#include "agent/capture/kernel_programs.h"
#include "agent/capture/site_probes.h"
#include "probes/result.h"

namespace pollgap {

// A thread that polls a CQ.
struct CqPoller {
  uint64_t cq = 0;
  uint32_t tid = 0;
  uint32_t site = 0;  // index of the poll function
};

class PollBurst {
 public:
  PollBurst(KernelPrograms& programs, SiteProbes& probes) : programs_(programs), probes_(probes) {}

  // Probes polls until each of those CQs has been polled, for 5 ms at least and 20 ms at most, and
  // returns who has polled meanwhile (any CQ).
  Result<std::vector<CqPoller>> run(const std::set<uint64_t>& cqs);

  // Bursts so far, and how long they probed, placing and taking off included.
  uint64_t count() const { return count_; }
  uint64_t probed_ns() const { return probed_ns_; }

 private:
  std::vector<CqPoller> pollers_since(uint64_t ns);

  KernelPrograms& programs_;
  SiteProbes& probes_;
  uint64_t count_ = 0;
  uint64_t probed_ns_ = 0;
};

}  // namespace pollgap
