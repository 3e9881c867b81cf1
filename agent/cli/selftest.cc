// SPDX-License-Identifier: Apache-2.0
// pollgap selftest: whether the causes that it names are to be trusted on this machine. A workload
// disturbs itself in known ways, pollgap watches it, and what it named is set beside what was
// injected.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "agent/capture/session.h"
#include "agent/cli/command.h"
#include "agent/cli/stop_signal.h"
#include "agent/cli/workload_process.h"
#include "agent/ledger/correlator.h"
#include "agent/report/duration.h"
#include "agent/selftest/comparison.h"

namespace pollgap {
namespace {

using std::chrono::milliseconds;

struct Options {
  std::filesystem::path workload;
  std::filesystem::path directory;  // empty: a temporary one
  uint64_t length_ns = 5'000'000;
  unsigned rounds = 5;
  std::string timing = "uprobe";
};

// Disturbances of one session. They take turns, so that each is alone.
struct Part {
  std::vector<std::string> options;       // of the workload
  std::vector<std::string> disturbances;  // NAME or NAME,SETTING=VALUE
  milliseconds late{0};                   // how much later than asked for the last may come
};

const std::vector<Part>& parts() {
  static const std::vector<Part> all{
      {.options = {},
       .disturbances = {"fifo", "ordinary", "kworker", "irq", "irq-device", "softirq", "ipi-storm",
                        "minor-faults", "major-faults", "syscalls", "syscalls,variant=storm",
                        "sleep", "futex", "stop", "reg-mr", "verbs", "compute", "late", "errors"},
       .late = milliseconds(200)},
      {.options = {}, .disturbances = {"quota"}, .late = milliseconds(200)},  // a period of its own
      {.options = {"--policy", "fifo", "--priority", "20"},
       .disturbances = {"rt-throttle"},
       .late = milliseconds(1500)}};
  return all;
}

constexpr uint64_t kShortestNs = 2'000'000;
constexpr milliseconds kBegin(200);  // from go to the first disturbance
constexpr milliseconds kApart(60);   // from one disturbance to the next

class SelfTest {
 public:
  explicit SelfTest(const Options& options) : options_(options) {}

  Status run();
  const ConfusionMatrix& matrix() const { return matrix_; }
  const std::vector<std::string>& refused() const { return refused_; }

 private:
  Status run(const Part& part);
  Result<std::unique_ptr<WorkloadProcess>> start(const Part& part);
  Status watch(WorkloadProcess& workload, milliseconds length, std::vector<Gap>& gaps);
  std::vector<std::string> command_options(const Part& part) const;
  milliseconds slot() const {
    return kApart + std::chrono::ceil<milliseconds>(std::chrono::nanoseconds(options_.length_ns));
  }

