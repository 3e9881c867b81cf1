// SPDX-License-Identifier: Apache-2.0
// pollgap report: shows a report, one gap's ledger, or turns it into HTML or a trace.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "agent/cli/command.h"
#include "agent/report/atomic_file.h"
#include "agent/report/html.h"
#include "agent/report/read_report.h"
#include "agent/report/trace.h"

namespace pollgap {
namespace {

struct Options {
  std::string path;
  std::string html;
  std::string trace;
  std::optional<uint64_t> gap;
};

// Nothing is printed of a file that turns out to be no report further down.
ExitCode show_text(const Options& options) {
  const TextStyle style = output_style();
  std::string text;
  const auto head = read_report(options.path, [&](ReportedGap&& gap) {
    if (text.empty()) text = gap_line_titles(style) + "\n";
    text += gap_line(gap, style) + "\n";
  });
  if (!head) return tell(head.error());
  if (!text.empty()) text += "\n";
  print(text);
  print(summary_text(head.value(), style));
  return ExitCode::done;
}

ExitCode show_gap(const Options& options) {
  std::string ledger;
  uint64_t gaps = 0;
  const auto head = read_report(options.path, [&](ReportedGap&& gap) {
    ++gaps;
    if (gap.gap.id == *options.gap) ledger = gap_ledger(gap, output_style());
  });
  if (!head) return tell(head.error());
  print(ledger);
  if (!ledger.empty()) return ExitCode::done;
  return tell({ExitCode::other,
               fmt::format("{} has no gap {}: it holds {}, and 'pollgap report {}' lists them",
                           options.path, *options.gap, gaps, options.path)});
}

// Reads the report into `add`, then writes `path` by `finish(head, file)`.
template <typename Add, typename Finish>
ExitCode convert(const Options& options, const std::string& path, AtomicFile& file, Add add,
                 Finish finish) {
  const auto head = read_report(options.path, add);
  if (!head) return tell(head.error());
  finish(head.value());
  if (Status failed = file.commit()) return tell(*failed);
  print(fmt::format("Wrote {}\n", path));
  return ExitCode::done;
}

ExitCode write_html(const Options& options) {
  auto file = AtomicFile::create(options.html);
  if (!file) return tell(file.error());
  HtmlReport html;
  return convert(
      options, options.html, *file, [&](ReportedGap&& gap) { html.add(std::move(gap)); },
      [&](const ReportHead& head) {
        html.write(head, [&](std::string_view bytes) { file->write(bytes); });
      });
}

ExitCode write_trace(const Options& options) {
  auto file = AtomicFile::create(options.trace);
  if (!file) return tell(file.error());
  TraceWriter trace([&](std::string_view bytes) { file->write(bytes); });
  return convert(
      options, options.trace, *file, [&](ReportedGap&& gap) { trace.add(gap); },
      [&](const ReportHead&) { trace.finish(); });
}

ExitCode report(const Options& options) {
  ExitCode exit = ExitCode::done;
  if (options.gap) exit = show_gap(options);
  if (exit == ExitCode::done && !options.html.empty()) exit = write_html(options);
  if (exit == ExitCode::done && !options.trace.empty()) exit = write_trace(options);
  if (!options.gap && options.html.empty() && options.trace.empty()) exit = show_text(options);
  if (exit != ExitCode::done) return exit;
  if (Status failed = output_error()) return tell(*failed);
  return exit;
}

}  // namespace

void add_report(CLI::App& app, ExitCode& exit) {
  auto* command = app.add_subcommand("report", "Show a report");
  auto options = std::make_shared<Options>();
  command->add_option("FILE", options->path, "The JSON report")->required();
  command->add_option("--gap", options->gap, "Show this gap's whole ledger")->type_name("ID");
  command->add_option("--html", options->html, "Write a self-contained HTML page to this file");
  command->add_option("--trace", options->trace,
                      "Write trace-event JSON for ui.perfetto.dev to this file");
  command->callback([options, &exit] { exit = report(*options); });
}

}  // namespace pollgap
