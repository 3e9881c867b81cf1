// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "tools/workload/cycle_counter.h"
#include "tools/workload/monotonic.h"
#include "tools/workload/tsc_clock.h"

namespace pollgap::workload {
namespace {

constexpr uint64_t allowed_ns = 5 * ns_per_us;

// The clock read between two stamps: however long that took, the conversion must be consistent.
struct Reading {
  uint64_t ticks_before;
  uint64_t mono_ns;
  uint64_t ticks_after;
};

Reading take_reading() {
  Reading reading{};
  reading.ticks_before = read_cycles();
  reading.mono_ns = monotonic_ns();
  reading.ticks_after = read_cycles();
  return reading;
}

TEST(TscClock, InterpolationIsExactToMicroseconds) {
  TscClock clock;
  TscAnchorer anchorer(clock);
  std::vector<Reading> readings;
  const uint64_t end_ns = monotonic_ns() + ns_per_s;
  while (monotonic_ns() < end_ns) {
    readings.push_back(take_reading());
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  anchorer.stop();
  ASSERT_GT(readings.size(), 50U);
  for (const Reading& reading : readings) {
    EXPECT_LE(clock.to_mono_ns(reading.ticks_before), reading.mono_ns + allowed_ns);
    EXPECT_GE(clock.to_mono_ns(reading.ticks_after) + allowed_ns, reading.mono_ns);
  }
}

TEST(TscClock, ConversionNeverGoesBack) {
  TscClock clock;
  TscAnchorer anchorer(clock);
  std::vector<uint64_t> stamps;
  for (int i = 0; i < 200; ++i) {
    stamps.push_back(read_cycles());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  anchorer.stop();
  uint64_t last = 0;
  for (const uint64_t stamp : stamps) {
    const uint64_t now = clock.to_mono_ns(stamp);
    EXPECT_GT(now, last);
    last = now;
  }
}

TEST(TscClock, ToTicksIsTheInverse) {
  TscClock clock;
  clock.anchor();
  const uint64_t soon_ns = monotonic_ns() + 10 * ns_per_ms;
  const uint64_t back_ns = clock.to_mono_ns(clock.to_ticks(soon_ns));
  // Extrapolated by 10 ms, from anchors that are each off by up to half their width.
  const uint64_t slack_ns = allowed_ns + clock.worst_anchor_ns();
  EXPECT_LE(back_ns, soon_ns + slack_ns);
  EXPECT_GE(back_ns + slack_ns, soon_ns);
}

TEST(TscClock, LengthsConvertBothWays) {
  const TscClock clock;
  for (const uint64_t ns : {uint64_t{0}, ns_per_us, ns_per_ms, 100 * ns_per_s}) {
    EXPECT_NEAR(static_cast<double>(clock.ns_in(clock.ticks_in(ns))), static_cast<double>(ns), 2);
  }
}

}  // namespace
}  // namespace pollgap::workload
