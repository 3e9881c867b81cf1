// SPDX-License-Identifier: Apache-2.0
#include "tools/workload/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "tools/workload/disturbance.h"
#include "tools/workload/duration.h"

namespace pollgap::workload {
namespace {

constexpr const char* description =
    "Busy-polls an RDMA completion queue through public verbs calls, injects disturbances with "
    "known cause and time, and logs both: the ground truth for pollgap.";

// The text of options that CLI11 cannot convert itself.
struct Texts {
  std::string think = "0", think_cycle = "0", duration = "0", start_after = "1s", delay = "20us";
  std::string log_threshold = "500us", stall_threshold = "1ms";
  std::vector<std::string> disturbances;
};

void add_verbs_options(CLI::App& app, Options& o) {
  app.add_option("--device", o.device, "RDMA device, or \"soft\" for the soft mlx5 adapter");
  const std::map<std::string, Operation> operations{
      {"send", Operation::send}, {"write", Operation::write}, {"read", Operation::read}};
  app.add_option("--op", o.operation, "send, write or read")
      ->transform(CLI::CheckedTransformer(operations).description(""));
  const std::map<std::string, PollStyle> styles{{"poll", PollStyle::poll},
                                                {"bare", PollStyle::bare},
                                                {"extended", PollStyle::extended},
                                                {"event", PollStyle::event}};
  app.add_option("--style", o.style,
                 "poll: ibv_poll_cq; bare: the same, the clock read around every 64 that find "
                 "nothing: what a poll costs; extended: start_poll/next_poll/end_poll; event: "
                 "ibv_req_notify_cq and ibv_get_cq_event")
      ->transform(CLI::CheckedTransformer(styles).description(""));
  app.add_option("--size", o.size_bytes, "message size in bytes")->check(CLI::Range(1U, 1U << 20U));
  app.add_option("--batch", o.batch, "work completions asked for by a poll")
      ->check(CLI::Range(1, 65536));
  app.add_option("--signal-every", o.signal_every, "one in N sends is signaled")
      ->check(CLI::Range(1U, 8192U));
  app.add_option("--depth", o.depth, "outstanding sends")->check(CLI::Range(1U, 8192U));
  app.add_option("--cq-depth", o.cq_depth, "entries of the CQ")->check(CLI::Range(1, 1 << 22));
  app.add_option("--gid-index", o.gid_index, "GID index on Ethernet ports (default: chosen)");
  app.add_flag("!--no-post", o.post, "post nothing: every poll is empty");
}

void add_thread_options(CLI::App& app, Options& o, Texts& t) {
  app.add_option("--cpu", o.cpus, "CPUs of the polling threads, in turn (default: the last)")
      ->delimiter(',');
  app.add_option("--other-cpu", o.other_cpu, "CPU of everything else (default: another)");
  const std::map<std::string, Policy> policies{
      {"other", Policy::other}, {"fifo", Policy::fifo}, {"rr", Policy::rr}};
  app.add_option("--policy", o.policy, "of the polling threads: other, fifo or rr")
      ->transform(CLI::CheckedTransformer(policies).description(""));
  app.add_option("--priority", o.priority, "1..99 for fifo and rr; nice value for other");
  app.add_option("--threads", o.threads, "polling threads, each with its own CQ")
      ->check(CLI::Range(1U, 64U));
  app.add_option("--think-ns", t.think, "compute between two polls (a duration, or nanoseconds)");
  app.add_option("--think-cycle", t.think_cycle,
                 "do so only in every second stretch of this length");
}

void add_run_options(CLI::App& app, Options& o, Texts& t) {
  app.add_option("--duration", t.duration, "end after this long (default: on a signal)");
  app.add_option("--log", o.log_path, "ground truth, JSON lines");
  app.add_option("--log-threshold", t.log_threshold, "shortest gap in the log");
  app.add_option("--stall-threshold", t.stall_threshold,
                 "shortest gap that ends a late_completion window");
  app.add_option("--ready-file", o.ready_path, "write \"ready pid=... tid=...\" there as well");
  app.add_option("--go-file", o.go_path, "disturbances begin when this file appears");
  app.add_option("--start-after", t.start_after,
                 "from ready (or the go file) to the first disturbance");
  app.add_option(
         "--disturb", t.disturbances,
         "NAME:period=D,length=D[,count=N][,phase=D][,thread=N][,KEY=VALUE]; repeatable.\n" +
             disturbance_help())
      ->take_all();
  app.add_option("--scratch", o.scratch_directory,
                 "directory on a disk, for major-faults and irq-device");
  app.add_option("--soft-delay", t.delay, "soft adapter: from doorbell to completion");
  app.add_option("--soft-registration-ns", o.registration_ns_per_page,
                 "soft adapter: what ibv_reg_mr takes a page");
  app.add_flag("--soft-spin", o.soft_spin, "soft adapter: its thread spins");
}

Status read_durations(const Texts& t, Options& o) {
  const bool bare_ns = t.think.find_first_not_of("0123456789") == std::string::npos;
  const std::pair<std::string, uint64_t*> durations[] = {
      {bare_ns ? t.think + "ns" : t.think, &o.think_ns},
      {t.think_cycle, &o.think_cycle_ns},
      {t.duration, &o.duration_ns},
      {t.start_after, &o.start_after_ns},
      {t.delay, &o.completion_delay_ns},
      {t.log_threshold, &o.log_threshold_ns},
      {t.stall_threshold, &o.stall_threshold_ns}};
  for (const auto& [text, ns] : durations) {
    Result<uint64_t> parsed = parse_duration(text);
    if (!parsed) return parsed.error();
    *ns = *parsed;
  }
  return std::nullopt;
}

Status check_cpus(Options& o) {
  const int cpus = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  if (o.cpus.empty()) o.cpus = {cpus - 1};
  for (const int cpu : o.cpus) {
    if (cpu < 0 || cpu >= cpus) {
      return Error{ExitCode::usage,
                   fmt::format("--cpu {}: this machine has CPUs 0 to {}", cpu, cpus - 1)};
    }
  }
  if (o.other_cpu >= cpus) {
    return Error{ExitCode::usage, fmt::format("--other-cpu {}: this machine has CPUs 0 to {}",
                                              o.other_cpu, cpus - 1)};
  }
  for (int cpu = 0; cpu < cpus && o.other_cpu < 0; ++cpu) {
    if (std::find(o.cpus.begin(), o.cpus.end(), cpu) == o.cpus.end()) o.other_cpu = cpu;
  }
  o.other_cpu = std::max(o.other_cpu, 0);  // one CPU only: everything shares it
  return std::nullopt;
}

Status check_values(const Options& o) {
  const bool real_time = o.policy != Policy::other;
  if (real_time && (o.priority < 1 || o.priority > 99)) {
    return Error{ExitCode::usage, "--policy fifo and rr need --priority 1..99"};
  }
  if (!real_time && (o.priority < -20 || o.priority > 19)) {
    return Error{ExitCode::usage, "--priority: a nice value is -20..19"};
  }
  if (o.depth < o.signal_every) {
    return Error{ExitCode::usage,
                 "--depth must not be less than --signal-every: no send would ever be retired"};
  }
  // A send and its receive each have a completion.
  const uint32_t most = o.operation == Operation::send ? 2 * o.depth : o.depth;
  if (o.cq_depth < static_cast<int>(most)) {
    return Error{ExitCode::usage, fmt::format("--cq-depth must be at least {} here", most)};
  }
  if (o.style == PollStyle::bare && !o.disturbances.empty()) {
    return Error{ExitCode::usage,
                 "--style bare cannot say where its gaps begin and end: no --disturb with it"};
  }
  if (o.stall_threshold_ns == 0 || o.log_threshold_ns == 0) {
    return Error{ExitCode::usage, "thresholds must be more than 0"};
  }
  return std::nullopt;
}

Status read_disturbances(const Texts& t, Options& o) {
  for (const std::string& text : t.disturbances) {
    Result<DisturbanceSpec> spec = parse_disturbance(text);
    if (!spec) return spec.error();
    if (spec->thread >= o.threads) {
      return Error{ExitCode::usage, fmt::format("--disturb {}: there is no polling thread {}",
                                                spec->name, spec->thread)};
    }
    o.disturbances.push_back(std::move(*spec));
  }
  // Spread, so that disturbances of equal period do not fall on each other.
  for (size_t i = 0; i < o.disturbances.size(); ++i) {
    DisturbanceSpec& spec = o.disturbances[i];
    if (spec.phase_ns >= 0) continue;
    spec.phase_ns = static_cast<int64_t>(spec.period_ns / o.disturbances.size() * i);
  }
  return std::nullopt;
}

std::string first_line(std::string text) {
  text.resize(std::min(text.size(), text.find('\n')));
  return text;
}

}  // namespace

Result<ParsedOptions> parse_options(int argc, const char* const* argv) {
  ParsedOptions parsed;
  Options& o = parsed.options;
  Texts texts;
  CLI::App app{description, "pollgap-workload"};
  add_verbs_options(app, o);
  add_thread_options(app, o, texts);
  add_run_options(app, o, texts);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    parsed.exit_now = true;
    return parsed;
  } catch (const CLI::ParseError& error) {
    return Error{ExitCode::usage, first_line(error.what()) + " (see --help)"};
  }
  if (Status error = read_durations(texts, o)) return *error;
  if (Status error = check_cpus(o)) return *error;
  if (Status error = read_disturbances(texts, o)) return *error;
  if (Status error = check_values(o)) return *error;
  return parsed;
}

std::string command_line(int argc, const char* const* argv) {
  std::string line;
  for (int i = 0; i < argc; ++i) {
    if (i != 0) line += ' ';
    line += argv[i];
  }
  return line;
}

}  // namespace pollgap::workload
