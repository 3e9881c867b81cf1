// SPDX-License-Identifier: Apache-2.0
#include "agent/report/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "agent/report/duration.h"
#include "agent/report/escape.h"
#include "agent/report/segment_text.h"

namespace pollgap {
namespace {

constexpr size_t kShownCulprits = 8;
constexpr size_t kShownAdvice = 5;
constexpr size_t kShownCqs = 16;
constexpr size_t kBarColumns = 24;

constexpr std::string_view kBold = "\033[1m";
constexpr std::string_view kDim = "\033[2m";
constexpr std::string_view kYellow = "\033[33m";
constexpr std::string_view kReset = "\033[0m";

std::string painted(std::string_view text, std::string_view color, TextStyle style) {
  return style.color ? fmt::format("{}{}{}", color, text, kReset) : std::string(text);
}

std::string_view cause_color(Cause cause) {
  switch (cause) {
    case Cause::preemption:
    case Cause::throttled:
    case Cause::stopped:
      return "\033[31m";
    case Cause::blocked:
    case Cause::self_kernel:
    case Cause::control_verb:
    case Cause::application:
    case Cause::poll_function:
      return "\033[36m";
    case Cause::hard_irq:
    case Cause::soft_irq:
    case Cause::nmi:
      return "\033[35m";
    case Cause::stolen:
    case Cause::late_completion:
      return "\033[34m";
    case Cause::agent:
    case Cause::unexplained:
      return "\033[33m";
  }
  return "";
}

std::string thread_name(const std::string& comm, uint32_t tid) {
  return comm.empty() ? fmt::format("{}", tid) : fmt::format("{}/{}", terminal_escaped(comm), tid);
}

// "14:02:11.123456" of an RFC 3339 time.
std::string clock_time(const ReportedGap& reported) {
  constexpr size_t kTimeAt = 11, kTimeLength = 15;
  if (reported.start.size() >= kTimeAt + kTimeLength)
    return terminal_escaped(reported.start.substr(kTimeAt, kTimeLength));
  const uint64_t ns = reported.gap.start_mono_ns;
  return fmt::format("{}.{:06}", ns / 1'000'000'000, ns % 1'000'000'000 / 1000);
}

double percent(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string plural(uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

// ---- the ledger of one gap ----

// Where in the gap a segment lies: "    ####        ".
std::string timeline_bar(const Gap& gap, const Segment& segment) {
  std::string bar(kBarColumns, ' ');
  if (gap.duration_ns == 0) return bar;
  const auto column = [&](uint64_t at_ns) {
    return static_cast<size_t>(static_cast<double>(at_ns) / static_cast<double>(gap.duration_ns) *
                               kBarColumns);
  };
  const size_t first = std::min(column(segment.offset_ns), kBarColumns - 1);
  const size_t last =
      std::clamp(column(segment.offset_ns + segment.duration_ns), first + 1, kBarColumns);
  std::fill(bar.begin() + static_cast<ptrdiff_t>(first), bar.begin() + static_cast<ptrdiff_t>(last),
            '#');
  return bar;
}

std::string stack_text(std::string_view title, const std::vector<Frame>& stack) {
  if (stack.empty()) return {};
  std::string out = fmt::format("    {}:\n", title);
  for (const Frame& frame : stack) out += fmt::format("      {}\n", describe(frame));
  return out;
}

std::string segments_text(const Gap& gap, TextStyle style) {
  std::string out = fmt::format("\n  {:>10}  {:>10}  {:>6}  {:<{}}  {:<15}  {}\n", "offset",
                                "duration", "share", "when", kBarColumns, "cause", "what");
  for (const Segment& segment : gap.segments) {
    const std::string cause = fmt::format("{:<15}", to_string(segment.cause));
    const std::string what = describe(segment);
    out += fmt::format("  {:>10}  {:>10}  {:>5.1f}%  {}  {}{}{}\n",
                       "+" + duration_text(segment.offset_ns), duration_text(segment.duration_ns),
                       percent(segment.duration_ns, gap.duration_ns), timeline_bar(gap, segment),
                       painted(cause, cause_color(segment.cause), style), what.empty() ? "" : "  ",
                       what);
    out += stack_text("user stack", segment.detail.user_stack);
    out += stack_text("kernel stack", segment.detail.kernel_stack);
  }
  return out;
}

std::string error_text(const ErrorCompletions& errors) {
  return fmt::format("{}, {} of them flushes; the first{}: {} ({}), QP {}, vendor error {:#x}",
                     plural(errors.errors, "error completion"), errors.flushes,
                     errors.errors == errors.flushes ? "" : " that is no flush",
                     terminal_escaped(errors.first_status_name), errors.first_status,
                     errors.first_qp_num, errors.first_vendor_err);
}

std::string stamp_text(const CompletionStamp& stamp) {
  const auto between = [](uint64_t from_ns, uint64_t to_ns) {
    return to_ns > from_ns ? to_ns - from_ns : 0;
  };
  return fmt::format(
      "by its timestamp the adapter made the completion that ended it {} to {} before it lay in "
      "memory",
      duration_text(between(stamp.made_until_ns, stamp.written_after_ns)),
      duration_text(between(stamp.made_after_ns, stamp.written_until_ns)));
}

std::string trace_text(const TraceEvidence& event) {
  return fmt::format("{} at +{} on CPU {} in {}: {}{}", terminal_escaped(event.event),
                     duration_text(event.offset_ns), event.cpu,
                     thread_name(event.task.comm, event.task.tid), terminal_escaped(event.text),
                     event.truncated ? " [cut off]" : "");
}

std::string evidence_text(const GapEvidence& evidence) {
  std::vector<std::string> lines;
  if (evidence.completions != 0)
    lines.push_back(fmt::format("the poll that ended it returned {}",
                                plural(evidence.completions, "completion")));
  if (evidence.outstanding != 0)
    lines.push_back(
        fmt::format("{} outstanding when it ended", plural(evidence.outstanding, "signaled send")));
  if (evidence.polls != 0) lines.push_back(plural(evidence.polls, "poll") + " inside it");
  if (evidence.steal_ns)
    lines.push_back(fmt::format("steal clock advanced {}", duration_text(*evidence.steal_ns)));
  if (evidence.smis)
    lines.push_back(
        plural(*evidence.smis, "SMI") + " counted on its CPU" +
        (evidence.smis_before_ns == 0
             ? ""
             : fmt::format(" since {} before it", duration_text(evidence.smis_before_ns))));
  if (evidence.errors) lines.push_back(error_text(*evidence.errors));
  if (evidence.stamp) lines.push_back(stamp_text(*evidence.stamp));
  for (const Migration& migration : evidence.migrations)
    lines.push_back(fmt::format("moved from CPU {} to CPU {} at +{}", migration.from_cpu,
                                migration.to_cpu, duration_text(migration.offset_ns)));
  for (const TraceEvidence& event : evidence.trace_events) lines.push_back(trace_text(event));
  if (evidence.trace_events_left_out != 0)
    lines.push_back(plural(evidence.trace_events_left_out, "more tracepoint record"));
  if (evidence.lost_records != 0)
    lines.push_back(plural(evidence.lost_records, "evidence record") + " lost while it lasted");
  std::string out = lines.empty() ? "" : "\n  Evidence\n";
  for (const std::string& line : lines) out += fmt::format("    {}\n", line);
  return out + stack_text("user stack at its end", evidence.end_stack);
}

std::string culprits_text(const Gap& gap) {
  std::string out = gap.culprits.empty() ? "" : "\n  Culprits\n";
  for (const Culprit& culprit : gap.culprits)
    out += fmt::format("    {:>10}  {:<15}  {}{}\n", duration_text(culprit.total_ns),
                       to_string(culprit.cause), terminal_escaped(culprit.name),
                       culprit.count > 1 ? fmt::format(" ({} times)", culprit.count) : "");
  return out;
}

// ---- the summary ----

std::string json_text(const nlohmann::ordered_json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return {};
  if (found->is_string()) return terminal_escaped(found->get_ref<const std::string&>());
  return found->is_number() ? found->dump() : std::string();
}

std::string duration_option(const nlohmann::ordered_json& options, const char* key) {
  const auto found = options.find(key);
  if (found == options.end() || !found->is_number_unsigned()) return {};
  return duration_text(found->get<uint64_t>());
}

std::string title_text(const ReportHead& head) {
  std::string out = "pollgap";
  const SessionInfo& session = head.session;
  if (const auto version = json_text(session.tool, "version"); !version.empty())
    out += " " + version;
  if (const auto pid = json_text(session.target, "pid"); !pid.empty()) out += ": pid " + pid;
  auto name = json_text(session.target, "comm");
  if (name.empty()) name = json_text(session.target, "executable");
  if (!name.empty()) out += fmt::format(" ({})", name);
  out += fmt::format(", watched for {}", duration_text(head.summary.observed_ns));
  if (const auto threshold = duration_option(session.options, "threshold_ns"); !threshold.empty())
    out += fmt::format(", gaps of {} and more", threshold);
  if (const auto timing = json_text(session.options, "timing"); !timing.empty())
    out += fmt::format(", timing {}", timing);
  return out;
}

std::string causes_table(const Summary& summary, TextStyle style) {
  std::string out = fmt::format("  {:<15} {:>8} {:>11} {:>11} {:>11} {:>11} {:>16}\n", "cause",
                                "gaps", "total", "max", "p50", "p99", "of all gap time");
  std::vector<std::pair<Cause, CauseSummary>> rows(summary.by_cause.begin(),
                                                   summary.by_cause.end());
  std::ranges::stable_sort(rows, std::greater{},
                           [](const auto& row) { return row.second.ledger_ns; });
  for (const auto& [cause, row] : rows) {
    const auto cell = [&, gaps = row.gaps.count](uint64_t ns) {
      return gaps == 0 ? std::string("-") : duration_text(ns);
    };
    out += fmt::format("  {} {:>8} {:>11} {:>11} {:>11} {:>11} {:>14.1f} %\n",
                       painted(fmt::format("{:<15}", to_string(cause)), cause_color(cause), style),
                       row.gaps.count, cell(row.gaps.total_ns), cell(row.gaps.max_ns),
                       cell(row.gaps.p50_ns), cell(row.gaps.p99_ns),
                       percent(row.ledger_ns, summary.gap_ns));
  }
  return out;
}

std::string kinds_line(const Summary& summary) {
  std::string out;
  for (const auto& [kind, statistic] : summary.by_kind)
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", statistic.count, to_string(kind));
  return out;
}

std::string top_culprits(const Summary& summary, TextStyle style) {
  if (summary.culprits.empty()) return {};
  std::string out = "\n" + painted("Culprits", kBold, style) + "\n";
  const size_t shown = std::min(summary.culprits.size(), kShownCulprits);
  for (size_t i = 0; i < shown; ++i) {
    const CulpritSummary& culprit = summary.culprits[i];
    out += fmt::format("  {:>11}  {:<15}  {} (in {})\n", duration_text(culprit.total_ns),
                       to_string(culprit.cause), terminal_escaped(culprit.name),
                       plural(culprit.gaps, "gap"));
  }
  return out;
}

std::string cq_thread(const Summary& summary, const CqSummary& cq) {
  const auto thread = std::ranges::find(summary.threads, cq.tid, &ThreadSummary::tid);
  return thread_name(thread == summary.threads.end() ? "" : thread->thread, cq.tid);
}

std::string cq_line(const Summary& summary, const CqSummary& cq) {
  return fmt::format("  {:<22} {:>16} {:>14} {:>14} {:>12} {:>8} {:>10} {:>6}\n",
                     cq_thread(summary, cq), cq.cq == 0 ? "-" : fmt::format("{:#x}", cq.cq),
                     cq.totals.polls, cq.totals.empty_polls, cq.totals.completions,
                     cq.totals.error_completions, duration_text(cq.totals.idle_ns), cq.gaps);
}

// "3.20 us, longest 41.0 us"
std::string latency_text(const Latency& latency) {
  if (latency.count == 0) return "not seen";
  return fmt::format("{}, longest {}", duration_text(latency.sum_ns / latency.count),
                     duration_text(latency.longest_ns));
}

std::string event_waits(const Summary& summary, TextStyle style) {
  std::string out;
  for (const CqSummary& cq : summary.cqs) {
    if (!cq.totals.event_waits) continue;
    const EventWaits& waits = *cq.totals.event_waits;
    out += fmt::format("  {}, cq {:#x}: {}\n", cq_thread(summary, cq), cq.cq,
                       plural(waits.wakeup_to_run.count, "wait"));
    out += fmt::format("    interrupt to wakeup {}; wakeup to run {}; run to poll {}\n",
                       latency_text(waits.interrupt_to_wakeup), latency_text(waits.wakeup_to_run),
                       latency_text(waits.run_to_poll));
  }
  if (out.empty()) return {};
  return "\n" + painted("Waits for completion events", kBold, style) + "\n" + out;
}

std::string cqs_table(const Summary& summary, TextStyle style) {
  if (summary.cqs.empty()) return {};
  std::string out = "\n" + painted("Polls", kBold, style) + "\n";
  out += fmt::format("  {:<22} {:>16} {:>14} {:>14} {:>12} {:>8} {:>10} {:>6}\n", "thread", "cq",
                     "polls", "empty", "completions", "errors", "idle", "gaps");
  const size_t shown = std::min(summary.cqs.size(), kShownCqs);
  for (size_t i = 0; i < shown; ++i) out += cq_line(summary, summary.cqs[i]);
  if (shown < summary.cqs.size())
    out += fmt::format("  and {} more in the report\n", summary.cqs.size() - shown);
  return out;
}

std::string warnings_text(const nlohmann::ordered_json& coverage, TextStyle style) {
  const auto warnings = coverage.find("warnings");
  if (warnings == coverage.end() || !warnings->is_array() || warnings->empty()) return {};
  std::string out = "\n" + painted("What could not be seen", kYellow, style) + "\n";
  for (const auto& warning : *warnings)
    if (warning.is_string())
      out += fmt::format("  - {}\n", terminal_escaped(warning.get_ref<const std::string&>()));
  return out;
}

std::string advice_text(const Summary& summary, TextStyle style) {
  if (summary.advice.empty()) return {};
  std::string out = "\n" + painted("What to do", kBold, style) + "\n";
  const size_t shown = std::min(summary.advice.size(), kShownAdvice);
  for (size_t i = 0; i < shown; ++i) {
    const AdviceSummary& advice = summary.advice[i];
    out += fmt::format(
        "  {}. {} {}\n", i + 1, terminal_escaped(advice.text),
        painted(fmt::format("({}, {})", plural(advice.gaps, "gap"), duration_text(advice.gap_ns)),
                kDim, style));
  }
  return out;
}

}  // namespace

std::string gap_line_titles(TextStyle style) {
  return painted(fmt::format("{:<15}  {:<22} {:>4}  {:>10}  {:<19}  {}", "start (UTC)", "thread",
                             "cpu", "duration", "kind", "what took the time"),
                 kBold, style);
}

std::string gap_line(const ReportedGap& reported, TextStyle style) {
  const Gap& gap = reported.gap;
  std::string what = terminal_escaped(gap.verdict.text);
  if (what.empty()) what = to_string(gap.verdict.cause);
  std::string line =
      fmt::format("{:<15}  {:<22} {:>4}  {}  {:<19}  {}", clock_time(reported),
                  thread_name(gap.thread, gap.tid), gap.cpu,
                  painted(fmt::format("{:>10}", duration_text(gap.duration_ns)), kBold, style),
                  to_string(gap.kind), painted(what, cause_color(gap.verdict.cause), style));
  if (gap.verdict.confidence == Confidence::low) line += painted(" [low confidence]", kDim, style);
  if (gap.open) line += painted(" [had not ended]", kDim, style);
  return line;
}

std::string gap_ledger(const ReportedGap& reported, TextStyle style) {
  const Gap& gap = reported.gap;
  std::string out = painted(
      fmt::format("Gap {}: {} of {}", gap.id, to_string(gap.kind), duration_text(gap.duration_ns)),
      kBold, style);
  out += fmt::format(
      "\n  thread     {} on CPU {}\n  cq         {}\n  start      {} (monotonic {} ns)\n"
      "  duration   {} ns{}{}{}\n  verdict    {} {:.1f}%, confidence {}: {}\n",
      thread_name(gap.thread, gap.tid), gap.cpu,
      gap.cq == 0 ? "not known" : fmt::format("{:#x}", gap.cq),
      reported.start.empty() ? "not known" : terminal_escaped(reported.start), gap.start_mono_ns,
      gap.duration_ns,
      gap.edge_uncertainty_ns == 0
          ? ""
          : fmt::format(", its edges known to {}", duration_text(gap.edge_uncertainty_ns)),
      gap.open ? ", and it had not ended" : "",
      gap.waited_for_event ? ", beside a wait for a completion event" : "",
      to_string(gap.verdict.cause), gap.verdict.share * 100, to_string(gap.verdict.confidence),
      terminal_escaped(gap.verdict.text));
  out += segments_text(gap, style);
  out += culprits_text(gap);
  out += evidence_text(gap.evidence);
  if (!reported.advice.empty()) out += "\n  What to do\n";
  for (const std::string& advice : reported.advice)
    out += fmt::format("    - {}\n", terminal_escaped(advice));
  return out;
}

std::string summary_text(const ReportHead& head, TextStyle style) {
  const Summary& summary = head.summary;
  std::string out = painted(title_text(head), kBold, style) + "\n";
  if (summary.gaps == 0) {
    out += "No gaps.\n";
  } else {
    out += fmt::format("{}, {} of silence: {}\n\n", plural(summary.gaps, "gap"),
                       duration_text(summary.gap_ns), kinds_line(summary));
    out += causes_table(summary, style);
  }
  out += top_culprits(summary, style);
  out += cqs_table(summary, style);
  out += event_waits(summary, style);
  out += warnings_text(head.coverage, style);
  out += advice_text(summary, style);
  return out;
}

}  // namespace pollgap
