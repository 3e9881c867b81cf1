// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "tools/soft-hca/timer_wheel.h"

namespace pollgap::soft_hca {
namespace {

constexpr uint64_t kStart = 12'345'678'901;
constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

TEST(TimerWheel, EndsAtTheDeadlineToTheNanosecond) {
  TimerWheel wheel(kStart);
  Timer timer;
  wheel.start(&timer, kStart + 1'000'003);
  EXPECT_TRUE(timer.running());
  EXPECT_EQ(wheel.take_ended(kStart + 1'000'002), nullptr);
  EXPECT_EQ(wheel.next_look_ns(), kStart + 1'000'003);
  EXPECT_EQ(wheel.take_ended(kStart + 1'000'003), &timer);
  EXPECT_FALSE(timer.running());
  EXPECT_EQ(wheel.take_ended(kStart + 5'000'000), nullptr);
  EXPECT_EQ(wheel.next_look_ns(), kNever);
}

TEST(TimerWheel, AStoppedTimerDoesNotEndAndARestartedOneEndsOnce) {
  TimerWheel wheel(kStart);
  Timer stopped;
  Timer restarted;
  wheel.start(&stopped, kStart + 100);
  wheel.start(&restarted, kStart + 100);
  wheel.stop(&stopped);
  wheel.stop(&stopped);
  wheel.start(&restarted, kStart + 900'000'000);  // several turns away
  EXPECT_EQ(wheel.take_ended(kStart + 899'999'999), nullptr);
  EXPECT_EQ(wheel.take_ended(kStart + 900'000'000), &restarted);
  EXPECT_EQ(wheel.take_ended(kStart + 2'000'000'000), nullptr);
}

TEST(TimerWheel, ADeadlineInThePastEndsAtOnce) {
  TimerWheel wheel(kStart);
  Timer timer;
  EXPECT_EQ(wheel.take_ended(kStart + 50'000'000), nullptr);
  wheel.start(&timer, kStart);
  EXPECT_EQ(wheel.take_ended(kStart + 50'000'000), &timer);
}

// Against a plain list, with uneven steps, some of them longer than a turn; and as a device thread
// does it, that sleeps until next_look_ns().
TEST(TimerWheel, AgreesWithAList) {
  constexpr uint64_t kTurn = TimerWheel::kSlotNs * TimerWheel::kSlots;
  std::mt19937_64 random(7);
  TimerWheel wheel(kStart);
  std::vector<Timer> timers(300);
  uint64_t now = kStart;
  for (int step = 0; step < 20'000; ++step) {
    Timer& timer = timers[random() % timers.size()];
    switch (random() % 3) {
      case 0:
        wheel.stop(&timer);
        break;
      case 1:
        wheel.start(&timer, now + random() % (3 * kTurn));
        break;
      default:
        wheel.start(&timer, now + random() % 1'000'000);
        break;
    }
    const uint64_t look = wheel.next_look_ns();
    for (const Timer& each : timers) {
      if (each.running()) {
        ASSERT_LE(look, std::max(each.deadline_ns(), now + TimerWheel::kSlotNs));
      }
    }
    const bool sleep = random() % 2 == 0 && look != kNever;
    now =
        sleep ? std::max(now, look) : now + random() % (random() % 100 == 0 ? 2 * kTurn : 300'000);
    std::vector<const Timer*> expected;
    for (const Timer& each : timers) {
      if (each.running() && each.deadline_ns() <= now) expected.push_back(&each);
    }
    std::vector<const Timer*> ended;
    while (const Timer* each = wheel.take_ended(now)) ended.push_back(each);
    std::sort(ended.begin(), ended.end());
    ASSERT_EQ(ended, expected) << "step " << step;
  }
}

}  // namespace
}  // namespace pollgap::soft_hca
