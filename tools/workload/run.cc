// SPDX-License-Identifier: Apache-2.0
#include "tools/workload/run.h"

#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <vector>

#include "tools/soft-hca/soft_hca.h"
#include "tools/workload/disturbance.h"
#include "tools/workload/monotonic.h"
#include "tools/workload/thread_setup.h"

namespace pollgap::workload {
namespace {

constexpr const char* soft_device = "mlx5_0";
constexpr const char* soft_device_comm = "soft-hca";
constexpr int soft_name_tries = 500;
constexpr uint64_t soft_least_delay_ns = 10 * ns_per_us;
constexpr int soft_device_priority = 10;
constexpr uint64_t wait_step_ns = 10 * ns_per_ms;

// Blocks the signals that speak to the run, in this thread and in those that it makes, and waits
// for one: SIGUSR2 asks how many polls there were, the others end the run.
class RunSignals {
 public:
  enum class Got { nothing, tell_polls, end };

  RunSignals() {
    sigemptyset(&set_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR2}) sigaddset(&set_, signal);
    sigprocmask(SIG_BLOCK, &set_, nullptr);
  }
  // What came within that time.
  Got wait(uint64_t ns) const {
    const timespec timeout = to_timespec(ns);
    const int signal = sigtimedwait(&set_, nullptr, &timeout);
    if (signal <= 0) return Got::nothing;
    return signal == SIGUSR2 ? Got::tell_polls : Got::end;
  }

 private:
  sigset_t set_{};
};

// The thread of that name in this process.
std::optional<pid_t> find_thread(const std::string& comm) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "comm");
    std::string name;
    if (std::getline(file, name) && name == comm) return std::stoi(task.path().filename());
  }
  return std::nullopt;
}

// An ordinary device thread shares its CPU with everybody else there, and completions come
// milliseconds late. One that is SCHED_FIFO does not; but it must sleep now and then, which it does
// when completions take a while.
void make_punctual(const Options& options) {
  if (options.soft_spin || options.completion_delay_ns < soft_least_delay_ns) return;
  sched_param parameters{};
  parameters.sched_priority = soft_device_priority;
  std::optional<pid_t> tid;
  for (int i = 0; i < soft_name_tries && !(tid = find_thread(soft_device_comm)); ++i) {
    usleep(1000);  // it has not named itself yet
  }
  if (tid) (void)sched_setscheduler(*tid, SCHED_FIFO, &parameters);  // only less punctual without
}

Status start_soft_adapter(const Options& options) {
  const std::string error =
      soft_hca::start({.cpu = options.other_cpu,
                       .spin = options.soft_spin,
                       .completion_delay_ns = options.completion_delay_ns,
                       .registration_ns_per_page = options.registration_ns_per_page});
  if (!error.empty()) return Error{ExitCode::other, "soft adapter: " + error};
  return std::nullopt;
}

