// SPDX-License-Identifier: Apache-2.0
#include "agent/report/summary_json.h"

#include "agent/report/json_members.h"

namespace pollgap {

template <typename Visitor, Is<DurationStatistic> T>
void members(Visitor& visit, T& statistic) {
  visit.required("count", statistic.count);
  visit.required("total_ns", statistic.total_ns);
  visit.required("max_ns", statistic.max_ns);
  visit.required("p50_ns", statistic.p50_ns);
  visit.required("p99_ns", statistic.p99_ns);
}

template <typename Visitor, Is<CauseSummary> T>
void members(Visitor& visit, T& cause) {
  members(visit, cause.gaps);
  visit.required("ledger_ns", cause.ledger_ns);
}

template <typename Visitor, Is<CulpritSummary> T>
void members(Visitor& visit, T& culprit) {
  visit.required("cause", culprit.cause);
  visit.required("name", culprit.name);
  visit.required("total_ns", culprit.total_ns);
  visit.required("count", culprit.count);
  visit.required("gaps", culprit.gaps);
}

template <typename Visitor, Is<AdviceSummary> T>
void members(Visitor& visit, T& advice) {
  visit.required("text", advice.text);
  visit.required("gaps", advice.gaps);
  visit.required("gap_ns", advice.gap_ns);
}

template <typename Visitor, Is<ThreadSummary> T>
void members(Visitor& visit, T& thread) {
  visit.required("tid", thread.tid);
  visit.required("thread", thread.thread);
  visit.required("gaps", thread.gaps);
  visit.required("gap_ns", thread.gap_ns);
}

template <typename Visitor, Is<Latency> T>
void members(Visitor& visit, T& latency) {
  visit.required("count", latency.count);
  visit.required("sum_ns", latency.sum_ns);
  visit.required("longest_ns", latency.longest_ns);
}

template <typename Visitor, Is<EventWaits> T>
void members(Visitor& visit, T& waits) {
  visit.required("interrupt_to_wakeup", waits.interrupt_to_wakeup);
  visit.required("wakeup_to_run", waits.wakeup_to_run);
  visit.required("run_to_poll", waits.run_to_poll);
}

template <typename Visitor, Is<CqSummary> T>
void members(Visitor& visit, T& cq) {
  visit.required("tid", cq.tid);
  visit.nullable_hex("cq", cq.cq);
  visit.required("gaps", cq.gaps);
  visit.required("gap_ns", cq.gap_ns);
  visit.required("polls", cq.totals.polls);
  visit.required("empty_polls", cq.totals.empty_polls);
  visit.required("completions", cq.totals.completions);
  visit.required("error_completions", cq.totals.error_completions);
  visit.required("idle_ns", cq.totals.idle_ns);
  visit.required("posted_sends", cq.totals.posted_sends);
  visit.required("posted_signaled", cq.totals.posted_signaled);
  visit.required("first_mono_ns", cq.totals.first_mono_ns);
  visit.required("last_mono_ns", cq.totals.last_mono_ns);
  visit.optional("event_waits", cq.totals.event_waits);
}

// An object whose keys are the names of an enumeration.
template <typename Enum, typename T>
void members(MemberWriter& visit, const std::map<Enum, T>& by_name) {
  for (const auto& [key, value] : by_name) visit.required(to_string(key), value);
}
template <typename Enum, typename T>
void members(MemberReader& visit, std::map<Enum, T>& by_name) {
  for (int i = 0; i <= static_cast<int>(last_of(Enum())); ++i) {
    std::optional<T> value;
    visit.optional(to_string(static_cast<Enum>(i)), value);
    if (value) by_name[static_cast<Enum>(i)] = *value;
  }
}

template <typename Visitor, Is<Summary> T>
void members(Visitor& visit, T& summary) {
  visit.required("gaps", summary.gaps);
  visit.required("gap_ns", summary.gap_ns);
  visit.required("observed_ns", summary.observed_ns);
  visit.required("by_cause", summary.by_cause);
  visit.required("by_kind", summary.by_kind);
  visit.required("culprits", summary.culprits);
  visit.required("advice", summary.advice);
  visit.required("threads", summary.threads);
  visit.required("cqs", summary.cqs);
}

nlohmann::ordered_json to_json(const Summary& summary) { return MemberWriter::encode(summary); }

Result<Summary> summary_from_json(const nlohmann::ordered_json& json) {
  Summary summary;
  std::string error;
  MemberReader reader(json, error);
  members(reader, summary);
  if (!error.empty()) return Error{ExitCode::other, error};
  return Result<Summary>(std::move(summary));
}

}  // namespace pollgap
