// SPDX-License-Identifier: Apache-2.0
// Time to write and to read a report of 100,000 gaps.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "agent/report/atomic_file.h"
#include "agent/report/json_report.h"
#include "agent/report/read_report.h"
#include "agent/report/text.h"
#include "tests/unit/report_sample.h"

namespace {

using namespace pollgap;

constexpr uint64_t kGaps = 100'000;

std::string path() {
  return (std::filesystem::temp_directory_path() / ("pollgap-bench." + std::to_string(getpid())))
      .string();
}

// Alternately a gap of one segment and one of five.
void write_report() {
  const SessionFacts facts = sample::facts();
  std::vector<Gap> gaps = sample::gaps_of_every_cause();
  Gap mixed = sample::mixed_gap();
  mixed.evidence = {};
  ReportBuilder builder;
  for (uint64_t id = 1; id <= kGaps; ++id) {
    Gap& gap = id % 2 == 0 ? mixed : gaps[id % gaps.size()];
    gap.id = id;
    gap.start_mono_ns += 10'000'000;
    builder.add(gap, facts);
  }
  auto file = AtomicFile::create(path());
  if (!file) std::abort();
  builder.write(builder.head(facts, {}), [&](std::string_view bytes) { file->write(bytes); });
  if (file->commit()) std::abort();
}

void write_100k_gaps(benchmark::State& state) {
  for (auto _ : state) write_report();
  state.counters["MB"] = static_cast<double>(std::filesystem::file_size(path())) / 1e6;
  std::filesystem::remove(path());
}
BENCHMARK(write_100k_gaps)->Unit(benchmark::kMillisecond);

// As `pollgap report` does: every gap becomes its line of text.
void read_100k_gaps(benchmark::State& state) {
  write_report();
  for (auto _ : state) {  // NOLINT(clang-analyzer-deadcode.DeadStores)
    uint64_t lines = 0;
    const auto head = read_report(path(), [&](ReportedGap&& gap) {
      benchmark::DoNotOptimize(gap_line(gap, {}));
      ++lines;
    });
    if (!head || lines != kGaps) std::abort();
  }
  std::filesystem::remove(path());
}
BENCHMARK(read_100k_gaps)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
