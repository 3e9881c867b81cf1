// SPDX-License-Identifier: Apache-2.0
// From evidence records to what the user sees: each gap on standard output as it is found, the
// summary after the last, and the report. Live sessions and replays go through here alike.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agent/ledger/correlator.h"
#include "agent/report/atomic_file.h"
#include "agent/report/json_report.h"
#include "agent/report/text.h"
#include "probes/result.h"

namespace pollgap {

enum class OutputFormat { text, jsonl };

class GapStream {
 public:
  GapStream(OutputFormat format, TextStyle style) : format_(format), style_(style) {}

  // One record of the stream. The first should be the session's, whose threshold then holds.
  void accept(std::span<const std::byte> record);

  // Prints the summary. `notes` are lines for the report's coverage.warnings.
  void finish(const std::vector<std::string>& notes);

  // After finish(). Errors: those of AtomicFile::commit().
  Status write_report(AtomicFile& file) const;

 private:
  void show(const ReportedGap& reported);

  OutputFormat format_;
  TextStyle style_;
  std::optional<Correlator> correlator_;
  ReportBuilder builder_;
  ReportHead head_;
  std::vector<Gap> gaps_;
  bool titles_shown_ = false;
};

}  // namespace pollgap
