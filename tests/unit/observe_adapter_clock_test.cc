// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "agent/observe/adapter_clock.h"

namespace pollgap {
namespace {

constexpr uint64_t kPeriod = 200'000, kStart = 5'000'000'000'000;
constexpr uint64_t kSecond = 1'000'000'000;

// An adapter whose clock has any rate and offset, and completions that looks find in time.
class AdapterClockTest : public testing::Test {
 protected:
  uint64_t stamp_at(uint64_t ns) const {
    return offset +
           static_cast<uint64_t>(std::llround(ticks_per_ns * static_cast<double>(ns - kStart)));
  }
  // Of a completion that was made then, and written so much later, between two looks.
  void complete(uint64_t made_ns, uint64_t written_late_ns) {
    const uint64_t written_ns = made_ns + 1'000 + written_late_ns;
    const uint64_t before_ns = written_ns - random() % kPeriod;
    clock.add(stamp_at(made_ns), {before_ns, before_ns + kPeriod + random() % 3'000});
  }
  // For so long; one of `late_in` is written a millisecond or more late (0: none).
  void run(uint64_t ns, unsigned late_in = 0) {
    for (const uint64_t end = now + ns; now < end; now += 21'000'000 + random() % 10'000'000)
      complete(now, late_in != 0 && random() % late_in == 0 ? 1'000'000 + random() % 9'000'000 : 0);
  }
  // Is what is said true, and does it say something?
  void expect_known(uint64_t ns) {
    const auto host = clock.host_time(stamp_at(ns));
    ASSERT_TRUE(host);
    EXPECT_LE(host->after_ns, ns);
    EXPECT_GE(host->until_ns, ns);
    EXPECT_LE(host->width_ns(), 7 * kPeriod);
  }

  AdapterClock clock;
  std::mt19937_64 random{20261130};
  double ticks_per_ns = 0.15625;  // 156.25 MHz, as some have
  uint64_t offset = 123'456'789'012;
  uint64_t now = kStart;
};

TEST_F(AdapterClockTest, IsLearnt) {
  EXPECT_FALSE(clock.host_time(offset));
  run(kSecond / 4);
  EXPECT_FALSE(clock.host_time(stamp_at(now))) << "too soon";
  run(5 * kSecond);
  for (const uint64_t ago : {0ul, kSecond, 4 * kSecond}) expect_known(now - ago);
  const auto host = clock.host_time(stamp_at(now));
  EXPECT_LE(host->width_ns(), 3 * kPeriod);
}

TEST_F(AdapterClockTest, AtAnyRate) {
  for (int round = 0; round < 200; ++round) {
    clock = AdapterClock();
    ticks_per_ns = std::exp2(std::uniform_real_distribution(-7.0, 2.0)(random));
    offset = random() >> (1 + random() % 40);
    now = kStart + random() % kSecond;
    run(3 * kSecond + random() % (20 * kSecond), random() % 2 == 0 ? 0 : 3 + random() % 6);
    expect_known(now);
    expect_known(now + kSecond);
  }
}

TEST_F(AdapterClockTest, CompletionsWrittenLateDoNotMoveIt) {
  run(8 * kSecond, 3);
  expect_known(now);
  expect_known(now - 5 * kSecond);
}

TEST_F(AdapterClockTest, WhereMostAreLateNothingIsSaid) {
  for (int i = 0; i < 400; ++i) {
    complete(now, i % 4 == 0 ? 0 : 1'000'000 + random() % 9'000'000);
    now += 25'000'000;
  }
  EXPECT_FALSE(clock.host_time(stamp_at(now)));
}

TEST_F(AdapterClockTest, AClockThatJumpsIsLearntAgain) {
  run(5 * kSecond);
  offset += 1'000'000'000'000;
  run(2 * kSecond);
  EXPECT_FALSE(clock.host_time(stamp_at(now)));
  run(30 * kSecond);
  expect_known(now);
  offset = 0;  // as after a reset of the adapter
  run(2 * kSecond);
  const auto host = clock.host_time(stamp_at(now));
  EXPECT_TRUE(!host || (host->after_ns <= now && now <= host->until_ns));
  run(30 * kSecond);
  expect_known(now);
}

TEST_F(AdapterClockTest, IsForgottenAfterSomeTime) {
  run(3 * kSecond);
  expect_known(now + 2 * kSecond);
  EXPECT_FALSE(clock.host_time(stamp_at(now + 4 * kSecond)));
}

}  // namespace
}  // namespace pollgap
