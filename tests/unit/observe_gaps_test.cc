// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "agent/observe/cq_watch.h"
#include "agent/observe/observed_gaps.h"

namespace pollgap {
namespace {

constexpr uint64_t kMs = 1'000'000, kUs = 1'000, kPeriod = 200 * kUs, kThreshold = kMs;
constexpr uint32_t kTid = 501, kCpu = 3;
constexpr uint64_t kStart = 1'000 * kMs;

class ObservedGapsTest : public testing::Test {
 protected:
  ObservedGapsTest() { gaps.add_thread(kTid, kCpu); }

  template <typename T>
  void accept(const T& record) {
    gaps.accept(std::as_bytes(std::span<const T, 1>(&record, 1)));
  }
  void off_cpu(uint64_t start, uint64_t end, uint32_t flags = 0, uint32_t cpu = kCpu) {
    ev_off_cpu record{};
    record.header = {EV_OFF_CPU, sizeof(record), cpu, kStart + start, kStart + end};
    record.tid = kTid;
    record.flags = flags;
    accept(record);
  }
  void irq(uint64_t start, uint64_t end, uint32_t cpu = kCpu) {
    ev_irq record{};
    record.header = {EV_IRQ, sizeof(record), cpu, kStart + start, kStart + end};
    accept(record);
  }
  void silence(Silence one) {
    for (Window* window : {&one.begin, &one.end}) shift(*window);
    if (one.ready) shift(*one.ready);
    if (one.outstanding) shift(*one.outstanding);
    gaps.add(kTid, 0, one);
  }
  std::vector<ev_gap> tell(uint64_t served = 1000 * kMs, bool last = false) {
    std::vector<ev_gap> told;
    gaps.tell([served](uint32_t) { return kStart + served; },
              [this, &told](std::span<const std::byte> record) {
                ev_header header;
                ASSERT_GE(record.size(), sizeof(header));
                std::memcpy(&header, record.data(), sizeof(header));
                if (header.kind == EV_WC_ERROR)
                  take(record, errors);
                else if (header.kind == EV_STAMP)
                  take(record, stamps);
                else
                  take(record, told);
              },
              last);
    return told;
  }
  static uint64_t start(const ev_gap& gap) { return gap.header.start_ns - kStart; }
  static uint64_t end(const ev_gap& gap) { return gap.header.end_ns - kStart; }

  std::vector<ev_wc_error> errors;  // told
  std::vector<ev_stamp> stamps;
  ObservedGaps gaps{{.pid = 500,
                     .threshold_ns = kThreshold,
                     .period_ns = kPeriod,
                     .kernel_entry_ns = 20 * kUs,
                     .nothing_steals = false}};

