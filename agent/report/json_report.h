// SPDX-License-Identifier: Apache-2.0
// The JSON report, schema "pollgap.report/1" (tools/report.schema.json). A pure function of the
// evidence stream: no clock and no environment, so that a replayed capture gives the same bytes.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/ledger/correlator.h"
#include "agent/ledger/gap.h"
#include "agent/report/gap_json.h"
#include "agent/report/session_info.h"
#include "agent/report/summary.h"

namespace pollgap {

inline constexpr std::string_view kReportSchema = "pollgap.report/1";

// What stands before the gaps in a report.
struct ReportHead {
  SessionInfo session;
  nlohmann::ordered_json coverage;  // an object; "warnings" is an array of lines for a person
  Summary summary;
};

// Takes gaps as they come and keeps each as its line of JSON (a fraction of a Gap's size), since
// the report's summary stands before them.
class ReportBuilder {
 public:
  // `facts` must hold the session already, if the stream has one. Returns the gap as the report
  // will tell it, with wall time and advice, for whoever prints it now.
  ReportedGap add(const Gap& gap, const SessionFacts& facts);

  // `notes` are further lines for coverage.warnings, like what is damaged in a capture.
  ReportHead head(const SessionFacts& facts, const std::vector<std::string>& notes) const;

  // Writes the whole report to `sink` in pieces: the head indented, then one gap a line.
  void write(const ReportHead& head, const std::function<void(std::string_view)>& sink) const;

 private:
  const SessionInfo& session(const SessionFacts& facts);

  SessionInfo session_;
  std::deque<std::string> gap_lines_;
  SummaryBuilder summary_;
};

}  // namespace pollgap
