// SPDX-License-Identifier: Apache-2.0
// Which thread polls which CQ, where polls are not timed: entry probes for some milliseconds.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "agent/capture/kernel_programs.h"
#include "agent/capture/probe_counter.h"
#include "agent/capture/site_probes.h"
#include "probes/result.h"

namespace pollgap {

// A thread that polls a CQ.
struct CqPoller {
  uint64_t cq = 0;
  uint32_t tid = 0;
  uint32_t site = 0;  // index of the poll function
  uint32_t seen = 0;  // its polls of that CQ in bursts, so far
};

// Polls a second of one thread and CQ, while probes slow them down: in the burst with the fewest,
// and in that with the most.
struct PollRate {
  uint32_t site = 0;
  double least = 0, most = 0;
};
using PollRates = std::map<std::pair<uint64_t, uint32_t>, PollRate>;  // by CQ and thread

// Of any time.
std::vector<CqPoller> pollers_since(KernelPrograms& programs, uint64_t ns);

class PollBurst {
 public:
  PollBurst(KernelPrograms& programs, SiteProbes& probes)
      : programs_(programs), probes_(probes), counter_(programs) {}

  // Probes polls until each of those CQs has been polled, for 5 ms at least and 20 ms at most.
  Status run(const std::set<uint64_t>& cqs);

  // Who polled in the latest burst, any CQ; how many polls that were in the time that was nothing
  // but probed, on the core that had most of them.
  const std::vector<CqPoller>& pollers() const { return pollers_; }
  uint64_t polls() const { return polls_; }
  uint64_t length_ns() const { return length_ns_; }

  // Of all bursts so far.
  const PollRates& rates() const { return rates_; }

  // Bursts so far, and how long they probed, placing and taking off included.
  uint64_t count() const { return count_; }
  uint64_t probed_ns() const { return probed_ns_; }

 private:
  void rate(const std::vector<CqPoller>& before, const std::vector<CqPoller>& after);

  KernelPrograms& programs_;
  SiteProbes& probes_;
  ProbeCounter counter_;
  std::vector<CqPoller> pollers_;
  PollRates rates_;
  uint64_t polls_ = 0;
  uint64_t length_ns_ = 0;
  uint64_t count_ = 0;
  uint64_t probed_ns_ = 0;
};

}  // namespace pollgap
