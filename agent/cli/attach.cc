// SPDX-License-Identifier: Apache-2.0
// pollgap attach: watches a running process and explains its gaps.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>

#include "agent/capture/session.h"
#include "agent/capture_file/capture_writer.h"
#include "agent/cli/command.h"
#include "agent/cli/gap_stream.h"
#include "agent/cli/stop_signal.h"
#include "agent/report/atomic_file.h"
#include "agent/report/duration.h"

namespace pollgap {
namespace {

constexpr int kDrainMs = 100;  // how long a gap may wait to be shown
constexpr uint32_t kLowestObserveHz = 100;
constexpr uint32_t kHighestObserveHz = 50'000;

struct Options {
  AttachOptions attach;
  std::string output;
  std::string capture;
  OutputFormat format = OutputFormat::text;
};

// Tells before attaching whether the capture could be written, without emptying an earlier one.
Status check_capture_path(const std::string& path) {
  const bool existed = access(path.c_str(), F_OK) == 0;
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0)
    return Error{ExitCode::other, fmt::format("cannot write capture {}: {}; choose another place",
                                              path, std::strerror(errno))};
  close(fd);
  if (!existed) unlink(path.c_str());
  return std::nullopt;
}

// Where evidence goes: to the ledger, and to the capture file if there is one.
class Recorder {
 public:
  Recorder(const Options& options) : stream_(options.format, output_style()) {}

  Status open_capture(const std::string& path) {
    if (path.empty()) return std::nullopt;
    auto writer = CaptureWriter::create(path);
    if (!writer) return writer.error();
    capture_.emplace(std::move(writer).value());
    return std::nullopt;
  }

  void accept(std::span<const std::byte> record) {
    stream_.accept(record);
    if (!capture_ || capture_failed_) return;
    capture_failed_ = capture_->append(record);
  }

  // What was lost of the capture does not touch the report.
  Status finish_capture() {
    if (capture_ && !capture_failed_) capture_failed_ = capture_->finish();
    return capture_failed_;
  }

  GapStream& stream() { return stream_; }

 private:
  GapStream stream_;
  std::optional<CaptureWriter> capture_;
  Status capture_failed_;
};

std::string what_is_watched(const Sites& sites) {
  std::string functions;
  size_t cqs = 0;
  for (const Site& site : sites.sites) {
    if (site.role == SiteRole::poll_cq || site.role == SiteRole::start_poll ||
        site.role == SiteRole::user)
      functions += (functions.empty() ? "" : ", ") + site.name;
  }
  for (const ContextInfo& context : sites.contexts) cqs += context.cqs.size();
  return fmt::format("poll functions {}; {} CQs so far", functions.empty() ? "none yet" : functions,
                     cqs);
}

// On standard error, in every format: it tells that gaps are seen from now on.
void tell_attached(const Options& options, const Sites& sites) {
  const std::string until = options.attach.duration_ns == 0
                                ? "until Ctrl-C"
                                : "for " + duration_text(options.attach.duration_ns);
  tell(Error{
      ExitCode::done,
      fmt::format("attached to {} ({}) {}: gaps of {} and more; {}", sites.pid, sites.executable,
                  until, duration_text(options.attach.threshold_ns), what_is_watched(sites))});
}

void announce(CaptureSession& session) {
  for (const std::string& line : session.take_announcements()) tell(Error{ExitCode::done, line});
}

// Until the duration is over, the user stops it, or the target is gone.
Status watch(const Options& options, CaptureSession& session, Recorder& recorder) {
  using Clock = std::chrono::steady_clock;
  const auto sink = [&recorder](std::span<const std::byte> record) { recorder.accept(record); };
  const auto end = Clock::now() + std::chrono::nanoseconds(options.attach.duration_ns);
  while (!stop_requested() && !session.target_gone()) {
    int64_t wait_ms = kDrainMs;
    if (options.attach.duration_ns != 0) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
      if (left.count() <= 0) break;
      wait_ms = std::min<int64_t>(wait_ms, left.count());
    }
    if (Status failed = session.drain(static_cast<int>(wait_ms), sink)) return failed;
    announce(session);
  }
  return std::nullopt;
}

// Every way a session ends comes through here: what was seen is told and written.
ExitCode conclude(const Options& options, Recorder& recorder, std::optional<AtomicFile>& report,
                  const Status& ended_by) {
  std::vector<Error> errors;
  std::vector<std::string> notes;
  if (ended_by) {
    errors.push_back(*ended_by);
    notes.push_back("the session ended early: " + ended_by->message);
  }
  recorder.stream().finish(notes);
  if (report) {
    if (Status failed = recorder.stream().write_report(*report)) {
      errors.push_back(*failed);
    } else if (options.format == OutputFormat::text) {
      print(
          fmt::format("\nReport: {0}  ('pollgap report {0} --gap 1' shows a gap's whole ledger)\n",
                      options.output));
    }
  }
  if (Status failed = recorder.finish_capture()) errors.push_back(*failed);
  if (Status failed = output_error()) errors.push_back(*failed);
  for (const Error& error : errors) tell(error);
  return errors.empty() ? ExitCode::done : errors.front().code;
}

// Two edges, each between two looks, must lie apart for there to be a gap: four looks in each.
constexpr uint64_t kFourSecondsNs = 4'000'000'000;

uint64_t least_looks_hz(const AttachOptions& options) {
  return kFourSecondsNs / options.threshold_ns;
}

