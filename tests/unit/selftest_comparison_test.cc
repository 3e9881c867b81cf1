// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "agent/selftest/comparison.h"

namespace pollgap {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint32_t kTid = 7;

Injected injected(const std::string& cause, uint64_t spent_ms = 5) {
  return {.disturbance = "one",
          .cause = cause,
          .tid = kTid,
          .start_ns = 100 * kMs,
          .end_ns = 105 * kMs,
          .spent_ns = spent_ms * kMs};
}

Gap gap(std::vector<std::pair<Cause, uint64_t>> ledger, uint64_t start_ms = 100,
        uint32_t tid = kTid) {
  Gap made;
  made.tid = tid;
  made.start_mono_ns = start_ms * kMs;
  for (const auto& [cause, ms] : ledger) {
    made.segments.push_back(
        {.offset_ns = made.duration_ns, .duration_ns = ms * kMs, .cause = cause, .detail = {}});
    made.duration_ns += ms * kMs;
  }
  return made;
}

struct Counts {
  uint64_t injected, right, wrong;
  bool operator==(const Counts&) const = default;
};

Counts counts(const Injected& one, const std::vector<Gap>& gaps) {
  ConfusionMatrix matrix;
  matrix.add(one, gaps);
  return {matrix.injected(), matrix.right(), matrix.wrong()};
}

TEST(ConfusionMatrix, TheCauseWithMostOfTheInjectedTimeIsTheOneNamed) {
  const Injected one = injected("hard_irq");
  EXPECT_EQ(counts(one, {gap({{Cause::hard_irq, 5}})}), (Counts{1, 1, 0}));
  EXPECT_EQ(counts(one, {gap({{Cause::hard_irq, 3}, {Cause::application, 2}})}), (Counts{1, 1, 0}));
  EXPECT_EQ(counts(one, {gap({{Cause::hard_irq, 2}, {Cause::application, 3}})}), (Counts{1, 0, 1}));
}

TEST(ConfusionMatrix, TimeBesideTheInjectedDoesNotCount) {
  const std::vector<Gap> gaps{gap({{Cause::application, 10}, {Cause::hard_irq, 5}}, 90)};
  EXPECT_EQ(counts(injected("hard_irq"), gaps), (Counts{1, 1, 0}));
}

TEST(ConfusionMatrix, UnexplainedAndMissedAreNeitherRightNorWrong) {
  EXPECT_EQ(counts(injected("blocked"), {gap({{Cause::unexplained, 5}})}), (Counts{1, 0, 0}));
  EXPECT_EQ(counts(injected("blocked"), {}), (Counts{1, 0, 0}));
  EXPECT_EQ(counts(injected("blocked"), {gap({{Cause::blocked, 5}}, 100, kTid + 1)}),
            (Counts{1, 0, 0}));
}

TEST(ConfusionMatrix, SharesAreOfTheTimeThatTheInjectorSpent) {
  ConfusionMatrix matrix;
  matrix.add(injected("preemption", 4), {gap({{Cause::preemption, 2}})});
  matrix.add(injected("preemption", 4), {gap({{Cause::preemption, 5}})});
  matrix.add(injected("preemption", 4), {gap({{Cause::preemption, 4}})});
  const std::string text = matrix.text();
  EXPECT_NE(text.find("preemption 3"), std::string::npos) << text;
  EXPECT_NE(text.find("100.0 %   50.0 %"), std::string::npos) << text;
}

class GroundTruth : public testing::Test {
 protected:
  GroundTruth()
      : path_(std::filesystem::temp_directory_path() /
              ("selftest_test." + std::to_string(getpid()))) {}
  ~GroundTruth() override { std::filesystem::remove(path_); }
  void write(const std::string& text) const { std::ofstream(path_) << text; }

  const std::filesystem::path path_;
};

TEST_F(GroundTruth, OfALogOnlyDisturbancesAreRead) {
  write(R"({"type":"session","pid":1}
{"type":"disturbance","name":"fifo","index":0,"cause":"preemption","tid":7,"start_mono_ns":100,)"
        R"("duration_ns":50,"culprit":{},"facts":{"ran_ns":40}}
{"type":"disturbance","name":"ordinary","index":1,"cause":"preemption","tid":7,)"
        R"("start_mono_ns":200,"duration_ns":50,"culprit":{},"facts":{"tasks":)"
        R"([{"ran_ns":10},{"ran_ns":20}]}}
{"type":"disturbance","name":"sleep","index":2,"cause":"blocked","tid":7,"start_mono_ns":300,)"
        R"("duration_ns":50,"culprit":{}}
)");
  const auto found = read_ground_truth(path_);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), 3U);
  EXPECT_EQ((*found)[0].start_ns, 100U);
  EXPECT_EQ((*found)[0].end_ns, 150U);
  EXPECT_EQ((*found)[0].spent_ns, 40U);
  EXPECT_EQ((*found)[1].spent_ns, 30U);
  EXPECT_EQ((*found)[2].spent_ns, 50U);
}

TEST_F(GroundTruth, WhatIsNoLogIsAnError) {
  write("polls 12\n");
  EXPECT_FALSE(read_ground_truth(path_));
  write(R"({"type":"disturbance"})");
  EXPECT_FALSE(read_ground_truth(path_));
  std::filesystem::remove(path_);
  EXPECT_FALSE(read_ground_truth(path_));
}

}  // namespace
}  // namespace pollgap