 private:
  template <typename T>
  static void take(std::span<const std::byte> record, std::vector<T>& to) {
    T value;
    ASSERT_EQ(record.size(), sizeof(value));
    std::memcpy(&value, record.data(), sizeof(value));
    to.push_back(value);
  }
  static void shift(Window& window) {
    window.after_ns += kStart;
    window.until_ns += kStart;
  }
};

Silence unpolled(Window ready, Window end) {
  return {.cq = 0x77, .begin = {0, kPeriod}, .end = end, .ready = ready, .outstanding = {}};
}

TEST_F(ObservedGapsTest, TheStampComesBeforeItsGap) {
  const Window ready{15 * kMs, 15 * kMs + kPeriod}, made{kStart + 11 * kMs, kStart + 12 * kMs};
  Silence late{.cq = 0x77, .begin = {0, kPeriod}, .end = ready, .ready = ready, .outstanding = {}};
  late.outstanding = Window{10 * kMs, 10 * kMs + kPeriod};
  late.stamp = 4711;
  silence(late);
  ASSERT_EQ(tell().size(), 1u);
  EXPECT_EQ(stamps.size(), 0u) << "the adapter's clock is not known";
  late.made = made;
  silence(late);
  const auto told = tell();
  ASSERT_EQ(told.size(), 1u);
  ASSERT_EQ(stamps.size(), 1u);
  EXPECT_EQ(stamps[0].header.end_ns, told[0].header.end_ns);
  EXPECT_EQ(stamps[0].tid, kTid);
  EXPECT_EQ(stamps[0].cq, 0x77u);
  EXPECT_EQ(stamps[0].ticks, 4711u);
  EXPECT_EQ((Window{stamps[0].made_after_ns, stamps[0].made_until_ns}), made);
  EXPECT_EQ(stamps[0].written_after_ns, kStart + ready.after_ns);
  EXPECT_EQ(stamps[0].written_until_ns, kStart + ready.until_ns);
  late.open = true;
  silence(late);
  ASSERT_EQ(tell().size(), 1u);
  EXPECT_EQ(stamps.size(), 1u) << "the completion that will end it has not come";
}

TEST_F(ObservedGapsTest, InUserCodeTheEdgesAreTheMiddlesOfTheirWindows) {
  silence(unpolled({10 * kMs, 10 * kMs + kPeriod}, {15 * kMs, 15 * kMs + kPeriod}));
  const auto told = tell();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].gap_kind, EV_GAP_UNPOLLED_COMPLETION);
  EXPECT_EQ(start(told[0]), 10 * kMs + kPeriod / 2);
  EXPECT_EQ(end(told[0]), 15 * kMs + kPeriod / 2);
  EXPECT_EQ(told[0].edge_uncertainty_ns, kPeriod / 2);
  EXPECT_EQ(told[0].cq, 0x77u);
  EXPECT_EQ(told[0].tid, kTid);
  EXPECT_EQ(told[0].pid, 500u);
  EXPECT_EQ(told[0].header.cpu, kCpu);
  EXPECT_EQ(told[0].flags, EV_GAP_OBSERVED | EV_GAP_NO_RETURN);
}

TEST_F(ObservedGapsTest, ComingBackUnseenIsNoStall) {
  off_cpu(10 * kMs, 12 * kMs);
  off_cpu(12 * kMs, 40 * kMs, EV_OFF_UNSEEN);
  const auto told = tell();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].gap_kind, EV_GAP_STALLED);
  EXPECT_EQ(start(told[0]), 10 * kMs);
  EXPECT_EQ(end(told[0]), 12 * kMs);
}

TEST_F(ObservedGapsTest, OffTheCpuTheyAreExact) {
  off_cpu(10 * kMs + 70 * kUs, 15 * kMs + 30 * kUs);
  silence(unpolled({10 * kMs, 10 * kMs + kPeriod}, {15 * kMs, 15 * kMs + kPeriod}));
  const auto told = tell();
  ASSERT_EQ(told.size(), 1u) << "a gap is not told twice, as a stall";
  EXPECT_EQ(start(told[0]), 10 * kMs + 70 * kUs);
  EXPECT_EQ(end(told[0]), 15 * kMs + 30 * kUs);
  EXPECT_EQ(told[0].edge_uncertainty_ns, 0u);
}

TEST_F(ObservedGapsTest, WhenTheCompletionCameMeanwhileTheSilenceIsOlder) {
  off_cpu(6 * kMs, 15 * kMs + 30 * kUs);
  silence(unpolled({10 * kMs, 10 * kMs + kPeriod}, {15 * kMs, 15 * kMs + kPeriod}));
  const auto told = tell();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(start(told[0]), 6 * kMs);
}

TEST_F(ObservedGapsTest, AWindowWidenedByALateLookMakesNothingLonger) {
  silence(unpolled({10 * kMs, 14 * kMs}, {15 * kMs + 500 * kUs, 30 * kMs}));
  const auto told = tell();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(start(told[0]), 14 * kMs);
  EXPECT_EQ(end(told[0]), 15 * kMs + 500 * kUs);
  EXPECT_EQ(told[0].edge_uncertainty_ns, 14 * kMs + 500 * kUs);
  silence(unpolled({40 * kMs, 70 * kMs}, {40 * kMs, 70 * kMs}));  // no look in 30 ms
  EXPECT_TRUE(tell().empty());
}

