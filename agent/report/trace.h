// SPDX-License-Identifier: Apache-2.0
// A report as trace-event JSON, for chrome://tracing and ui.perfetto.dev ("Trace Event Format").
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>

#include "agent/report/gap_json.h"

namespace pollgap {

// Each gap is a slice with its segments nested in it. Gaps of different kinds or CQs may overlap in
// time, so each thread, CQ and kind has a track of its own. Times are CLOCK_MONOTONIC.
class TraceWriter {
 public:
  explicit TraceWriter(std::function<void(std::string_view)> sink);

  void add(const ReportedGap& reported);
  // Once, after the last gap.
  void finish();

 private:
  uint64_t track_of(const Gap& gap);
  void write(const nlohmann::ordered_json& event);

  std::function<void(std::string_view)> sink_;
  std::map<std::tuple<uint32_t, uint64_t, GapKind>, uint64_t> tracks_;
  bool first_ = true;
};

}  // namespace pollgap
