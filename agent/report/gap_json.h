// SPDX-License-Identifier: Apache-2.0
// One gap as JSON: an element of the report's `gaps`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "agent/ledger/gap.h"
#include "probes/result.h"

namespace pollgap {

// A gap as the report tells it.
struct ReportedGap {
  Gap gap;
  std::string start;                // RFC 3339, "" when the session's clocks are not known
  std::vector<std::string> advice;  // what a person can do, most useful first
};

nlohmann::ordered_json to_json(const ReportedGap& reported);

// One line of JSON without a line break. Bytes that are no UTF-8 become U+FFFD.
std::string to_json_line(const ReportedGap& reported);

// The error's message says what does not fit, without a prefix: "verdict.cause is missing".
// Members that are not known are ignored. A ledger whose segments are not sorted and disjoint, or
// do not sum to the gap's duration, is refused.
Result<ReportedGap> gap_from_json(const nlohmann::ordered_json& json);

}  // namespace pollgap
