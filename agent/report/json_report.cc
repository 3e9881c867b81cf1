// SPDX-License-Identifier: Apache-2.0
#include "agent/report/json_report.h"

#include <fmt/format.h>

#include "agent/report/advice.h"
#include "agent/report/summary_json.h"

namespace pollgap {
namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Json tool_of(const SessionInfo& session) {
  Json tool = session.tool;
  if (!tool.contains("name")) tool["name"] = "pollgap";
  if (!tool.contains("version")) tool["version"] = "unknown";
  return tool;
}

// What the stream itself tells of what is missing.
std::vector<std::string> stream_warnings(const SessionFacts& facts, const SessionInfo& session,
                                         bool has_coverage) {
  std::vector<std::string> warnings;
  if (!session.present)
    warnings.push_back(
        "the evidence holds no session record: host, target, options and wall times "
        "are not known");
  else if (!session.clock)
    warnings.push_back("the session holds no clock anchor: wall times are not known");
  if (!has_coverage)
    warnings.push_back(
        "the evidence ends before the agent detached: what it could not see was not "
        "recorded, and the last gaps may be missing");
  if (facts.lost > 0)
    warnings.push_back(fmt::format(
        "{} evidence records were lost: time without evidence may be theirs", facts.lost));
  if (facts.malformed > 0)
    warnings.push_back(
        fmt::format("{} evidence records were malformed and left out", facts.malformed));
  return warnings;
}

Json coverage_of(const SessionFacts& facts, const SessionInfo& session,
                 const std::vector<std::string>& notes) {
  const Json recorded = Json::parse(facts.coverage_json, nullptr, false);
  Json coverage = recorded.is_object() ? recorded : Json::object();
  coverage["records"] = facts.records;
  coverage["lost_records"] = facts.lost;
  coverage["malformed_records"] = facts.malformed;
  coverage["first_mono_ns"] = facts.first_ns;
  coverage["last_mono_ns"] = facts.last_ns;
  Json& warnings = coverage["warnings"];
  if (!warnings.is_array()) warnings = Json::array();
  for (auto& warning : stream_warnings(facts, session, recorded.is_object()))
    warnings.push_back(std::move(warning));
  for (const auto& note : notes) warnings.push_back(note);
  return coverage;
}

// `"key": value,` as a member of the indented top-level object.
std::string top_level_member(const char* key, const Json& value) {
  std::string text = dump(value, 2);
  for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 3))
    text.insert(at + 1, "  ");
  return fmt::format("  \"{}\": {},\n", key, text);
}

}  // namespace

const SessionInfo& ReportBuilder::session(const SessionFacts& facts) {
  if (!session_.present) session_ = parse_session_info(facts.session_json);
  return session_;
}

ReportedGap ReportBuilder::add(const Gap& gap, const SessionFacts& facts) {
  const SessionInfo& current = session(facts);
  ReportedGap reported;
  reported.gap = gap;
  if (current.clock) reported.start = wall_time(gap.start_mono_ns, *current.clock);
  reported.advice = advise(gap, current.host_facts);
  summary_.add(gap, reported.advice);
  gap_lines_.push_back(to_json_line(reported));
  return reported;
}

ReportHead ReportBuilder::head(const SessionFacts& facts,
                               const std::vector<std::string>& notes) const {
  ReportHead head;
  head.session = parse_session_info(facts.session_json);
  head.coverage = coverage_of(facts, head.session, notes);
  head.summary = summary_.finish(facts);
  return head;
}

void ReportBuilder::write(const ReportHead& head,
                          const std::function<void(std::string_view)>& sink) const {
  sink("{\n");
  sink(top_level_member("schema", kReportSchema));
  sink(top_level_member("tool", tool_of(head.session)));
  sink(top_level_member("host", head.session.host));
  sink(top_level_member("target", head.session.target));
  sink(top_level_member("options", head.session.options));
  sink(top_level_member("coverage", head.coverage));
  sink(top_level_member("summary", to_json(head.summary)));
  sink("  \"gaps\": [");
  for (size_t i = 0; i < gap_lines_.size(); ++i) {
    sink(i == 0 ? "\n    " : ",\n    ");
    sink(gap_lines_[i]);
  }
  sink(gap_lines_.empty() ? "]\n}\n" : "\n  ]\n}\n");
}

}  // namespace pollgap
