// SPDX-License-Identifier: Apache-2.0
// Reads a report back.
#pragma once

#include <functional>
#include <string>

#include "agent/report/gap_json.h"
#include "agent/report/json_report.h"
#include "probes/result.h"

namespace pollgap {

// Calls `on_gap` for each gap in the file's order, holding one at a time, and returns what stands
// before the gaps. Errors name the file and what in it does not fit: it cannot be read, is no JSON
// (with the byte at fault), is of another schema, or has a member that is missing or wrong.
// Members that are not known are ignored.
Result<ReportHead> read_report(const std::string& path,
                               const std::function<void(ReportedGap&&)>& on_gap);

}  // namespace pollgap