TEST_F(ObservedGapsTest, AStallWithNothingToTakeIsStalled) {
  off_cpu(10 * kMs, 12 * kMs);
  irq(20 * kMs, 20 * kMs + 600 * kUs);
  irq(20 * kMs + 610 * kUs, 21 * kMs + 200 * kUs);  // no user code fits in between
  irq(30 * kMs, 33 * kMs, kCpu + 1);                // of another CPU
  irq(40 * kMs, 40 * kMs + 900 * kUs);              // too short
  const auto told = tell();
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].gap_kind, EV_GAP_STALLED);
  EXPECT_EQ(start(told[0]), 10 * kMs);
  EXPECT_EQ(end(told[0]), 12 * kMs);
  EXPECT_EQ(told[0].cq, 0u);
  EXPECT_EQ(start(told[1]), 20 * kMs);
  EXPECT_EQ(end(told[1]), 21 * kMs + 200 * kUs);
  EXPECT_TRUE(tell().empty()) << "told once";
}

TEST_F(ObservedGapsTest, AStallIsNotToldWhileItMayBePartOfAnUnpolledCompletion) {
  off_cpu(10 * kMs, 12 * kMs);
  EXPECT_TRUE(tell(11 * kMs).empty());
  EXPECT_TRUE(tell(13 * kMs).empty()) << "it has only just ended";
  silence(unpolled({11 * kMs, 11 * kMs + kPeriod}, {30 * kMs, 30 * kMs + kPeriod}));
  const auto told = tell(31 * kMs);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].gap_kind, EV_GAP_UNPOLLED_COMPLETION);
  EXPECT_EQ(start(told[0]), 10 * kMs);
}

TEST_F(ObservedGapsTest, AStallThatGoesOnAfterItWasTold) {
  off_cpu(10 * kMs, 12 * kMs);
  EXPECT_EQ(tell(30 * kMs).size(), 1u);
  off_cpu(12 * kMs + 10 * kUs, 40 * kMs);
  const auto told = tell(60 * kMs);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(start(told[0]), 12 * kMs);
}

TEST_F(ObservedGapsTest, LateIsWhatTheThreadDidNotMissItself) {
  off_cpu(14 * kMs, 16 * kMs);
  off_cpu(17 * kMs, 17 * kMs + 300 * kUs);  // short: part of it, with a segment of its own
  silence({.cq = 0x77,
           .begin = {10 * kMs, 10 * kMs + kPeriod},
           .end = {20 * kMs, 20 * kMs + kPeriod},
           .ready = Window{20 * kMs, 20 * kMs + kPeriod},
           .outstanding = Window{10 * kMs, 10 * kMs + kPeriod},
           .signaled = 16});
  const auto told = tell();
  ASSERT_EQ(told.size(), 3u);
  EXPECT_EQ(told[0].gap_kind, EV_GAP_LATE_COMPLETION);
  EXPECT_EQ(start(told[0]), 10 * kMs + kPeriod / 2);
  EXPECT_EQ(end(told[0]), 14 * kMs);
  EXPECT_EQ(told[0].outstanding, 16u);
  EXPECT_EQ(told[1].gap_kind, EV_GAP_STALLED);
  EXPECT_EQ(told[2].gap_kind, EV_GAP_LATE_COMPLETION);
  EXPECT_EQ(start(told[2]), 16 * kMs);
  EXPECT_EQ(end(told[2]), 20 * kMs + kPeriod / 2);
}

TEST_F(ObservedGapsTest, NeitherLateNorStalledInAWaitForACompletionEvent) {
  off_cpu(11 * kMs, 19 * kMs, EV_OFF_WAITS_EVENT);
  silence({.cq = 0x77,
           .begin = {10 * kMs, 10 * kMs + kPeriod},
           .end = {19 * kMs, 19 * kMs + kPeriod},
           .ready = Window{19 * kMs, 19 * kMs + kPeriod},
           .outstanding = Window{10 * kMs, 10 * kMs + kPeriod},
           .signaled = 1});
  EXPECT_TRUE(tell().empty());
}

