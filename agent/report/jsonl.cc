// SPDX-License-Identifier: Apache-2.0
#include "agent/report/jsonl.h"

#include "agent/report/summary_json.h"

namespace pollgap {
namespace {

std::string line_of(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

std::string gap_jsonl(const ReportedGap& reported) {
  nlohmann::ordered_json line = {{"type", "gap"}};
  line.update(to_json(reported));
  return line_of(line);
}

std::string summary_jsonl(const ReportHead& head) {
  nlohmann::ordered_json line;
  line["type"] = "summary";
  line["tool"] = head.session.tool;
  line["target"] = head.session.target;
  line["options"] = head.session.options;
  line["coverage"] = head.coverage;
  line["summary"] = to_json(head.summary);
  return line_of(line);
}

}  // namespace pollgap
