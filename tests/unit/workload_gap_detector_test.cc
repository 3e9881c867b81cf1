// SPDX-License-Identifier: Apache-2.0
// The rules by which a gap is a gap. Ticks are microseconds here: both thresholds are 1000.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tools/workload/gap_detector.h"

namespace pollgap::workload {
namespace {

constexpr GapDetector::Thresholds thresholds{.log_ticks = 1000, .stall_ticks = 1000};

class Polls {
 public:
  explicit Polls(GapDetector::Thresholds limits = thresholds, size_t capacity = 100)
      : detector_(limits, capacity) {}

  // A poll of 1 tick at that time.
  Polls& poll(uint64_t at, uint32_t completions = 0, uint32_t sends = 0) {
    detector_.polled(at, at + 1, completions, sends, false);
    return *this;
  }
  // Empty polls, 10 ticks apart, in [from, to).
  Polls& polls(uint64_t from, uint64_t to) {
    for (uint64_t at = from; at < to; at += 10) poll(at);
    return *this;
  }
  Polls& post(uint64_t at, uint64_t takes = 0) {
    if (detector_.posts_signaled(at)) detector_.posted(at + takes);
    return *this;
  }
  GapDetector& detector() { return detector_; }
  const std::vector<GapRecord>& gaps() const { return detector_.gaps(); }

