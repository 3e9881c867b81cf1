// SPDX-License-Identifier: Apache-2.0
// The report for a person at a terminal. Every string from the target or the kernel is made
// printable first.
#pragma once

#include <string>

#include "agent/report/gap_json.h"
#include "agent/report/json_report.h"

namespace pollgap {

struct TextStyle {
  bool color = false;  // ANSI colors: only for a terminal
};

// Column titles of gap_line().
std::string gap_line_titles(TextStyle style);

// One aligned line without a line break: start (UTC; CLOCK_MONOTONIC seconds where wall time is not
// known), thread, CPU, duration, kind, and the verdict in words.
std::string gap_line(const ReportedGap& reported, TextStyle style);

// The whole ledger of one gap: verdict, segments as a timeline, culprits, evidence, advice.
std::string gap_ledger(const ReportedGap& reported, TextStyle style);

// Several lines to read at a glance: causes, culprits, polls, what could not be seen, what to do.
std::string summary_text(const ReportHead& head, TextStyle style);

}  // namespace pollgap
