// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "agent/observe/cq_watch.h"

namespace pollgap {
namespace {

constexpr uint64_t kPeriod = 200'000, kThreshold = 1'000'000, kLookTakes = 2'000;

// A CQ that is looked at regularly.
class CqWatchTest : public testing::Test {
 protected:
  std::optional<Silence> look(NextCqe next) {
    now += kPeriod;
    reading.consumer_index = consumed;
    reading.next = next;
    return watch.look({now, now + kLookTakes}, reading, sends);
  }
  // Looks that find nothing new, and nothing ended.
  void pass(uint64_t ns, NextCqe next) {
    for (uint64_t end = now + ns; now < end;) EXPECT_FALSE(look(next));
  }
  Window since_last_look() const { return {now - kPeriod, now + kLookTakes}; }

  CqWatch watch{0x1000, kThreshold};
  uint64_t now = 1'000'000'000;
  CqReading reading{.intact = true};
  uint32_t consumed = 0xfffffff0;
  std::vector<SendIndices> sends{{100, 100}};
};

TEST_F(CqWatchTest, ABusyCqHasNoSilences) {
  for (int i = 0; i < 1000; ++i) {
    consumed += 50;  // past 2^32, too
    EXPECT_FALSE(look(NextCqe::unknown));
  }
  EXPECT_EQ(watch.consumed(), 999u * 50);
  EXPECT_EQ(watch.served_until_ns(), now);
}

TEST_F(CqWatchTest, ACompletionThatNobodyTook) {
  look(NextCqe::unknown);
  pass(3 * kPeriod, NextCqe::absent);
  EXPECT_FALSE(look(NextCqe::ready));
  const Window ready = since_last_look();
  pass(kThreshold, NextCqe::ready);
  EXPECT_EQ(watch.served_until_ns(), ready.after_ns);
  ++consumed;
  const auto silence = look(NextCqe::unknown);
  ASSERT_TRUE(silence);
  EXPECT_EQ(silence->cq, 0x1000u);
  EXPECT_EQ(silence->ready, ready);
  EXPECT_EQ(silence->end, since_last_look());
  EXPECT_FALSE(silence->outstanding);
  EXPECT_FALSE(silence->error || silence->open);
  EXPECT_EQ(watch.served_until_ns(), now);
}

TEST_F(CqWatchTest, OneThatWasThereWhenTheLastWasTaken) {
  look(NextCqe::unknown);
  consumed += 3;
  look(NextCqe::unknown);
  const Window taken = since_last_look();
  pass(2 * kThreshold, NextCqe::error);
  ++consumed;
  const auto silence = look(NextCqe::unknown);
  ASSERT_TRUE(silence);
  EXPECT_EQ(silence->begin, taken);
  EXPECT_EQ(silence->ready, (Window{taken.after_ns, taken.until_ns + kPeriod}));
  EXPECT_TRUE(silence->error);
}

TEST_F(CqWatchTest, TheStampIsOfTheFirstCompletionThatNobodyTook) {
  look(NextCqe::unknown);
  pass(2 * kThreshold, NextCqe::absent);
  consumed += 3;
  reading.next_stamp = 500;
  const auto unseen = look(NextCqe::unknown);
  ASSERT_TRUE(unseen);
  EXPECT_EQ(unseen->stamp, 500u) << "come and consumed between two looks";
  reading.next_stamp.reset();
  pass(kThreshold, NextCqe::absent);
  reading.next_stamp = 600;
  pass(kThreshold, NextCqe::ready);
  ++consumed;
  reading.next_stamp = 700;
  const auto seen = look(NextCqe::unknown);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->stamp, 600u) << "as it was when it came";
  reading.next_stamp.reset();
  pass(2 * kThreshold, NextCqe::absent);
  ++consumed;
  const auto without = look(NextCqe::unknown);
  ASSERT_TRUE(without);
  EXPECT_FALSE(without->stamp);
}

TEST_F(CqWatchTest, ALateLookOnlyMakesTheEdgesLessCertain) {
  look(NextCqe::unknown);
  now += 50 * kPeriod;
  consumed += 7;
  const auto silence = look(NextCqe::unknown);
  ASSERT_TRUE(silence);  // it may have lasted so long, or not at all
  EXPECT_EQ(silence->end.width_ns(), 51 * kPeriod + kLookTakes);
  EXPECT_EQ(silence->ready, silence->end);
}

TEST_F(CqWatchTest, LateCompletionsNeedASendThatAsksForOne) {
  look(NextCqe::unknown);
  sends[0].head = 116;
  pass(kPeriod, NextCqe::absent);
  const Window posted = since_last_look();
  while (!watch.unsure_of()) pass(kPeriod, NextCqe::absent);
  EXPECT_EQ(watch.unsure_of(), 0u);
  EXPECT_GE(now - posted.until_ns, kThreshold / 2);
  watch.signaled(0, SignaledSends{16, 0});
  EXPECT_FALSE(watch.unsure_of());
  pass(2 * kThreshold, NextCqe::absent);
  ++consumed;
  sends[0].tail = 101;
  const auto silence = look(NextCqe::unknown);
  ASSERT_TRUE(silence);
  EXPECT_EQ(silence->outstanding, posted);
  EXPECT_EQ(silence->signaled, 16u);
  EXPECT_EQ(silence->ready, since_last_look());  // no look found it ready
  EXPECT_EQ(watch.posted(), 16u);
}

TEST_F(CqWatchTest, UnsignaledSendsAreIdleTime) {
  look(NextCqe::unknown);
  sends[0].head = 101;
  pass(kThreshold, NextCqe::absent);
  ASSERT_TRUE(watch.unsure_of());
  watch.signaled(0, SignaledSends{0, 0});
  pass(10 * kThreshold, NextCqe::absent);
  EXPECT_FALSE(watch.unsure_of()) << "asked again though nothing was posted";
  sends[0].head = 102;
  pass(kThreshold, NextCqe::absent);
  EXPECT_TRUE(watch.unsure_of());
  CqWatch unsure = watch;
  watch.signaled(0, SignaledSends{0, 0});
  ++consumed;
  const auto silence = look(NextCqe::unknown);
  ASSERT_TRUE(silence);
  EXPECT_FALSE(silence->outstanding);
  EXPECT_GT(watch.idle_ns(), 11 * kThreshold);
  reading.consumer_index = consumed;
  unsure.look({now, now + kLookTakes}, reading, sends);
  EXPECT_EQ(unsure.idle_ns(), 0u) << "what is not known is not called idle";
}

TEST_F(CqWatchTest, ASignaledSendBehindUnsignaledOnesCountsFromWhenItWasSeen) {
  look(NextCqe::unknown);
  sends[0].head = 101;
  pass(kPeriod, NextCqe::absent);
  sends[0].head = 103;
  pass(kThreshold, NextCqe::absent);
  ASSERT_TRUE(watch.unsure_of());
  watch.signaled(0, SignaledSends{1, 2});
  const uint64_t asked = now;
  pass(2 * kThreshold, NextCqe::absent);
  ++consumed;
  const auto silence = look(NextCqe::unknown);
  ASSERT_TRUE(silence && silence->outstanding);
  EXPECT_EQ(silence->outstanding->after_ns, asked);
}

TEST_F(CqWatchTest, WhatIsOutstandingAfterTheCompletionCameDoesNotCount) {
  look(NextCqe::unknown);
  pass(kPeriod, NextCqe::absent);
  pass(kPeriod, NextCqe::ready);
  sends[0].head = 116;
  pass(2 * kThreshold, NextCqe::ready);
  EXPECT_FALSE(watch.unsure_of());
}

TEST_F(CqWatchTest, AnEntryThatGoesAwayIsAnotherCq) {
  look(NextCqe::unknown);
  pass(kThreshold, NextCqe::ready);
  pass(kPeriod, NextCqe::absent);
  EXPECT_EQ(watch.served_until_ns(), now);
  ++consumed;
  EXPECT_FALSE(look(NextCqe::unknown));
}

TEST_F(CqWatchTest, ACounterThatGoesBackEndsNoSilence) {
  look(NextCqe::unknown);
  pass(2 * kThreshold, NextCqe::ready);
  consumed -= 1;
  EXPECT_FALSE(look(NextCqe::unknown));
  EXPECT_EQ(watch.consumed(), 0u);
}

TEST_F(CqWatchTest, WhatGoesOnIsOpen) {
  EXPECT_FALSE(watch.so_far());
  look(NextCqe::unknown);
  EXPECT_FALSE(watch.so_far());
  pass(2 * kThreshold, NextCqe::absent);
  auto silence = watch.so_far();
  ASSERT_TRUE(silence);
  EXPECT_TRUE(silence->open);
  EXPECT_FALSE(silence->ready);
  pass(kPeriod, NextCqe::ready);
  silence = watch.so_far();
  ASSERT_TRUE(silence && silence->ready);
  EXPECT_EQ(*silence->ready, since_last_look());
  EXPECT_EQ(silence->end.until_ns, now + kLookTakes);
}

// An index that wraps at the end of a small ring.
TEST_F(CqWatchTest, WhereARoundMayHavePassedNothingIsSilent) {
  reading.round_ns = kPeriod / 2;
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(look(NextCqe::ready));
    EXPECT_EQ(watch.served_until_ns(), i == 0 ? now : now - kPeriod);
  }
  EXPECT_FALSE(watch.so_far());
  EXPECT_FALSE(watch.is_exact());
  reading.unmoved = true;  // from here on there is evidence
  const uint64_t begun = now;
  pass(2 * kThreshold, NextCqe::ready);
  const auto silence = watch.so_far();
  ASSERT_TRUE(silence);
  EXPECT_EQ(silence->begin, (Window{begun - kPeriod, begun + kLookTakes}));
  EXPECT_EQ(watch.consumed(), 0u);
}

