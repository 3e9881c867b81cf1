// SPDX-License-Identifier: Apache-2.0
// A report as one self-contained HTML file: no script, nothing loaded from elsewhere.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/report/gap_json.h"
#include "agent/report/json_report.h"

namespace pollgap {

// Shows the longest `max_gaps` gaps, in the order of their start, and says how many it left out: a
// page with a hundred thousand ledgers would open nowhere.
class HtmlReport {
 public:
  explicit HtmlReport(size_t max_gaps = 2000) : max_gaps_(max_gaps) {}

  void add(ReportedGap&& reported);
  void write(const ReportHead& head, const std::function<void(std::string_view)>& sink);

 private:
  size_t max_gaps_;
  size_t left_out_ = 0;
  std::vector<ReportedGap> kept_;  // a heap, the shortest on top
};

}  // namespace pollgap
