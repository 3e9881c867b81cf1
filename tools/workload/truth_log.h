// SPDX-License-Identifier: Apache-2.0
// The ground truth, as JSON lines. Records are collected in memory and written when polling has
// ended, because writing disturbs the machine that is being measured.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "probes/result.h"

namespace pollgap::workload {

// What happened, once. Times are CLOCK_MONOTONIC; tid is the polling thread that it hit.
struct Occurrence {
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  uint64_t detail = 0;  // what the disturbance keeps of it
};

class TruthLog {
 public:
  void add(nlohmann::ordered_json record) { records_.push_back(std::move(record)); }

  // A disturbance record. cause: pollgap's word for what should be found. culprit: what it should
  // name, in the words of a report's detail. facts: more that is known of this occurrence.
  void add_disturbance(const std::string& name, unsigned index, const std::string& cause, pid_t tid,
                       const Occurrence& occurrence, const nlohmann::ordered_json& culprit,
                       const nlohmann::ordered_json& facts = nullptr);

  size_t disturbances() const { return disturbances_; }
  Status write(const std::string& path) const;

 private:
  std::vector<nlohmann::ordered_json> records_;
  size_t disturbances_ = 0;
};

}  // namespace pollgap::workload