TEST_F(CqWatchTest, ALateLookEndsTheSilenceOfARingThatWraps) {
  reading.round_ns = 3 * kPeriod;
  look(NextCqe::unknown);
  pass(2 * kThreshold, NextCqe::absent);
  EXPECT_TRUE(watch.is_exact());
  const uint64_t last = now;
  now += 3 * kPeriod;
  const auto silence = look(NextCqe::absent);
  ASSERT_TRUE(silence) << "what it was until then is known";
  EXPECT_EQ(silence->end, (Window{last, now + kLookTakes}));
  EXPECT_FALSE(watch.so_far());
  EXPECT_FALSE(watch.is_exact());
}

TEST_F(CqWatchTest, SendsThatMayHaveBeenCompletedCountAnew) {
  look(NextCqe::unknown);
  sends[0].head = 101;
  pass(kThreshold, NextCqe::absent);
  ASSERT_TRUE(watch.unsure_of());
  watch.signaled(0, SignaledSends{1, 0});
  sends[0].exact = false;
  pass(kPeriod, NextCqe::absent);
  const Window again = since_last_look();
  sends[0].exact = true;
  while (!watch.unsure_of()) pass(kPeriod, NextCqe::absent);
  watch.signaled(0, SignaledSends{1, 0});
  pass(kThreshold, NextCqe::absent);
  ++consumed;
  const auto silence = look(NextCqe::unknown);
  ASSERT_TRUE(silence);
  EXPECT_EQ(silence->outstanding, again);
}

