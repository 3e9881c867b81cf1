// SPDX-License-Identifier: Apache-2.0
// pollgap replay: from a capture to the report that the session gave.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <optional>

#include "agent/capture_file/capture_reader.h"
#include "agent/cli/command.h"
#include "agent/cli/gap_stream.h"
#include "agent/report/atomic_file.h"

namespace pollgap {
namespace {

struct Options {
  std::string capture;
  std::string output;
  OutputFormat format = OutputFormat::text;
};

// All records that can be read; an Error says why it is not all of the capture.
Status read_records(CaptureReader& reader, GapStream& stream) {
  for (;;) {
    const auto record = reader.next();
    if (!record) return record.error();
    if (!record.value()) return std::nullopt;
    stream.accept(*record.value());
  }
}

ExitCode replay(const Options& options) {
  auto reader = CaptureReader::open(options.capture);
  if (!reader) return tell(reader.error());
  std::optional<AtomicFile> report;
  if (!options.output.empty()) {
    auto file = AtomicFile::create(options.output);
    if (!file) return tell(file.error());
    report.emplace(std::move(file).value());
  }

  GapStream stream(options.format, output_style());
  const Status damage = read_records(*reader, stream);
  std::vector<std::string> notes;
  if (damage) notes.push_back(damage->message);
  stream.finish(notes);
  Status failed;
  if (report) failed = stream.write_report(*report);
  if (!failed) failed = output_error();
  if (failed) return tell(*failed);
  if (report && options.format == OutputFormat::text)
    print(fmt::format("\nReport: {}\n", options.output));
  return damage ? tell(*damage) : ExitCode::done;
}

}  // namespace

void add_replay(CLI::App& app, ExitCode& exit) {
  auto* command = app.add_subcommand("replay", "Explain the gaps of a capture");
  auto options = std::make_shared<Options>();
  command->add_option("FILE", options->capture, "The capture (attach --capture)")->required();
  command->add_option("--output", options->output, "Write the JSON report to this file");
  command
      ->add_option("--format", options->format,
                   "text, or jsonl: one JSON object a line (default text)")
      ->transform(CLI::CheckedTransformer(std::map<std::string, OutputFormat>{
          {"text", OutputFormat::text}, {"jsonl", OutputFormat::jsonl}}));
  command->callback([options, &exit] { exit = replay(*options); });
}

}  // namespace pollgap