TEST_F(ObservedGapsTest, BothKindsOfOneSilence) {
  silence({.cq = 0x77,
           .begin = {10 * kMs, 10 * kMs + kPeriod},
           .end = {20 * kMs, 20 * kMs + kPeriod},
           .ready = Window{15 * kMs, 15 * kMs + kPeriod},
           .outstanding = Window{10 * kMs, 10 * kMs + kPeriod},
           .signaled = 2,
           .error = CompletionError{.status = 12, .vendor_error = 129, .qp_num = 77, .wr_id = 0}});
  const auto told = tell();
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].gap_kind, EV_GAP_LATE_COMPLETION);
  EXPECT_EQ(told[0].error_completions, 0u);
  EXPECT_EQ(told[1].gap_kind, EV_GAP_UNPOLLED_COMPLETION);
  EXPECT_EQ(told[1].error_completions, 1u);
  EXPECT_EQ(end(told[0]), start(told[1]));
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].header.end_ns, told[1].header.end_ns);
  EXPECT_EQ(errors[0].cq, 0x77u);
  EXPECT_EQ(errors[0].tid, kTid);
  EXPECT_EQ(errors[0].status, 12u);
  EXPECT_EQ(errors[0].vendor_err, 129u);
  EXPECT_EQ(errors[0].qp_num, 77u);
  EXPECT_EQ(errors[0].errors, 1u);
  EXPECT_EQ(errors[0].flushes, 0u);
}

TEST_F(ObservedGapsTest, TheCpuIsThatOfTheTime) {
  off_cpu(10 * kMs, 12 * kMs, 0, kCpu + 1);
  irq(20 * kMs, 22 * kMs, kCpu);  // where it no longer is
  off_cpu(30 * kMs, 30 * kMs + 5 * kUs, 0, kCpu);
  const auto told = tell();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].start_cpu, kCpu);
  EXPECT_EQ(told[0].header.cpu, kCpu + 1);
}

TEST_F(ObservedGapsTest, AThreadThatIsUnknownHasNone) {
  gaps.add(kTid + 1, 0, unpolled({kStart, kStart}, {kStart + kMs, kStart + 2 * kMs}));
  EXPECT_TRUE(tell().empty());
}

// Its exit comes with the records of what it did last, and before its last silence.
TEST_F(ObservedGapsTest, WhatAThreadDidBeforeItsExitIsTold) {
  off_cpu(10 * kMs, 12 * kMs);
  ev_process exit{};
  exit.header = {EV_PROCESS, sizeof(exit), kCpu, kStart + 25 * kMs, kStart + 25 * kMs};
  exit.tid = kTid;
  accept(exit);
  ASSERT_EQ(tell(30 * kMs).size(), 1u);
  silence(unpolled({20 * kMs, 20 * kMs + kPeriod}, {24 * kMs, 24 * kMs + kPeriod}));
  ASSERT_EQ(tell(40 * kMs).size(), 1u);
  tell(2000 * kMs);
  silence(unpolled({20 * kMs, 20 * kMs + kPeriod}, {24 * kMs, 24 * kMs + kPeriod}));
  EXPECT_TRUE(tell(2100 * kMs).empty()) << "it is forgotten";
}

TEST_F(ObservedGapsTest, AStallRightBeforeTheEndIsTold) {
  off_cpu(10 * kMs, 12 * kMs);
  EXPECT_TRUE(tell(13 * kMs).empty()) << "it may go on";
  EXPECT_EQ(tell(13 * kMs, /*last=*/true).size(), 1u);
}

