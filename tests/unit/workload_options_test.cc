// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "tools/workload/disturbance.h"
#include "tools/workload/duration.h"
#include "tools/workload/options.h"

namespace pollgap::workload {
namespace {

TEST(Duration, Units) {
  const std::vector<std::pair<std::string, uint64_t>> good{{"0", 0},
                                                           {"1ns", 1},
                                                           {"250us", 250'000},
                                                           {"5ms", 5'000'000},
                                                           {"1.5s", 1'500'000'000},
                                                           {"0.5ms", 500'000},
                                                           {"2s", 2'000'000'000}};
  for (const auto& [text, ns] : good) {
    Result<uint64_t> parsed = parse_duration(text);
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(*parsed, ns) << text;
  }
}

TEST(Duration, RefusesAnythingElse) {
  for (const char* text : {"", "5", "ms", "-5ms", "5 ms", "5m", "5msx", "1e9s", "nan", "inf",
                           "99999999999999s", "+1s"}) {
    const Result<uint64_t> parsed = parse_duration(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, ExitCode::usage);
  }
}

TEST(DisturbanceSpec, NameAndKeys) {
  Result<DisturbanceSpec> spec = parse_disturbance(
      "syscalls:period=200ms,length=2ms,count=7,phase=10ms,thread=1,variant=storm");
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->name, "syscalls");
  EXPECT_EQ(spec->period_ns, 200 * ns_per_ms);
  EXPECT_EQ(spec->length_ns, 2 * ns_per_ms);
  EXPECT_EQ(spec->count, 7U);
  EXPECT_EQ(spec->phase_ns, static_cast<int64_t>(10 * ns_per_ms));
  EXPECT_EQ(spec->thread, 1U);
  EXPECT_EQ(spec->settings.at("variant"), "storm");
}

TEST(DisturbanceSpec, DefaultsOfABareName) {
  Result<DisturbanceSpec> spec = parse_disturbance("sleep");
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->period_ns, ns_per_s);
  EXPECT_EQ(spec->length_ns, 5 * ns_per_ms);
  EXPECT_EQ(spec->count, 0U);
}

TEST(DisturbanceSpec, RefusesWhatIsWrong) {
  for (const char* text : {"", ":length=5ms", "sleep:length", "sleep:=5ms", "sleep:length=5",
                           "sleep:count=many", "sleep:count=-1", "sleep:length=0",
                           "sleep:period=5ms,length=5ms", "sleep:period=1ms,length=5ms"}) {
    const Result<DisturbanceSpec> spec = parse_disturbance(text);
    ASSERT_FALSE(spec) << text;
    EXPECT_EQ(spec.error().code, ExitCode::usage);
  }
}

TEST(Schedule, KeepsItsGrid) {
  Schedule schedule(1000, 100, 3);
  EXPECT_EQ(schedule.next(0), 1000U);
  EXPECT_EQ(schedule.next(1005), 1100U);
  EXPECT_EQ(schedule.next(1390), 1400U);  // 1200 and 1300 have passed
  EXPECT_EQ(schedule.next(1400), std::nullopt);
}

TEST(Schedule, WithoutEnd) {
  Schedule schedule(0, 10, 0);
  for (uint64_t i = 0; i < 1000; ++i) EXPECT_EQ(schedule.next(0), i * 10);
}

Result<ParsedOptions> parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "pollgap-workload");
  return parse_options(static_cast<int>(arguments.size()), arguments.data());
}

TEST(Options, Defaults) {
  Result<ParsedOptions> parsed = parse({});
  ASSERT_TRUE(parsed) << parsed.error().message;
  const Options& options = parsed->options;
  EXPECT_EQ(options.device, "soft");
  EXPECT_EQ(options.cpus.size(), 1U);
  EXPECT_EQ(options.start_after_ns, ns_per_s);
  EXPECT_EQ(options.stall_threshold_ns, ns_per_ms);
  EXPECT_EQ(options.log_threshold_ns, 500 * ns_per_us);
  EXPECT_TRUE(options.post);
}

TEST(Options, All) {
  Result<ParsedOptions> parsed = parse({"--device",
                                        "rxe0",
                                        "--cpu",
                                        "0",
                                        "--policy",
                                        "fifo",
                                        "--priority",
                                        "7",
                                        "--size",
                                        "4096",
                                        "--op",
                                        "read",
                                        "--batch",
                                        "4",
                                        "--signal-every",
                                        "8",
                                        "--depth",
                                        "32",
                                        "--cq-depth",
                                        "512",
                                        "--style",
                                        "extended",
                                        "--threads",
                                        "2",
                                        "--think-ns",
                                        "250",
                                        "--duration",
                                        "3s",
                                        "--no-post",
                                        "--disturb",
                                        "fifo:period=100ms,length=2ms",
                                        "--disturb",
                                        "sleep:period=100ms,thread=1"});
  ASSERT_TRUE(parsed) << parsed.error().message;
  const Options& options = parsed->options;
  EXPECT_EQ(options.policy, Policy::fifo);
  EXPECT_EQ(options.priority, 7);
  EXPECT_EQ(options.operation, Operation::read);
  EXPECT_EQ(options.style, PollStyle::extended);
  EXPECT_EQ(options.think_ns, 250U);
  EXPECT_EQ(options.duration_ns, 3 * ns_per_s);
  EXPECT_FALSE(options.post);
  ASSERT_EQ(options.disturbances.size(), 2U);
  EXPECT_EQ(options.disturbances[0].phase_ns, 0);
  EXPECT_EQ(options.disturbances[1].phase_ns, static_cast<int64_t>(50 * ns_per_ms));
}

TEST(Options, UsageErrorsAreOneLine) {
  const std::vector<std::vector<const char*>> wrong{
      {"--nosuch"},
      {"--cpu", "4096"},
      {"--policy", "batch"},
      {"--policy", "fifo"},
      {"--priority", "30"},
      {"--op", "atomic"},
      {"--style", "busy"},
      {"--size", "0"},
      {"--depth", "4", "--signal-every", "5"},
      {"--depth", "1024", "--cq-depth", "64"},
      {"--duration", "5"},
      {"--log-threshold", "0"},
      {"--disturb", "sleep:length=1"},
      {"--disturb", "sleep:thread=1"},
      {"--style", "bare", "--disturb", "sleep"},
  };
  for (const auto& arguments : wrong) {
    const Result<ParsedOptions> parsed = parse(arguments);
    ASSERT_FALSE(parsed) << arguments.front();
    EXPECT_EQ(parsed.error().code, ExitCode::usage);
    EXPECT_EQ(parsed.error().message.find('\n'), std::string::npos);
  }
}

TEST(Disturbances, UnknownNamesSettingsAndValuesAreUsageErrors) {
  for (const char* text :
       {"nosuch", "sleep:depth=3", "syscalls:variant=short", "rt-throttle:mechanism=magic"}) {
    Result<DisturbanceSpec> spec = parse_disturbance(text);
    ASSERT_TRUE(spec) << text;
    const auto made = make_disturbance(*spec, 0);
    ASSERT_FALSE(made) << text;
    EXPECT_EQ(made.error().code, ExitCode::usage);
  }
}

TEST(Disturbances, HelpNamesAll) {
  const std::string help = disturbance_help();
  for (const char* name :
       {"fifo",         "ordinary",     "kworker",  "irq:",    "irq-device", "softirq", "ipi-storm",
        "minor-faults", "major-faults", "syscalls", "sleep",   "futex",      "stop",    "quota",
        "rt-throttle",  "reg-mr",       "verbs",    "compute", "late",       "idle",    "errors"}) {
    EXPECT_NE(help.find(name), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace pollgap::workload