  const Options& options_;
  std::vector<std::string> refused_;  // why, a line each
  std::vector<std::string> left_;     // the disturbances of the part that are not refused
  ConfusionMatrix matrix_;
};

std::string name_of(const std::string& disturbance) {
  return disturbance.substr(0, disturbance.find(','));
}

std::vector<std::string> SelfTest::command_options(const Part& part) const {
  std::vector<std::string> all{"--device",      "soft",
                               "--log",         options_.directory / "truth.jsonl",
                               "--start-after", fmt::format("{}ms", kBegin.count())};
  all.insert(all.end(), part.options.begin(), part.options.end());
  for (size_t i = 0; i < left_.size(); ++i) {
    const std::string settings = left_[i].substr(name_of(left_[i]).size());
    all.emplace_back("--disturb");
    all.push_back(fmt::format("{}:period={}ms,phase={}ms,length={}ns,count={}{}", name_of(left_[i]),
                              (slot() * left_.size()).count(), (slot() * i).count(),
                              options_.length_ns, options_.rounds, settings));
  }
  return all;
}

// The workload refuses one disturbance at a time that cannot be had here.
Result<std::unique_ptr<WorkloadProcess>> SelfTest::start(const Part& part) {
  for (;;) {
    for (const char* name : {"ready", "go", "truth.jsonl"}) {
      std::error_code nothing_there;
      std::filesystem::remove(options_.directory / name, nothing_there);
    }
    auto started =
        WorkloadProcess::start(options_.workload, options_.directory, command_options(part));
    if (started) return started;
    const std::string name = refused_disturbance(started.error().message);
    const size_t refused = std::erase_if(
        left_, [&](const std::string& disturbance) { return name_of(disturbance) == name; });
    if (refused == 0 || started.error().code == ExitCode::usage) return started;
    refused_.push_back(started.error().message);
    if (left_.empty()) return std::unique_ptr<WorkloadProcess>();
  }
}

Status SelfTest::watch(WorkloadProcess& workload, milliseconds length, std::vector<Gap>& gaps) {
  AttachOptions attach;
  attach.pid = workload.pid();
  attach.timing = options_.timing;
  auto session = CaptureSession::open(attach);
  if (!session) return session.error();
  Correlator correlator({.threshold_ns = attach.threshold_ns});
  const auto sink = [&](std::span<const std::byte> record) { correlator.accept(record, gaps); };
  Status failed = workload.go();
  const auto end = std::chrono::steady_clock::now() + length;
  while (!failed && !stop_requested() && std::chrono::steady_clock::now() < end) {
    if ((*session)->target_gone()) {
      failed = Error{ExitCode::other, "the workload ended before its time"};
      break;
    }
    failed = (*session)->drain(100, sink);
  }
  const Status closed = (*session)->close(sink);
  correlator.finish(gaps);
  return failed ? failed : closed;
}

Status SelfTest::run(const Part& part) {
  left_ = part.disturbances;
  auto workload = start(part);
  if (!workload) return workload.error();
  if (!*workload) return std::nullopt;  // all of them are refused
  const milliseconds length =
      kBegin + slot() * left_.size() * options_.rounds + part.late + milliseconds(300);
  print(
      fmt::format("{} in turn, {} times each: {}\n", fmt::join(left_, " "), options_.rounds,
                  duration_text(static_cast<uint64_t>(std::chrono::nanoseconds(length).count()))));
  std::fflush(stdout);
  std::vector<Gap> gaps;
  if (Status failed = watch(**workload, length, gaps)) return failed;
  if (Status failed = (*workload)->end()) return failed;
  auto truth = read_ground_truth((*workload)->log());
  if (!truth) return truth.error();
  for (const Injected& injected : *truth) matrix_.add(injected, gaps);
  return std::nullopt;
}

Status SelfTest::run() {
  for (const Part& part : parts()) {
    if (Status failed = run(part)) return failed;
    if (stop_requested()) break;
  }
  return std::nullopt;
}

// It is built and installed beside this program.
std::filesystem::path workload_beside() {
  std::error_code unknown;
  return std::filesystem::read_symlink("/proc/self/exe", unknown).parent_path() /
         "pollgap-workload";
}

ExitCode selftest(Options options) {
  if (options.length_ns < kShortestNs) {
    return tell({ExitCode::usage,
                 fmt::format("--length {}: shorter than {} need not be a gap",
                             duration_text(options.length_ns), duration_text(kShortestNs))});
  }
  if (options.workload.empty()) options.workload = workload_beside();
  if (access(options.workload.c_str(), X_OK) != 0) {
    return tell({ExitCode::other,
                 fmt::format("cannot run the workload {}: {}; say with --workload where it is",
                             options.workload.string(), std::strerror(errno))});
  }
  std::string made = (std::filesystem::temp_directory_path() / "pollgap-selftest.XXXXXX").string();
  if (mkdtemp(made.data()) == nullptr) {
    return tell({ExitCode::other,
                 fmt::format("cannot make the directory {}: {}", made, std::strerror(errno))});
  }
  options.directory = made;
  catch_stop_signals();
  SelfTest test(options);
  const Status failed = test.run();
  std::error_code remains;
  std::filesystem::remove_all(made, remains);
  if (failed) return tell(*failed);

  const ConfusionMatrix& matrix = test.matrix();
  print("\n" + matrix.text() + "\n");
  for (const std::string& line : test.refused()) print(fmt::format("not tested: {}\n", line));
  print(fmt::format("{} of {} disturbances were named right, {} wrong\n", matrix.right(),
                    matrix.injected(), matrix.wrong()));
  if (Status lost = output_error()) return tell(*lost);
  if (matrix.injected() == 0) return tell({ExitCode::other, "nothing was injected"});
  if (matrix.wrong() != 0) {
    return tell({ExitCode::other,
                 "causes were named wrongly: run it again when the machine is quiet, and do not "
                 "trust these causes here if they stay wrong"});
  }
  return ExitCode::done;
}

}  // namespace

void add_selftest(CLI::App& app, ExitCode& exit) {
  auto* command = app.add_subcommand(
      "selftest", "Inject known disturbances into a workload, and compare what is named");
  auto options = std::make_shared<Options>();
  command->add_option("--workload", options->workload,
                      "pollgap-workload (default: beside this program)");
  command->add_option("--rounds", options->rounds, "How often each disturbance (default 5)")
      ->check(CLI::Range(1, 1000));
  add_duration_option(*command, "--length", options->length_ns,
                      "How long each disturbance lasts (default 5ms)");
  command->add_option("--timing", options->timing, "As for attach (default uprobe)")
      ->check(CLI::IsMember({"auto", "uprobe", "return"}));
  command->callback([options, &exit] { exit = selftest(*options); });
}

}  // namespace pollgap
