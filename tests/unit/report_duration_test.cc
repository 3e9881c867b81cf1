// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "agent/report/duration.h"
#include "agent/report/wall_clock.h"

namespace pollgap {
namespace {

TEST(ParseDuration, TakesEveryUnitAndDecimals) {
  EXPECT_EQ(parse_duration("1ns").value(), 1u);
  EXPECT_EQ(parse_duration("250us").value(), 250'000u);
  EXPECT_EQ(parse_duration("1ms").value(), 1'000'000u);
  EXPECT_EQ(parse_duration("1.5ms").value(), 1'500'000u);
  EXPECT_EQ(parse_duration("30s").value(), 30'000'000'000u);
  EXPECT_EQ(parse_duration("2m").value(), 120'000'000'000u);
  EXPECT_EQ(parse_duration("1h").value(), 3'600'000'000'000u);
  EXPECT_EQ(parse_duration("0.000000001s").value(), 1u);
  EXPECT_EQ(parse_duration("9223372036854775807ns").value(), 9223372036854775807u);
}

TEST(ParseDuration, RefusesWithTheTextAndWhatToWrite) {
  for (const char* text : {"",
                           "1",
                           "100",
                           "ms",
                           "-1ms",
                           "+1ms",
                           "1 ms",
                           "1msec",
                           "0ms",
                           "0.0s",
                           "1.ms",
                           ".5ms",
                           "1.0000000001s",
                           "9223372036854775808ns",
                           "99999999999999999999999s",
                           "3000000h",
                           "1e3ms",
                           "1ms ",
                           "0.1ns",
                           "nan",
                           "infs"}) {
    const auto parsed = parse_duration(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, ExitCode::usage);
    EXPECT_NE(parsed.error().message.find(text), std::string::npos);
    EXPECT_NE(parsed.error().message.find("1ms"), std::string::npos);
    EXPECT_EQ(parsed.error().message.find('\n'), std::string::npos);
  }
}

TEST(DurationText, ChoosesTheUnit) {
  EXPECT_EQ(duration_text(0), "0 ns");
  EXPECT_EQ(duration_text(999), "999 ns");
  EXPECT_EQ(duration_text(1000), "1.00 µs");
  EXPECT_EQ(duration_text(12'345), "12.3 µs");
  EXPECT_EQ(duration_text(999'499), "999 µs");
  EXPECT_EQ(duration_text(999'500), "1.00 ms");
  EXPECT_EQ(duration_text(4'916'000), "4.92 ms");
  EXPECT_EQ(duration_text(9'996'000), "10.0 ms");
  EXPECT_EQ(duration_text(99'960'000), "100 ms");
  EXPECT_EQ(duration_text(999'600'000), "1.00 s");
  EXPECT_EQ(duration_text(61'400'000'000), "61.4 s");
  EXPECT_EQ(duration_text(200'000'000'000), "3 min 20 s");
  EXPECT_EQ(duration_text(7'500'000'000'000), "2 h 5 min");
}

TEST(WallTime, IsRfc3339WithNanoseconds) {
  const ClockAnchor anchor{1'000'000'000'000, 1'738'367'999'000'000'000};
  EXPECT_EQ(wall_time(1'000'000'000'000, anchor), "2025-01-31T23:59:59.000000000Z");
  EXPECT_EQ(wall_time(1'001'000'000'001, anchor), "2025-02-01T00:00:00.000000001Z");
  EXPECT_EQ(wall_time(999'999'999'999, anchor), "2025-01-31T23:59:58.999999999Z");
}

}  // namespace
}  // namespace pollgap
