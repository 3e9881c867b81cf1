// SPDX-License-Identifier: Apache-2.0
#include "agent/report/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "agent/report/duration.h"
#include "agent/report/escape.h"
#include "agent/report/segment_text.h"
#include "agent/report/text.h"

namespace pollgap {
namespace {

using Sink = std::function<void(std::string_view)>;

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; }
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 76em; padding: 0 1em; }
h1 { font-size: 1.4em; } h2 { font-size: 1.1em; margin-top: 2em; }
pre { font: 12px/1.4 ui-monospace, monospace; overflow-x: auto; }
.legend span { display: inline-block; margin: 0 1em .3em 0; white-space: nowrap; }
.swatch { display: inline-block; width: .9em; height: .9em; margin-right: .35em; vertical-align: -1px; }
.overview { width: 100%; height: 26px; background: #8882; display: block; }
details { border-top: 1px solid #8884; padding: .35em 0; }
summary { cursor: pointer; }
.bar { display: flex; height: 14px; margin: .3em 0; background: #8882; }
.bar i { display: block; min-width: 0; }
)";

// Colors that stay apart for most readers, on light and on dark ground.
const char* color_of(Cause cause) {
  switch (cause) {
    case Cause::preemption:
      return "#d1495b";
    case Cause::throttled:
      return "#8d2f3f";
    case Cause::stopped:
      return "#b36a5e";
    case Cause::blocked:
      return "#5f7d95";
    case Cause::hard_irq:
      return "#7b5ea7";
    case Cause::soft_irq:
      return "#a68bd0";
    case Cause::nmi:
      return "#50337a";
    case Cause::self_kernel:
      return "#e08e2b";
    case Cause::control_verb:
      return "#c9b037";
    case Cause::application:
      return "#3f9c6b";
    case Cause::poll_function:
      return "#8fbf6f";
    case Cause::stolen:
      return "#444b6e";
    case Cause::late_completion:
      return "#2f7fc1";
    case Cause::agent:
      return "#c77fb0";
    case Cause::unexplained:
      return "#9a9a9a";
  }
  return "#9a9a9a";
}

// Text of several lines, as the content of <pre>.
void write_lines(std::string_view text, const Sink& sink) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    sink(html_escaped(text.substr(0, end)));
    sink("\n");
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

void write_legend(const Summary& summary, const Sink& sink) {
  sink("<p class=\"legend\">");
  for (const auto& [cause, row] : summary.by_cause)
    sink(fmt::format("<span><i class=\"swatch\" style=\"background:{}\"></i>{}</span>",
                     color_of(cause), to_string(cause)));
  sink("</p>\n");
}

// One strip a thread, every gap at its place in time.
void write_overview(const std::vector<ReportedGap>& gaps, const Sink& sink) {
  if (gaps.empty()) return;
  uint64_t begin = gaps.front().gap.start_mono_ns;
  uint64_t end = begin + 1;
  std::map<uint32_t, std::vector<const Gap*>> by_thread;
  for (const ReportedGap& reported : gaps) {
    const Gap& gap = reported.gap;
    begin = std::min(begin, gap.start_mono_ns);
    end = std::max(end, gap.start_mono_ns + gap.duration_ns);
    by_thread[gap.tid].push_back(&gap);
  }
  const auto permille = [&](uint64_t ns) {
    return 1000.0 * static_cast<double>(ns) / static_cast<double>(end - begin);
  };
  sink(fmt::format(
      "<h2>Over time</h2>\n<p>{} from the first gap shown to the end of the last.</p>\n",
      duration_text(end - begin)));
  for (const auto& [tid, thread_gaps] : by_thread) {
    sink(
        fmt::format("<div>{}/{}</div>\n<svg class=\"overview\" viewBox=\"0 0 1000 10\" "
                    "preserveAspectRatio=\"none\">\n",
                    html_escaped(thread_gaps.front()->thread), tid));
    for (const Gap* gap : thread_gaps)
      sink(fmt::format(
          "<a href=\"#gap-{}\"><rect x=\"{:.3f}\" y=\"0\" width=\"{:.3f}\" height=\"10\" "
          "fill=\"{}\"><title>gap {}: {}, {}</title></rect></a>\n",
          gap->id, permille(gap->start_mono_ns - begin), std::max(permille(gap->duration_ns), 1.0),
          color_of(gap->verdict.cause), gap->id, duration_text(gap->duration_ns),
          html_escaped(gap->verdict.text)));
    sink("</svg>\n");
  }
}

void write_ledger_bar(const Gap& gap, const Sink& sink) {
  sink("<div class=\"bar\">");
  for (const Segment& segment : gap.segments) {
    const double percent = gap.duration_ns == 0 ? 0
                                                : 100.0 * static_cast<double>(segment.duration_ns) /
                                                      static_cast<double>(gap.duration_ns);
    sink(fmt::format("<i style=\"width:{:.3f}%;background:{}\" title=\"{}: {} {}\"></i>", percent,
                     color_of(segment.cause), to_string(segment.cause),
                     duration_text(segment.duration_ns), html_escaped(describe(segment))));
  }
  sink("</div>\n");
}

void write_gap(const ReportedGap& reported, const Sink& sink) {
  const Gap& gap = reported.gap;
  sink(fmt::format("<details id=\"gap-{0}\"><summary><b>{1}</b> {2}/{3}, CPU {4}, {5}: {6}", gap.id,
                   duration_text(gap.duration_ns), html_escaped(gap.thread), gap.tid, gap.cpu,
                   to_string(gap.kind), html_escaped(gap.verdict.text)));
  write_ledger_bar(gap, sink);
  sink("</summary>\n<pre>");
  write_lines(gap_ledger(reported, TextStyle{}), sink);
  sink("</pre></details>\n");
}

bool longer(const ReportedGap& a, const ReportedGap& b) {
  return a.gap.duration_ns > b.gap.duration_ns;
}

}  // namespace

void HtmlReport::add(ReportedGap&& reported) {
  kept_.push_back(std::move(reported));
  std::ranges::push_heap(kept_, longer);
  if (kept_.size() <= max_gaps_) return;
  std::ranges::pop_heap(kept_, longer);
  kept_.pop_back();
  ++left_out_;
}

void HtmlReport::write(const ReportHead& head, const Sink& sink) {
  std::ranges::sort(kept_, {}, [](const ReportedGap& reported) {
    return std::pair(reported.gap.start_mono_ns, reported.gap.id);
  });
  sink(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<title>pollgap report</title>\n<style>");
  sink(kStyle);
  sink("</style></head><body>\n<h1>pollgap report</h1>\n<pre>");
  write_lines(summary_text(head, TextStyle{}), sink);
  sink("</pre>\n");
  write_legend(head.summary, sink);
  write_overview(kept_, sink);
  sink("<h2>Gaps</h2>\n");
  if (left_out_ > 0)
    sink(fmt::format("<p>The {} longest; {} shorter ones are in the JSON report only.</p>\n",
                     kept_.size(), left_out_));
  for (const ReportedGap& reported : kept_) write_gap(reported, sink);
  sink("</body></html>\n");
}

}  // namespace pollgap
