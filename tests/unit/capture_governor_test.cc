// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <random>

#include "agent/capture/governor.h"

namespace pollgap {
namespace {

constexpr uint64_t kMs = 1'000'000, kSecond = 1'000 * kMs, kMinute = 60 * kSecond;
constexpr double kBudget = 0.01, kHousekeeping = 0.05;
constexpr uint64_t kProbeNs = 750, kLeavingNs = 250 * kMs;

Governor governor(double budget = kBudget) { return {budget, kHousekeeping, kProbeNs, kLeavingNs}; }

// As many polls as take this share of a core.
uint64_t polls(double share, uint64_t length_ns) {
  return static_cast<uint64_t>(share * static_cast<double>(length_ns) / kProbeNs);
}

TEST(GovernorTest, FewPollsAreTimedAndManyAreNot) {
  const Governor one = governor();
  EXPECT_TRUE(one.may_time(one.share(kSecond, 1'000)));
  EXPECT_TRUE(one.may_time(0));
  EXPECT_FALSE(one.may_time(one.share(kSecond, 20'000)));
  EXPECT_DOUBLE_EQ(one.share(kSecond, 10'000'000'000), 1) << "more than a core cannot be taken";
}

TEST(GovernorTest, TimingWithinHalfTheBudgetGoesOnForEver) {
  Governor one = governor();
  for (int i = 0; i < 100'000; ++i) {
    one.spend(100 * kMs, polls(0.0049, 100 * kMs));
    ASSERT_FALSE(one.must_leave());
  }
}

TEST(GovernorTest, APollerThatBeginsToSpinIsLeftAtOnce) {
  Governor one = governor();
  one.spend(100 * kMs, polls(0.95, 100 * kMs));
  EXPECT_TRUE(one.must_leave()) << "a second such turn would not leave enough to take probes off";
}

TEST(GovernorTest, AShortRushIsPaidFromThePurse) {
  Governor one = governor();
  one.spend(100 * kMs, polls(0.05, 100 * kMs));
  EXPECT_FALSE(one.must_leave());
}

TEST(GovernorTest, AfterARushTimingWaitsUntilThePurseIsFullAgain) {
  Governor one = governor();
  one.spend(350 * kMs, polls(0.8, 350 * kMs));
  EXPECT_FALSE(one.may_time(0));
  EXPECT_FALSE(one.may_probe(150 * kMs));
  one.spend(kMinute, 0);
  EXPECT_TRUE(one.may_time(0));
}

TEST(GovernorTest, ASmallBudgetStillHasBurstsAndSlowPollers) {
  const Governor one = governor(0.0001);
  EXPECT_TRUE(one.may_probe(150 * kMs));
  EXPECT_TRUE(one.may_time(0.00004));
}

// What a target may do: the rate of its polls changes at any time, by any factor. What the session
// does: it asks every tenth of a second, and takes probes off within kLeavingNs.
TEST(GovernorTest, NoMinuteCostsMoreThanTheBudget) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 50; ++round) {
    Governor one = governor();
    bool timing = false;
    double share = 0, spent_ns = 0;
    uint64_t now = 0, changes_at = 0, minute_at = 0;
    const auto pass = [&](uint64_t length_ns, double probed) {
      one.spend(length_ns, polls(probed, length_ns));
      spent_ns += probed * static_cast<double>(length_ns);
      now += length_ns;
    };
    while (now < 20 * kMinute) {
      if (now >= changes_at) {
        share = std::pow(10.0, std::uniform_real_distribution(-5.0, 0.0)(random));
        changes_at = now + random() % (20 * kSecond);
      }
      if (now >= minute_at + kMinute) {
        ASSERT_LE(spent_ns, kBudget * static_cast<double>(now - minute_at) * 1.02);
        minute_at = now;
        spent_ns = 0;
      }
      if (!timing && one.may_probe(150 * kMs) && random() % 50 == 0) {
        pass(150 * kMs, share);
        timing = one.may_time(share);
      }
      pass(100 * kMs, timing ? share : 0);
      if (timing && one.must_leave()) {
        pass(140 * kMs, share);
        timing = false;
      }
    }
  }
}

TEST(GovernorTest, TheAgentLooksAsOftenAsItsCoreBears) {
  Governor one = governor();
  EXPECT_NEAR(one.look_rate({kSecond, 34 * kMs, 32 * kMs}, 5000, 5000, 500), 3500, 1)
      << "3 % in all, and some room";
  EXPECT_EQ(one.look_rate({kSecond, 30 * kMs, 20 * kMs}, 3500, 5000, 500), 3500u);
  EXPECT_EQ(one.look_rate({kSecond, 160 * kMs, 150 * kMs}, 600, 5000, 500), 500u);
  EXPECT_EQ(one.look_rate({kSecond, 160 * kMs, 150 * kMs}, 500, 5000, 500), 500u);
  EXPECT_EQ(one.look_rate({kSecond, 160 * kMs, 150 * kMs}, 100, 100, 500), 100u)
      << "never more than wanted";
}

TEST(GovernorTest, AndAsOftenAsBeforeWhenItHasBeenCheapForLong) {
  Governor one = governor();
  for (int i = 0; i < 14; ++i)
    ASSERT_EQ(one.look_rate({2 * kSecond, 24 * kMs, 24 * kMs}, 1250, 5000, 500), 1250u);
  EXPECT_EQ(one.look_rate({2 * kSecond, 24 * kMs, 24 * kMs}, 1250, 5000, 500), 2500u);
  EXPECT_EQ(one.look_rate({2 * kSecond, 24 * kMs, 24 * kMs}, 2500, 5000, 500), 2500u)
      << "counting begins anew";
}

// Looks of any price, which changes, other work all the time, and once a minute a lot of it.
TEST(GovernorTest, NoMinuteOfTheAgentsCoreCostsMoreThanItsBudget) {
  std::mt19937_64 random{20261130};
  const auto uniform = [&random](double from, double to) {
    return std::uniform_real_distribution(from, to)(random);
  };
  for (int round = 0; round < 200; ++round) {
    Governor one = governor();
    std::deque<double> minute;
    double in_minute = 0;
    uint32_t hz = 5000;
    double price_ns = uniform(1e3, 40e3), other = uniform(0, 0.004);
    for (int second = 0; second < 600; ++second) {
      if (second % 97 == 0) price_ns = uniform(1e3, 40e3);
      const double looks_ns = hz * price_ns;
      const double other_ns = other * 1e9 + (second % 60 == round % 60 ? 4e8 : 0);
      minute.push_back(looks_ns + other_ns);
      in_minute += minute.back();
      if (minute.size() > 60) {
        in_minute -= minute.front();
        minute.pop_front();
      }
      ASSERT_LE(in_minute, 0.05 * 60e9) << "round " << round << ", second " << second;
      hz = one.look_rate(
          {kSecond, static_cast<uint64_t>(looks_ns + other_ns), static_cast<uint64_t>(looks_ns)},
          hz, 5000, 500);
    }
  }
}

}  // namespace
}  // namespace pollgap
