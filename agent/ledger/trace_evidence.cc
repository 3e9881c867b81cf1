// SPDX-License-Identifier: Apache-2.0
#include "agent/ledger/trace_evidence.h"

#include <nlohmann/json.hpp>

namespace pollgap {
namespace {

// A person reads no more of one gap.
constexpr size_t kMaxTraceEvents = 32;
constexpr size_t kMaxFields = 64;

using Json = nlohmann::ordered_json;

std::string text_member(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string()
             ? printable(found->get_ref<const std::string&>())
             : std::string();
}

TraceEvidence evidence_of(const TraceEvent& event, uint64_t gap_start_ns) {
  TraceEvidence evidence{.offset_ns = event.header.start_ns - gap_start_ns,
                         .cpu = event.header.cpu,
                         .event = {},
                         .task = {event.tid, event.pid, printable(event.comm)},
                         .text = {},
                         .fields = {},
                         .truncated = false};
  const Json json = Json::parse(event.json, nullptr, false);
  if (!json.is_object()) {
    return evidence;
  }
  evidence.event = text_member(json, "event");
  evidence.text = text_member(json, "text");
  evidence.truncated = json.value("truncated", Json()) == true;
  const auto fields = json.find("fields");
  if (fields == json.end() || !fields->is_object()) {
    return evidence;
  }
  for (const auto& [name, value] : fields->items()) {
    if (value.is_string() && evidence.fields.size() < kMaxFields) {
      evidence.fields.emplace_back(printable(name), printable(value.get_ref<const std::string&>()));
    }
  }
  return evidence;
}

}  // namespace

void add_trace_events(const Account& account, GapEvidence& evidence) {
  account.timeline().trace_events().for_each_overlapping(
      account.start_ns(), account.end_ns(), [&](const TraceEvent& event) {
        if (event.header.start_ns < account.start_ns()) {
          return;
        }
        if (evidence.trace_events.size() < kMaxTraceEvents) {
          evidence.trace_events.push_back(evidence_of(event, account.start_ns()));
        } else {
          ++evidence.trace_events_left_out;
        }
      });
}

}  // namespace pollgap