// Polls are timed by turns: what has ended before looking began is told there, and so is what
// begins after it has ended. A stall across either edge is told once, whole, and here.
TEST_F(ObservedGapsTest, StallsOfTheTimeInWhichPollsAreNotTimed) {
  gaps.begin(kStart + 20 * kMs);
  off_cpu(10 * kMs, 12 * kMs);
  off_cpu(18 * kMs, 22 * kMs);
  off_cpu(30 * kMs, 33 * kMs);
  auto told = tell(50 * kMs);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(start(told[0]), 18 * kMs);
  EXPECT_EQ(start(told[1]), 30 * kMs);
  gaps.end(kStart + 60 * kMs);
  off_cpu(58 * kMs, 63 * kMs);
  off_cpu(70 * kMs, 75 * kMs);
  told = tell(90 * kMs);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(start(told[0]), 58 * kMs);
  EXPECT_EQ(end(told[0]), 63 * kMs);
  gaps.begin(kStart + 100 * kMs);
  off_cpu(99 * kMs, 104 * kMs);
  told = tell(130 * kMs);
  ASSERT_EQ(told.size(), 1u) << "and what was left to the probes is not told later";
  EXPECT_EQ(start(told[0]), 99 * kMs);
}

// Whatever comes: gaps have a length, and those of one kind and thread are apart.
// However far apart the looks are: that each found other completions consumed is no silence. Here
// one comes at a time, and is consumed at once.
TEST_F(ObservedGapsTest, ABusyCqHasNoGaps) {
  std::mt19937_64 random(5);
  for (const uint64_t apart : {20 * kUs, 300 * kUs, 700 * kUs})
    for (const uint64_t period : {kPeriod, kMs, 8 * kMs / 5, 2 * kMs, 3 * kMs, 5 * kMs}) {
      gaps.set_period(period);
      CqWatch watch(0x77, kThreshold);
      CqReading reading{.intact = true};
      for (uint64_t at = kStart, end = kStart + 3000 * period; at < end;) {
        at += period - period / 8 + random() % (period / 4);
        const auto consumed = static_cast<uint32_t>(at / apart);
        reading.next = consumed == reading.consumer_index ? NextCqe::absent : NextCqe::unknown;
        reading.consumer_index = consumed;
        const SendIndices sends{consumed + 16, consumed};
        if (const auto found = watch.look({at, at + 3 * kUs}, reading, std::span(&sends, 1)))
          gaps.add(kTid, 0, *found);
        if (const auto unsure = watch.unsure_of())
          watch.signaled(*unsure, SignaledSends{.count = 16, .oldest = 0});
      }
      EXPECT_TRUE(tell(5000 * period).empty()) << "looks " << period / kUs << " us apart";
    }
}

TEST_F(ObservedGapsTest, AnyRecords) {
  std::mt19937_64 random(3);
  std::vector<ev_gap> stalls;
  uint64_t at = 0;
  for (int i = 0; i < 20'000; ++i) {
    at += random() % (2 * kMs);
    const uint64_t length = random() % (3 * kMs);
    switch (random() % 6) {
      case 0:
        off_cpu(at, at + length, random() % 4 == 0 ? EV_OFF_WAITS_EVENT : 0, kCpu + random() % 2);
        break;
      case 1:
        irq(at > 5 * kMs ? at - random() % (5 * kMs) : at, at + length);
        break;
      case 2: {
        const uint64_t ready = at + random() % kMs, end = ready + length;
        silence({.cq = random(),
                 .begin = {at, at + random() % kMs},
                 .end = {end, end + random() % kMs},
                 .ready = Window{ready, ready + random() % kMs},
                 .outstanding =
                     random() % 2 == 0 ? std::optional(Window{at, at + kPeriod}) : std::nullopt,
                 .signaled = 3,
                 .open = random() % 9 == 0});
        break;
      }
      case 3: {
        std::vector<std::byte> junk(random() % 200);
        for (std::byte& byte : junk) byte = static_cast<std::byte>(random());
        gaps.accept(junk);
        break;
      }
      default:
        break;
    }
    if (random() % 20 != 0) continue;
    for (const ev_gap& gap : tell(at)) {
      EXPECT_GE(gap.header.end_ns - gap.header.start_ns, kThreshold);
      if (gap.gap_kind == EV_GAP_STALLED) stalls.push_back(gap);
    }
  }
  for (size_t i = 1; i < stalls.size(); ++i)
    EXPECT_GE(stalls[i].header.start_ns, stalls[i - 1].header.end_ns);
  EXPECT_GT(stalls.size(), 100u);
}

}  // namespace
}  // namespace pollgap
