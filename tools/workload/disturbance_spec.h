// SPDX-License-Identifier: Apache-2.0
// One --disturb argument: which disturbance, when, how long.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "probes/result.h"
#include "tools/workload/monotonic.h"

namespace pollgap::workload {

struct DisturbanceSpec {
  std::string name;
  uint64_t period_ns = ns_per_s;
  uint64_t length_ns = 5 * ns_per_ms;
  uint64_t count = 0;     // 0: as long as the workload runs
  int64_t phase_ns = -1;  // of the first occurrence after the beginning; -1: spread evenly
  unsigned thread = 0;    // index of the polling thread that it hits
  std::map<std::string, std::string> settings;  // the disturbance's own key=value pairs
};

// "fifo:period=200ms,length=5ms,count=10". Errors have ExitCode::usage. Which names and which
// settings exist is for the disturbances to say.
Result<DisturbanceSpec> parse_disturbance(std::string_view text);

// When a disturbance occurs: at first, first + period, ...; absolute, so that one late occurrence
// does not shift those after it. In any unit of time. A time that has passed before it was asked
// for is left out, and does not count.
class Schedule {
 public:
  Schedule() = default;
  // count: 0 is without end. period: not 0.
  Schedule(uint64_t first, uint64_t period, uint64_t count)
      : first_(first), period_(period), count_(count) {}

  // The time of the next occurrence, not before now; nothing when there were `count` of them.
  std::optional<uint64_t> next(uint64_t now);

 private:
  uint64_t first_ = 0;
  uint64_t period_ = 1;
  uint64_t count_ = 0;
  uint64_t given_ = 0;   // occurrences
  uint64_t number_ = 0;  // of the next one on the grid
};

}  // namespace pollgap::workload