class Run {
 public:
  Run(const Options& options, std::string tool_options)
      : options_(options), tool_options_(std::move(tool_options)) {}
  ~Run() {
    end_disturbances();
    stop_pollers();
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Status execute() {
    if (Status error = make_disturbances()) return error;
    if (Status error = open_device()) return error;
    if (Status error = make_pollers()) return error;
    if (Status error = prepare_disturbances()) return error;
    if (Status error = start_pollers()) return error;
    if (Status error = announce()) return error;
    Status error = disturb_until_end();
    end_disturbances();
    stop_pollers();
    if (error) return error;
    return write_log();
  }

 private:
  Status make_disturbances();
  Status open_device();
  Status make_pollers();
  Status prepare_disturbances();
  Status start_pollers();
  Status announce() const;
  Status disturb_until_end();
  bool wait_for_go(uint64_t end_ns);
  bool wait_until(uint64_t mono_ns);
  void tell_polls();
  void end_disturbances();
  void stop_pollers();
  Environment environment() { return {options_, *clock_, *device_, pollers_}; }
  Status write_log();
  void log_poller(const Poller& poller, TruthLog& log) const;
  void log_gaps(const Poller& poller, TruthLog& log) const;

  const Options& options_;
  const std::string tool_options_;
  const RunSignals signals_;
  std::unique_ptr<TscClock> clock_;
  std::unique_ptr<TscAnchorer> anchorer_;
  std::unique_ptr<VerbsDevice> device_;
  std::vector<std::unique_ptr<Poller>> pollers_;
  std::vector<std::unique_ptr<Disturbance>> disturbances_;
  std::atomic<bool> poller_failed_{false};
  uint64_t ready_ns_ = 0;
  struct Told {
    Histogram interval, completion;
  };
  std::vector<Told> told_;  // of each poller, when its polls were last asked for
};

// " NAME_p50_ns=... NAME_p99_ns=..." of what came since.
std::string quantiles_since(const char* name, const Histogram& now, const Histogram& before) {
  const Histogram newer = now.since(before);
  return fmt::format(" {0}_p50_ns={1} {0}_p99_ns={2} {0}_p999_ns={3}", name, newer.quantile(0.5),
                     newer.quantile(0.99), newer.quantile(0.999));
}

Status Run::make_disturbances() {
  for (const DisturbanceSpec& spec : options_.disturbances) {
    Result<std::unique_ptr<Disturbance>> made =
        make_disturbance(spec, static_cast<unsigned>(disturbances_.size()));
    if (!made) return made.error();
    if (Status error = (*made)->spawn(options_)) return error;
    disturbances_.push_back(std::move(*made));
  }
  return std::nullopt;
}

Status Run::open_device() {
  // Everything that is not a polling thread stays off their cores.
  if (Status error = pin_thread(options_.other_cpu)) return error;
  clock_ = std::make_unique<TscClock>();
  const bool soft = options_.device == "soft";
  if (soft) {
    if (Status error = start_soft_adapter(options_)) return error;
  }
  Result<std::unique_ptr<VerbsDevice>> opened =
      VerbsDevice::open(soft ? soft_device : options_.device, options_.gid_index);
  if (!opened) return opened.error();
  device_ = std::move(*opened);
  if (soft) make_punctual(options_);
  return std::nullopt;
}

Status Run::make_pollers() {
  int extra = 0;
  for (const auto& disturbance : disturbances_) extra += disturbance->extra_completions();
  for (unsigned i = 0; i < options_.threads; ++i) {
    Result<std::unique_ptr<Endpoint>> endpoint =
        Endpoint::create(*device_, options_, options_.cq_depth + extra);
    if (!endpoint) return endpoint.error();
    pollers_.push_back(std::make_unique<Poller>(
        options_, *clock_, options_.cpus[i % options_.cpus.size()], i, std::move(*endpoint),
        options_.batch + extra, [this] { poller_failed_ = true; }));
  }
  return std::nullopt;
}

Status Run::prepare_disturbances() {
  Environment all = environment();
  for (const auto& disturbance : disturbances_) {
    if (Status error = disturbance->prepare(all)) return error;
  }
  return std::nullopt;
}

Status Run::start_pollers() {
  anchorer_ = std::make_unique<TscAnchorer>(*clock_);
  for (const auto& poller : pollers_) {
    if (Status error = poller->start()) return error;
  }
  ready_ns_ = monotonic_ns();
  return std::nullopt;
}

Status Run::announce() const {
  std::string line = fmt::format("ready pid={} tid=", getpid());
  for (size_t i = 0; i < pollers_.size(); ++i) {
    line += fmt::format("{}{}", i == 0 ? "" : ",", pollers_[i]->tid());
  }
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
  if (options_.ready_path.empty()) return std::nullopt;
  // Renamed into place: who waits for the file never sees half of it.
  const std::string temporary = options_.ready_path + ".tmp";
  std::ofstream file(temporary, std::ios::trunc);
  file << line << '\n';
  file.close();
  if (file && std::rename(temporary.c_str(), options_.ready_path.c_str()) == 0) {
    return std::nullopt;
  }
  return Error{ExitCode::other, fmt::format("cannot write --ready-file {}", options_.ready_path)};
}

void Run::tell_polls() {
  told_.resize(pollers_.size());
  for (size_t i = 0; i < pollers_.size(); ++i) {
    const Poller& poller = *pollers_[i];
    const uint64_t polls = poller.polls();
    const uint64_t now = monotonic_ns();
    const Histogram interval = poller.interval_ns();
    const Histogram completion = poller.completion_ns();
    std::string line = fmt::format("polls tid={} count={} mono_ns={}", poller.tid(), polls, now);
    line += quantiles_since("interval", interval, told_[i].interval);
    line += quantiles_since("completion", completion, told_[i].completion);
    told_[i] = {interval, completion};
    std::printf("%s\n", line.c_str());
  }
  std::fflush(stdout);
}

// True when that time has come, false when the run is to end before.
bool Run::wait_until(uint64_t mono_ns) {
  for (uint64_t now = monotonic_ns(); now < mono_ns; now = monotonic_ns()) {
    if (poller_failed_) return false;
    const RunSignals::Got got = signals_.wait(std::min(wait_step_ns, mono_ns - now));
    if (got == RunSignals::Got::end) return false;
    if (got == RunSignals::Got::tell_polls) tell_polls();
  }
  return !poller_failed_;
}

bool Run::wait_for_go(uint64_t end_ns) {
  while (!options_.go_path.empty() && access(options_.go_path.c_str(), F_OK) != 0) {
    if (monotonic_ns() >= end_ns || !wait_until(monotonic_ns() + wait_step_ns)) return false;
  }
  return true;
}

Status Run::disturb_until_end() {
  const uint64_t end_ns = options_.duration_ns == 0 ? UINT64_MAX : ready_ns_ + options_.duration_ns;
  if (!wait_for_go(end_ns)) return std::nullopt;
  const uint64_t first_ns = monotonic_ns() + options_.start_after_ns;
  for (const auto& disturbance : disturbances_) {
    const auto phase_ns = static_cast<uint64_t>(disturbance->spec().phase_ns);
    if (Status error = disturbance->begin(first_ns + phase_ns)) return error;
  }
  (void)wait_until(end_ns);
  return std::nullopt;
}

void Run::end_disturbances() {
  for (const auto& disturbance : disturbances_) disturbance->end();
}

void Run::stop_pollers() {
  for (const auto& poller : pollers_) poller->stop();
  if (anchorer_) anchorer_->stop();
}

void Run::log_gaps(const Poller& poller, TruthLog& log) const {
  const std::string cq = fmt::format("{:#x}", reinterpret_cast<uintptr_t>(poller.cq()));
  for (const GapRecord& gap : poller.detector().gaps()) {
    const uint64_t start_ns = clock_->to_mono_ns(gap.start_ticks);
    nlohmann::ordered_json record{{"type", "gap"},
                                  {"tid", poller.tid()},
                                  {"cq", cq},
                                  {"kind", to_string(gap.kind)},
                                  {"start_mono_ns", start_ns},
                                  {"duration_ns", clock_->to_mono_ns(gap.end_ticks) - start_ns},
                                  {"completions", gap.completions},
                                  {"outstanding", gap.outstanding}};
    if (gap.kind == GapKind::late_completion) record["polls"] = gap.polls;
    if (gap.posted_ticks > gap.start_ticks)
      record["unposted_ns"] = clock_->to_mono_ns(gap.posted_ticks) - start_ns;
    if (gap.ready_ns > start_ns) record["ready_mono_ns"] = gap.ready_ns;
    if (gap.waited_for_event) record["waited_for_event"] = true;
    if (gap.open) record["open"] = true;
    log.add(std::move(record));
  }
}

nlohmann::ordered_json to_json(const Histogram& histogram) {
  nlohmann::ordered_json buckets = nlohmann::ordered_json::array();
  for (unsigned bucket = 0; bucket < Histogram::buckets; ++bucket) {
    if (histogram.count(bucket) == 0) continue;
    buckets.push_back({Histogram::floor_of(bucket), histogram.count(bucket)});
  }
  return {{"count", histogram.total()},        {"sum_ns", histogram.sum()},
          {"p50_ns", histogram.quantile(0.5)}, {"p99_ns", histogram.quantile(0.99)},
          {"max_ns", histogram.max()},         {"buckets_from_ns", std::move(buckets)}};
}

void Run::log_poller(const Poller& poller, TruthLog& log) const {
  log.add({{"type", "polling_end"},
           {"tid", poller.tid()},
           {"mono_ns", clock_->to_mono_ns(poller.last_poll_ticks())},
           {"polls", poller.polls()},
           {"posted_sends", poller.posted()},
           {"completions", poller.completions()},
           {"storm_completions", poller.storm_completions()},
           {"gaps", poller.detector().gaps().size()},
           {"dropped_gaps", poller.detector().dropped()}});
  log.add({{"type", "histogram"},
           {"tid", poller.tid()},
           {"poll", to_json(poller.poll_ns())},
           {"interval", to_json(poller.interval_ns())},
           {"completion", to_json(poller.completion_ns())}});
}

Status Run::write_log() {
  TruthLog log;
  nlohmann::ordered_json threads = nlohmann::ordered_json::array();
  for (const auto& poller : pollers_) {
    threads.push_back({{"tid", poller->tid()},
                       {"cpu", poller->cpu()},
                       {"cq", fmt::format("{:#x}", reinterpret_cast<uintptr_t>(poller->cq()))}});
  }
  log.add({{"type", "run"},
           {"pid", getpid()},
           {"tool_options", tool_options_},
           {"device", device_->name()},
           {"other_cpu", options_.other_cpu},
           {"ready_mono_ns", ready_ns_},
           {"log_threshold_ns", options_.log_threshold_ns},
           {"stall_threshold_ns", options_.stall_threshold_ns},
           {"clock_error_ns", clock_->worst_anchor_ns() / 2},
           {"threads", threads}});
  for (const auto& poller : pollers_) log_gaps(*poller, log);
  const Environment all = environment();
  for (const auto& disturbance : disturbances_) disturbance->report(all, log);
  size_t gaps = 0;
  std::string failures;
  for (const auto& poller : pollers_) {
    log_poller(*poller, log);
    gaps += poller->detector().gaps().size();
    if (!poller->failure().empty())
      failures += fmt::format("; tid {}: {}", poller->tid(), poller->failure());
  }
  log.add({{"type", "end"}, {"gaps", gaps}, {"disturbances", log.disturbances()}});
  if (!options_.log_path.empty()) {
    if (Status error = log.write(options_.log_path)) return error;
  }
  std::printf("%zu gaps, %zu disturbances\n", gaps, log.disturbances());
  if (failures.empty()) return std::nullopt;
  return Error{ExitCode::other, "polling failed" + failures};
}

}  // namespace

Status run_workload(const Options& options, const std::string& tool_options) {
  return Run(options, tool_options).execute();
}

}  // namespace pollgap::workload
