// SPDX-License-Identifier: Apache-2.0
#include "agent/report/json_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "agent/ledger/detail.h"
#include "agent/report/advice.h"
#include "agent/report/summary_json.h"

namespace pollgap {
namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// The schema wants both members, whatever a damaged capture still tells.
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

void append_strings(const Json& object, const char* key, std::vector<std::string>& out) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) return;
  for (const Json& item : *found)
    if (item.is_string()) out.push_back(item.get_ref<const std::string&>());
}

bool is_true(const Json& object, const char* key, bool otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() ? found->get<bool>() : otherwise;
}

std::string text_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

uint64_t count_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

// What the agent recorded as out of its sight, in words.
std::vector<std::string> recorded_warnings(const Json& recorded) {
  std::vector<std::string> warnings;
  append_strings(recorded, "warnings", warnings);
  append_strings(recorded, "notes", warnings);
  std::vector<std::string> missing;
  append_strings(recorded, "missing_tracepoints", missing);
  if (!missing.empty())
    warnings.push_back(
        fmt::format("the kernel lacks tracepoints: {}; what they would have shown is "
                    "unexplained",
                    fmt::join(missing, ", ")));
  if (const uint64_t dropped = count_in(recorded, "trace_events_dropped"); dropped > 0)
    warnings.push_back(
        fmt::format("{} tracepoint records were left out: they came too fast", dropped));
  if (!is_true(recorded, "steal_clock_read", true))
    warnings.push_back("the steal clock could not be read: stolen time may be unexplained");
  if (!is_true(recorded, "smis_counted", true))
    warnings.push_back(fmt::format("SMIs are not counted ({}): what they take is unexplained",
                                   text_in(recorded, "smis_not_counted")));
  if (is_true(recorded, "shares_polled_core", false))
    warnings.push_back("the agent had no core of its own: it ran on one where the target polls");
  if (const uint64_t refused = count_in(recorded, "threads_refused"); refused > 0)
    warnings.push_back(fmt::format("{} threads were not watched: too many at a time", refused));
  return warnings;
}

Json coverage_of(const SessionFacts& facts, const SessionInfo& session,
                 const std::vector<std::string>& notes) {
  const Json recorded = Json::parse(facts.coverage_json, nullptr, false);
  Json coverage = recorded.is_object() ? recorded : Json::object();
  std::vector<std::string> warnings = recorded_warnings(coverage);
  for (auto& warning : stream_warnings(facts, session, recorded.is_object()))
    warnings.push_back(std::move(warning));
  warnings.insert(warnings.end(), notes.begin(), notes.end());
  coverage.erase("notes");
  coverage.erase("warnings");
  coverage["records"] = facts.records;
  coverage["lost_records"] = std::max(facts.lost, count_in(coverage, "lost_records"));
  coverage["malformed_records"] = facts.malformed;
  Json interrupts = Json::object();
  for (uint32_t vector = 0; vector < facts.interrupts.size(); ++vector) {
    const InterruptTotals& totals = facts.interrupts[vector];
    if (totals.count == 0) continue;
    interrupts[interrupt_kind(vector)] = {{"count", totals.count}, {"by_agent", totals.by_agent}};
  }
  coverage["interrupts"] = std::move(interrupts);
  coverage["first_mono_ns"] = facts.first_ns;
  coverage["last_mono_ns"] = facts.last_ns;
  coverage["warnings"] = std::move(warnings);
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
  head.session.tool = tool_of(head.session);
  // A session may be told anew; wall times all come from the first anchor.
  if (session_.clock && head.session.clock)
    head.session.host["clock"] = {{"mono_ns", session_.clock->mono_ns},
                                  {"realtime_ns", session_.clock->realtime_ns}};
  head.coverage = coverage_of(facts, head.session, notes);
  head.summary = summary_.finish(facts);
  return head;
}

void ReportBuilder::write(const ReportHead& head,
                          const std::function<void(std::string_view)>& sink) const {
  sink("{\n");
  sink(top_level_member("schema", kReportSchema));
  sink(top_level_member("tool", head.session.tool));
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
