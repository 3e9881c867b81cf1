// SPDX-License-Identifier: Apache-2.0
// Ground truth against gaps: which cause the ledgers name for what a workload injected.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "agent/ledger/gap.h"
#include "probes/result.h"

namespace pollgap {

// Once, by the workload's own log. Times are CLOCK_MONOTONIC nanoseconds.
struct Injected {
  std::string disturbance;  // "fifo"
  std::string cause;        // to_string(Cause)
  uint32_t tid = 0;         // the polling thread that it hit
  uint64_t start_ns = 0, end_ns = 0;
  uint64_t spent_ns = 0;  // of the time from start to end: what its injector saw go into the cause
};

// The disturbances of a workload's log (pollgap-workload --log). Errors: unreadable, or no such
// log.
Result<std::vector<Injected>> read_ground_truth(const std::string& path);

// For each disturbance: what the time injected is called in the ledgers.
class ConfusionMatrix {
 public:
  void add(const Injected& injected, const std::vector<Gap>& gaps);

  uint64_t injected() const;
  uint64_t right() const;
  uint64_t wrong() const;  // of the others: not `unexplained`, and in a gap
  // A line for each disturbance, with titles.
  std::string text() const;

 private:
  struct Row {
    std::string cause;
    std::map<std::string, uint64_t> named;  // how often, by cause
    std::vector<double> shares;             // of the time spent, what the injected cause has
  };
  uint64_t count(bool (*chosen)(const Row& row, const std::string& named)) const;

  std::map<std::string, Row> rows_;  // by disturbance
};

}  // namespace pollgap