 private:
  GapDetector detector_;
};

void expect_gap(const GapRecord& gap, GapKind kind, uint64_t start, uint64_t end) {
  EXPECT_STREQ(to_string(gap.kind), to_string(kind));
  EXPECT_EQ(gap.start_ticks, start);
  EXPECT_EQ(gap.end_ticks, end);
}

TEST(GapDetector, BetweenPollsIsFromReturnToEntry) {
  Polls polls;
  polls.poll(0).poll(1500).poll(1510);
  ASSERT_EQ(polls.gaps().size(), 1U);
  expect_gap(polls.gaps()[0], GapKind::between_polls, 1, 1500);
}

TEST(GapDetector, JustBelowTheThresholdIsNone) {
  Polls polls;
  polls.poll(0).poll(1000);
  EXPECT_TRUE(polls.gaps().empty());
  polls.poll(1001 + 1000);
  EXPECT_EQ(polls.gaps().size(), 1U);
}

TEST(GapDetector, InPollIsOneCall) {
  Polls polls;
  polls.poll(0);
  polls.detector().polled(10, 2010, 3, 0, false);
  polls.poll(2020);
  ASSERT_EQ(polls.gaps().size(), 1U);
  expect_gap(polls.gaps()[0], GapKind::in_poll, 10, 2010);
  EXPECT_EQ(polls.gaps()[0].completions, 3U);
}

TEST(GapDetector, TheFirstPollHasNothingBeforeIt) {
  Polls polls;
  polls.poll(50000).poll(50010);
  EXPECT_TRUE(polls.gaps().empty());
}

TEST(GapDetector, NothingOutstandingIsIdle) {
  Polls polls;
  polls.polls(0, 20000);
  polls.detector().finish();
  EXPECT_TRUE(polls.gaps().empty());
}

TEST(GapDetector, LateFromThePostToTheCompletion) {
  Polls polls;
  polls.polls(0, 100).post(105).polls(110, 3000).poll(3000, 1, 1).polls(3010, 9000);
  ASSERT_EQ(polls.gaps().size(), 1U);
  expect_gap(polls.gaps()[0], GapKind::late_completion, 105, 3001);
  EXPECT_EQ(polls.gaps()[0].outstanding, 1U);
  EXPECT_EQ(polls.gaps()[0].completions, 1U);
  EXPECT_EQ(polls.gaps()[0].polls, 289U);
}

TEST(GapDetector, WhenTheSendWasPostedIsToldWhereItsPostBeginsTheWindow) {
  Polls polls;
  polls.post(105, 400).post(600, 7).polls(610, 3000).poll(3000, 1, 1).polls(3010, 6000);
  polls.poll(6000, 1, 1);
  ASSERT_EQ(polls.gaps().size(), 2U);
  EXPECT_EQ(polls.gaps()[0].start_ticks, 105U);
  EXPECT_EQ(polls.gaps()[0].posted_ticks, 505U);
  EXPECT_EQ(polls.gaps()[1].start_ticks, 3001U);
  EXPECT_EQ(polls.gaps()[1].posted_ticks, 3001U) << "the second send was outstanding already";
}

TEST(GapDetector, LateFromTheLastCompletion) {
  Polls polls;
  polls.post(0).post(0).polls(5, 500).poll(500, 1, 1).polls(510, 2500).poll(2500, 1, 1);
  ASSERT_EQ(polls.gaps().size(), 1U);
  expect_gap(polls.gaps()[0], GapKind::late_completion, 501, 2501);
}

TEST(GapDetector, NotLateWhereNoPollWasVain) {
  Polls polls;
  polls.poll(0).post(5).poll(900, 1, 0).poll(1800, 1, 1);
  polls.post(1810).detector().polled(2500, 3300, 1, 1, false);
  EXPECT_TRUE(polls.gaps().empty());
}

TEST(GapDetector, AReceiveCompletionEndsLatenessToo) {
  Polls polls;
  polls.post(0).polls(5, 900).poll(900, 1, 0).polls(910, 1800).poll(1800, 1, 1);
  EXPECT_TRUE(polls.gaps().empty());
}

TEST(GapDetector, AStallEndsALateWindowAndANewOneBegins) {
  Polls polls;
  polls.post(0).polls(0, 2000).poll(5000).polls(5010, 8000).poll(8000, 1, 1);
  ASSERT_EQ(polls.gaps().size(), 3U);
  expect_gap(polls.gaps()[0], GapKind::late_completion, 0, 1991);
  expect_gap(polls.gaps()[1], GapKind::between_polls, 1991, 5000);
  expect_gap(polls.gaps()[2], GapKind::late_completion, 5000, 8001);
}

TEST(GapDetector, AStallInsideAPollEndsTheWindowAtThePollBefore) {
  Polls polls;
  polls.post(0).polls(0, 2000);
  polls.detector().polled(2000, 4000, 0, 0, false);
  polls.polls(4010, 6000).poll(6000, 1, 1);
  ASSERT_EQ(polls.gaps().size(), 3U);
  expect_gap(polls.gaps()[0], GapKind::late_completion, 0, 1991);
  expect_gap(polls.gaps()[1], GapKind::in_poll, 2000, 4000);
  expect_gap(polls.gaps()[2], GapKind::late_completion, 4000, 6001);
}

TEST(GapDetector, AWindowThatIsOpenAtTheEndIsMarked) {
  Polls polls;
  polls.post(0).polls(5, 2500);
  polls.detector().finish();
  ASSERT_EQ(polls.gaps().size(), 1U);
  EXPECT_TRUE(polls.gaps()[0].open);
}

TEST(GapDetector, AGapBetweenTheThresholdsIsLoggedInsideAWindow) {
  Polls polls({.log_ticks = 500, .stall_ticks = 1000});
  polls.post(0).polls(0, 100).poll(700).polls(710, 1500).poll(1500, 1, 1);
  ASSERT_EQ(polls.gaps().size(), 2U);
  expect_gap(polls.gaps()[0], GapKind::between_polls, 91, 700);
  expect_gap(polls.gaps()[1], GapKind::late_completion, 0, 1501);
}

TEST(GapDetector, WaitingForAnEventIsMarked) {
  Polls polls;
  polls.poll(0);
  polls.detector().polled(2000, 2001, 1, 0, true);
  ASSERT_EQ(polls.gaps().size(), 1U);
  EXPECT_TRUE(polls.gaps()[0].waited_for_event);
}

TEST(GapDetector, CountsWhatItHasNoRoomFor) {
  Polls polls(thresholds, 2);
  for (uint64_t at = 0; at < 10; ++at) polls.poll(at * 5000);
  EXPECT_EQ(polls.gaps().size(), 2U);
  EXPECT_EQ(polls.detector().dropped(), 7U);
}

// Whatever the polls do: with one threshold gaps are disjoint and in the order of their ends.
TEST(GapDetector, GapsNeverOverlap) {
  std::mt19937 random(7);
  auto upto = [&random](uint32_t most) { return random() % (most + 1); };
  for (int round = 0; round < 200; ++round) {
    Polls polls(thresholds, 10000);
    uint64_t now = 0;
    for (int step = 0; step < 300; ++step) {
      now += upto(20) == 0 ? upto(4000) : upto(300);
      if (upto(3) == 0) polls.post(now);
      const uint64_t entry = now + upto(5);
      const uint64_t exit = entry + (upto(30) == 0 ? upto(4000) : upto(20));
      const uint32_t outstanding = polls.detector().outstanding();
      const uint32_t sends = upto(6) == 0 ? upto(outstanding) : 0;
      polls.detector().polled(entry, exit, sends + (upto(20) == 0 ? 1 : 0), sends, false);
      now = exit;
    }
    polls.detector().finish();
    uint64_t last_end = 0;
    for (const GapRecord& gap : polls.gaps()) {
      ASSERT_GE(gap.start_ticks, last_end);
      ASSERT_GE(gap.end_ticks, gap.start_ticks + thresholds.log_ticks);
      last_end = gap.end_ticks;
    }
  }
}

TEST(GapDetector, WhenCompletionsCameIsOfThoseThatEndedTheGap) {
  Polls polls;
  polls.post(0).poll(1).poll(3000, 1, 1).post(3010).poll(3020).poll(6000);
  polls.detector().completions_came(1, 77);  // the third poll returned none
  ASSERT_EQ(polls.gaps().size(), 2U);
  EXPECT_EQ(polls.gaps()[1].ready_ns, 0U);
  polls.poll(9000, 1, 1);
  polls.detector().completions_came(2, 88);
  ASSERT_EQ(polls.gaps().size(), 3U);
  EXPECT_EQ(polls.gaps()[0].ready_ns, 0U);
  EXPECT_EQ(polls.gaps()[2].ready_ns, 88U);
}

}  // namespace
}  // namespace pollgap::workload