TEST_F(CqWatchTest, WhereItIsNotToldWhatSendsAskForTheyAreNeitherLateNorIdle) {
  look(NextCqe::unknown);
  sends[0].head = 101;
  pass(kThreshold, NextCqe::absent);
  ASSERT_TRUE(watch.unsure_of());
  watch.signaled(0, std::nullopt);
  pass(10 * kThreshold, NextCqe::absent);
  EXPECT_FALSE(watch.unsure_of()) << "asked again though nothing was posted";
  ++consumed;
  const auto silence = look(NextCqe::unknown);
  ASSERT_TRUE(silence);
  EXPECT_FALSE(silence->outstanding);
  EXPECT_EQ(watch.idle_ns(), 0u);
}

// Whatever the target's memory says: windows are not inside out, and lie between the looks.
TEST_F(CqWatchTest, HostileValues) {
  std::mt19937_64 random(7);
  uint64_t first = now + kPeriod;
  for (int i = 0; i < 200'000; ++i) {
    const uint64_t kind = random() % 8;
    if (kind == 0) consumed = static_cast<uint32_t>(random());
    if (kind == 1) sends[0] = {static_cast<uint32_t>(random()), static_cast<uint32_t>(random())};
    if (kind == 2) sends.resize(random() % 3);
    if (sends.empty()) sends.push_back({});
    if (kind == 3)
      watch.signaled(random() % 4, SignaledSends{static_cast<uint32_t>(random()),
                                                 static_cast<uint32_t>(random())});
    if (kind == 6) {
      watch.signaled(random() % 4, std::nullopt);
      reading.unmoved = random() % 2 == 0;
      reading.round_ns = random() % 2 == 0 ? UINT64_MAX : random() % kThreshold;
      sends[0].exact = random() % 2 == 0;
    }
    if (kind == 4) ++consumed;
    if (kind == 5) now += random() % 10'000'000;
    const auto silence = look(static_cast<NextCqe>(random() % 4));
    EXPECT_LE(watch.served_until_ns(), now);
    (void)watch.unsure_of();
    for (const auto& found : {silence, watch.so_far()}) {
      if (!found) continue;
      for (const auto& window : {std::optional(found->begin), std::optional(found->end),
                                 found->ready, found->outstanding}) {
        if (!window) continue;
        EXPECT_LE(window->after_ns, window->until_ns);
        EXPECT_GE(window->after_ns, first);
        EXPECT_LE(window->until_ns, now + kLookTakes);
      }
    }
  }
}

}  // namespace
}  // namespace pollgap
