// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <numeric>

#include "agent/report/summary.h"
#include "agent/report/summary_json.h"
#include "tests/unit/report_sample.h"

namespace pollgap {
namespace {

DurationStatistic statistic(std::vector<uint64_t> durations_ns) {
  return statistic_of(durations_ns);
}

TEST(DurationStatistic, IsByNearestRank) {
  EXPECT_EQ(statistic({}), DurationStatistic());
  EXPECT_EQ(statistic({7}), (DurationStatistic{1, 7, 7, 7, 7}));
  EXPECT_EQ(statistic({4, 1, 3, 2}), (DurationStatistic{4, 10, 4, 2, 4}));
  EXPECT_EQ(statistic({5, 1, 3}).p50_ns, 3u);
  std::vector<uint64_t> hundred(100);
  std::iota(hundred.rbegin(), hundred.rend(), 1);
  EXPECT_EQ(statistic(hundred), (DurationStatistic{100, 5050, 100, 50, 99}));
  hundred.push_back(101);
  EXPECT_EQ(statistic(hundred).p50_ns, 51u);
  EXPECT_EQ(statistic(hundred).p99_ns, 100u);
}

Summary summary_of(const std::vector<Gap>& gaps) {
  SummaryBuilder builder;
  for (const Gap& gap : gaps) builder.add(gap, {"the same advice"});
  return builder.finish(sample::facts());
}

TEST(Summary, CountsGapsByVerdictAndTimeByLedger) {
  const Gap mixed = sample::mixed_gap();
  Gap irq = sample::gap_of(Cause::hard_irq, {});
  const Summary summary = summary_of({mixed, mixed, irq});
  EXPECT_EQ(summary.gaps, 3u);
  EXPECT_EQ(summary.gap_ns, 2 * mixed.duration_ns + irq.duration_ns);
  EXPECT_EQ(summary.by_cause.at(Cause::preemption).gaps.count, 2u);
  EXPECT_EQ(summary.by_cause.at(Cause::preemption).gaps.total_ns, 2 * mixed.duration_ns);
  EXPECT_EQ(summary.by_cause.at(Cause::preemption).ledger_ns, 2 * 3'900'000u);
  EXPECT_EQ(summary.by_cause.at(Cause::hard_irq).gaps.count, 1u);
  EXPECT_EQ(summary.by_cause.at(Cause::hard_irq).ledger_ns,
            irq.duration_ns + uint64_t{2} * 750'000);
  EXPECT_EQ(summary.by_cause.at(Cause::self_kernel).gaps, DurationStatistic());
  uint64_t ledger_ns = 0;
  for (const auto& [cause, row] : summary.by_cause) ledger_ns += row.ledger_ns;
  EXPECT_EQ(ledger_ns, summary.gap_ns);
  EXPECT_EQ(summary.by_kind.at(GapKind::between_polls).count, 3u);
}

TEST(Summary, RanksCulpritsAndAdvice) {
  const Summary summary = summary_of(sample::gaps_of_every_cause());
  ASSERT_EQ(summary.culprits.size(), 15u);
  EXPECT_EQ(summary.culprits.front().name, "culprit of unexplained");  // the longest
  EXPECT_EQ(summary.culprits.front().gaps, 1u);
  ASSERT_EQ(summary.advice.size(), 1u);
  EXPECT_EQ(summary.advice[0].gaps, 15u);
  EXPECT_EQ(summary.advice[0].gap_ns, summary.gap_ns);
}

TEST(Summary, ListsThreadsAndCqsWithoutGaps) {
  SessionFacts facts = sample::facts();
  facts.polls[{4712, 0x1000}].polls = 5;
  facts.threads[4713] = "quiet";
  SummaryBuilder builder;
  builder.add(sample::mixed_gap(), {});
  const Summary summary = builder.finish(facts);
  ASSERT_EQ(summary.threads.size(), 3u);
  EXPECT_EQ(summary.threads[0].thread, "poller");
  EXPECT_EQ(summary.threads[0].gaps, 1u);
  EXPECT_EQ(summary.threads[2].thread, "quiet");
  ASSERT_EQ(summary.cqs.size(), 2u);
  EXPECT_EQ(summary.cqs[0].gaps, 1u);
  EXPECT_EQ(summary.cqs[1].totals.polls, 5u);
  EXPECT_EQ(summary.observed_ns, 30'000'000'000u);
}

TEST(Summary, SurvivesJson) {
  std::vector<Gap> gaps = sample::gaps_of_every_cause();
  gaps.push_back(sample::mixed_gap());
  const auto json = to_json(summary_of(gaps));
  const auto read = summary_from_json(json);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(to_json(read.value()), json);
}

TEST(Summary, NamesTheMemberThatDoesNotFit) {
  const auto good = to_json(summary_of({sample::mixed_gap()}));
  const auto error_of = [](const nlohmann::ordered_json& json) {
    const auto read = summary_from_json(json);
    return read ? std::string("read") : read.error().message;
  };
  auto json = good;
  json.erase("gaps");
  EXPECT_EQ(error_of(json), "gaps is missing");
  json = good;
  json["cqs"][0]["tid"] = "x";
  EXPECT_EQ(error_of(json), "cqs[0].tid is not an integer");
  json = good;
  json["by_cause"]["preemption"]["count"] = -1;
  EXPECT_EQ(error_of(json), "by_cause.preemption.count is out of range");
  EXPECT_EQ(error_of(nlohmann::ordered_json::array()), "is not an object");
}

}  // namespace
}  // namespace pollgap
