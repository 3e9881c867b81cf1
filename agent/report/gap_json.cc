// SPDX-License-Identifier: Apache-2.0
#include "agent/report/gap_json.h"

#include <cmath>

#include "agent/report/json_members.h"

namespace pollgap {

// The lists of members, found by argument-dependent lookup. Order is the order in the report.

template <typename Visitor, Is<TaskRef> T>
void members(Visitor& visit, T& task) {
  visit.required("comm", task.comm);
  visit.required("pid", task.pid);
  visit.required("tid", task.tid);
}

template <typename Visitor, Is<Waker> T>
void members(Visitor& visit, T& waker) {
  visit.required("task", waker.task);
  visit.optional("context", waker.context);
}

template <typename Visitor, Is<Frame> T>
void members(Visitor& visit, T& frame) {
  visit.required_hex("address", frame.address);
  visit.optional("function", frame.function);
  visit.optional("file", frame.file);
  visit.optional("line", frame.line);
  visit.optional("module", frame.module);
  visit.optional_hex("module_offset", frame.module_offset);
}

template <typename Visitor, Is<Detail> T>
void members(Visitor& visit, T& detail) {
  visit.optional("kind", detail.kind);
  visit.optional("task", detail.task);
  visit.optional("policy", detail.policy);
  visit.optional("priority", detail.priority);
  visit.optional("rt_priority", detail.rt_priority);
  visit.optional("cgroup", detail.cgroup);
  visit.optional("woken_by", detail.woken_by);
  visit.optional("work_function", detail.work_function);
  visit.optional("throttle", detail.throttle);
  visit.optional("quota_ns", detail.quota_ns);
  visit.optional("period_ns", detail.period_ns);
  visit.optional("signal", detail.signal);
  visit.optional("irq", detail.irq);
  visit.optional("action", detail.action);
  visit.optional("device", detail.device);
  visit.optional("vector", detail.vector);
  visit.optional("rdma_device", detail.rdma_device);
  visit.optional("target_uses_adapter", detail.target_uses_adapter);
  visit.optional("affinity", detail.affinity);
  visit.optional("callback", detail.callback);
  visit.optional("sender", detail.sender);
  visit.optional("syscall", detail.syscall);
  visit.optional("fault", detail.fault);
  visit.optional_hex("address", detail.address);
  visit.optional("verb", detail.verb);
  visit.optional("bytes", detail.bytes);
  visit.optional("result", detail.result);
  visit.optional("upper_bound", detail.upper_bound);
  visit.optional("samples", detail.samples);
  visit.optional("error_completions", detail.error_completions);
  visit.optional("reason", detail.reason);
  visit.optional("outstanding", detail.outstanding);
  visit.optional("polls", detail.polls);
  visit.optional("note", detail.note);
  visit.optional("count", detail.count, uint64_t{1});
  visit.optional("user_stack", detail.user_stack);
  visit.optional("kernel_stack", detail.kernel_stack);
}

template <typename Visitor, Is<Segment> T>
void members(Visitor& visit, T& segment) {
  visit.required("offset_ns", segment.offset_ns);
  visit.required("duration_ns", segment.duration_ns);
  visit.required("cause", segment.cause);
  visit.required("detail", segment.detail);
}

template <typename Visitor, Is<Verdict> T>
void members(Visitor& visit, T& verdict) {
  visit.required("cause", verdict.cause);
  if constexpr (Visitor::reading) {
    visit.required("share", verdict.share);
  } else {
    visit.required("share", std::round(verdict.share * 1e4) / 1e4);
  }
  visit.required("confidence", verdict.confidence);
  visit.optional("culprit_ns", verdict.culprit_ns);
  visit.required("text", verdict.text);
  visit.required("detail", verdict.detail);
}

template <typename Visitor, Is<Culprit> T>
void members(Visitor& visit, T& culprit) {
  visit.required("cause", culprit.cause);
  visit.required("name", culprit.name);
  visit.required("total_ns", culprit.total_ns);
  visit.required("count", culprit.count);
}

template <typename Visitor, Is<ErrorCompletions> T>
void members(Visitor& visit, T& errors) {
  visit.required("errors", errors.errors);
  visit.required("flushes", errors.flushes);
  visit.required("first_status", errors.first_status);
  visit.required("first_status_name", errors.first_status_name);
  visit.required("first_qp_num", errors.first_qp_num);
  visit.required("first_vendor_err", errors.first_vendor_err);
}

template <typename Visitor, Is<CompletionStamp> T>
void members(Visitor& visit, T& stamp) {
  visit.required("ticks", stamp.ticks);
  visit.required("made_after_mono_ns", stamp.made_after_ns);
  visit.required("made_until_mono_ns", stamp.made_until_ns);
  visit.required("written_after_mono_ns", stamp.written_after_ns);
  visit.required("written_until_mono_ns", stamp.written_until_ns);
}

template <typename Visitor, Is<Migration> T>
void members(Visitor& visit, T& migration) {
  visit.required("offset_ns", migration.offset_ns);
  visit.required("from_cpu", migration.from_cpu);
  visit.required("to_cpu", migration.to_cpu);
}

template <typename Visitor, Is<TraceEvidence> T>
void members(Visitor& visit, T& event) {
  visit.required("event", event.event);
  visit.required("offset_ns", event.offset_ns);
  visit.required("cpu", event.cpu);
  visit.required("task", event.task);
  visit.required("text", event.text);
  visit.required("fields", event.fields);
  visit.optional("truncated", event.truncated);
}

template <typename Visitor, Is<GapEvidence> T>
void members(Visitor& visit, T& evidence) {
  visit.optional("completions", evidence.completions);
  visit.optional("outstanding", evidence.outstanding);
  visit.optional("polls", evidence.polls);
  visit.optional("steal_ns", evidence.steal_ns);
  visit.optional("smis", evidence.smis);
  visit.optional("smis_before_ns", evidence.smis_before_ns);
  visit.optional("errors", evidence.errors);
  visit.optional("stamp", evidence.stamp);
  visit.optional("migrations", evidence.migrations);
  visit.optional("trace_events", evidence.trace_events);
  visit.optional("trace_events_left_out", evidence.trace_events_left_out);
  visit.optional("lost_records", evidence.lost_records);
  visit.optional("end_stack", evidence.end_stack);
}

template <typename Visitor, Is<ReportedGap> T>
void members(Visitor& visit, T& reported) {
  auto& gap = reported.gap;
  visit.required("id", gap.id);
  visit.required("kind", gap.kind);
  visit.required("tid", gap.tid);
  visit.required("thread", gap.thread);
  visit.required("cpu", gap.cpu);
  visit.nullable_hex("cq", gap.cq);
  visit.nullable("start", reported.start);
  visit.required("start_mono_ns", gap.start_mono_ns);
  visit.required("duration_ns", gap.duration_ns);
  visit.optional("edge_uncertainty_ns", gap.edge_uncertainty_ns);
  visit.optional("open", gap.open);
  visit.optional("waited_for_event", gap.waited_for_event);
  visit.required("verdict", gap.verdict);
  visit.required("segments", gap.segments);
  visit.required("culprits", gap.culprits);
  visit.required("evidence", gap.evidence);
  visit.required("advice", reported.advice);
}

namespace {

// The invariant that makes a ledger: sorted, disjoint, summing exactly.
std::string ledger_error(const Gap& gap) {
  uint64_t next = 0;
  for (size_t i = 0; i < gap.segments.size(); ++i) {
    const Segment& segment = gap.segments[i];
    if (segment.offset_ns != next)
      return fmt::format("segments[{}] begins at {} ns, not where the one before it ends ({} ns)",
                         i, segment.offset_ns, next);
    if (segment.duration_ns > gap.duration_ns - next)
      return fmt::format("segments[{}] ends after the gap", i);
    next += segment.duration_ns;
  }
  if (next == gap.duration_ns) return {};
  return fmt::format("segments sum to {} ns, not to duration_ns {}", next, gap.duration_ns);
}

}  // namespace

nlohmann::ordered_json to_json(const ReportedGap& reported) {
  return MemberWriter::encode(reported);
}

std::string to_json_line(const ReportedGap& reported) {
  using Json = nlohmann::ordered_json;
  return to_json(reported).dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<ReportedGap> gap_from_json(const nlohmann::ordered_json& json) {
  ReportedGap reported;
  std::string error;
  MemberReader reader(json, error);
  members(reader, reported);
  if (error.empty()) error = ledger_error(reported.gap);
  if (!error.empty()) return Error{ExitCode::other, error};
  return Result<ReportedGap>(std::move(reported));
}

}  // namespace pollgap