Status check_observe(const AttachOptions& options) {
  if (options.timing != "observe") return std::nullopt;
  if (!options.poll_sites.empty()) {
    return Error{
        ExitCode::usage,
        "--poll-site: how that code keeps its CQs is not known, so they cannot be observed: "
        "use --timing uprobe"};
  }
  if (options.observe_hz >= least_looks_hz(options)) return std::nullopt;
  return Error{
      ExitCode::usage,
      fmt::format("--observe-rate {} is too low for gaps of {}: looks are to be a quarter of "
                  "the threshold apart at most, so give --threshold {} or more, or a higher "
                  "rate",
                  options.observe_hz, duration_text(options.threshold_ns),
                  duration_text(kFourSecondsNs / options.observe_hz))};
}

ExitCode attach(Options options) {
  if (options.attach.timing == "auto")
    options.attach.observe_hz = static_cast<uint32_t>(std::clamp<uint64_t>(
        least_looks_hz(options.attach), options.attach.observe_hz, kHighestObserveHz));
  if (Status impossible = check_observe(options.attach)) return tell(*impossible);
  std::optional<AtomicFile> report;
  if (!options.output.empty()) {
    auto file = AtomicFile::create(options.output);
    if (!file) return tell(file.error());
    report.emplace(std::move(file).value());
  }
  if (!options.capture.empty())
    if (Status failed = check_capture_path(options.capture)) return tell(*failed);

  catch_stop_signals();
  auto session = CaptureSession::open(options.attach);
  if (!session) return tell(session.error());
  Recorder recorder(options);
  if (Status failed = recorder.open_capture(options.capture)) return tell(*failed);
  tell_attached(options, (*session)->sites());
  announce(**session);

  Status ended_by = watch(options, **session, recorder);
  if (const std::string end = (*session)->target_end(); !end.empty())
    tell({ExitCode::done, fmt::format("process {} {}", options.attach.pid, end)});
  const Status failed = (*session)->close(
      [&recorder](std::span<const std::byte> record) { recorder.accept(record); });
  if (!ended_by) ended_by = failed;
  return conclude(options, recorder, report, ended_by);
}

// "1%" to "0.01"; what it returns is what is wrong.
std::string read_share(std::string& text) {
  char* end = nullptr;
  const double percent = std::strtod(text.c_str(), &end);
  const bool whole = end != text.c_str() && std::string_view(end) == "%";
  if (!whole || !(percent >= 0.01 && percent <= 100))
    return "'" + text + "' is no share of a core: give 0.01% to 100%";
  text = fmt::format("{}", percent / 100);
  return {};
}

std::string is_trace_event(const std::string& text) {
  const size_t colon = text.find(':');
  const bool whole = colon != std::string::npos && colon > 0 && colon + 1 < text.size();
  return whole && text.find('/') == std::string::npos
             ? std::string()
             : "'" + text + "' is no tracepoint: name it GROUP:EVENT";
}

}  // namespace

void add_attach(CLI::App& app, ExitCode& exit) {
  auto* command = app.add_subcommand("attach", "Attach to a process and explain its gaps");
  auto options = std::make_shared<Options>();
  command->add_option("--pid", options->attach.pid, "The process")
      ->required()
      ->check(CLI::PositiveNumber);
  command->add_option("--tid", options->attach.tids, "Only these threads (default: all that poll)")
      ->check(CLI::PositiveNumber);
  add_duration_option(*command, "--threshold", options->attach.threshold_ns,
                      "The shortest silence that is a gap (default 1ms)");
  add_duration_option(*command, "--duration", options->attach.duration_ns,
                      "How long to watch (default: until Ctrl-C)");
  command
      ->add_option("--timing", options->attach.timing,
                   "How polls are timed: uprobe, at their entry, and at their return where their "
                   "CQs cannot be read; return, at both, for twice the price; observe, not at all: "
                   "the CQs are looked at from another core, and the process is not slowed "
                   "(default auto: uprobe while that is within the budget, else observe)")
      ->check(CLI::IsMember({"auto", "uprobe", "return", "observe"}));
  command
      ->add_option("--overhead-budget", options->attach.overhead_budget,
                   "With --timing auto: the share of a polled core that probes may take (default "
                   "1%)")
      ->transform(CLI::Validator(read_share, "SHARE"));
  command
      ->add_option("--observe-rate", options->attach.observe_hz,
                   "With --timing observe or auto: looks a second (default 5000)")
      ->check(CLI::Range(kLowestObserveHz, kHighestObserveHz));
  command->add_option("--poll-site", options->attach.poll_sites,
                      "Code that polls without verbs: FILE:SYMBOL or FILE+0xOFFSET");
  command
      ->add_option("--trace-event", options->attach.trace_events,
                   "Tell of this kernel tracepoint, too: GROUP:EVENT, * and ? for any characters")
      ->check(CLI::Validator(is_trace_event, "GROUP:EVENT"));
  command->add_option("--output", options->output, "Write the JSON report to this file");
  command->add_option("--capture", options->capture,
                      "Record the evidence to this file, for 'pollgap replay'");
  command
      ->add_option("--format", options->format,
                   "text, or jsonl: one JSON object a line (default text)")
      ->transform(CLI::CheckedTransformer(std::map<std::string, OutputFormat>{
          {"text", OutputFormat::text}, {"jsonl", OutputFormat::jsonl}}));
  command->callback([options, &exit] { exit = attach(*options); });
}

}  // namespace pollgap
