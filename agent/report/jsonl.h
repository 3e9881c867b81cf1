// SPDX-License-Identifier: Apache-2.0
// Output for programs: one JSON object a line.
#pragma once

#include <string>

#include "agent/report/gap_json.h"
#include "agent/report/json_report.h"

namespace pollgap {

// {"type":"gap", ...} with the members of a report's gap. No line break at the end.
std::string gap_jsonl(const ReportedGap& reported);

// {"type":"summary","tool":...,"target":...,"coverage":...,"summary":...}: the last line.
std::string summary_jsonl(const ReportHead& head);

}  // namespace pollgap
