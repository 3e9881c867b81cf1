// SPDX-License-Identifier: Apache-2.0
#include "agent/report/wall_clock.h"

#include <fmt/format.h>

#include <chrono>

namespace pollgap {

std::string wall_time(uint64_t mono_ns, const ClockAnchor& anchor) {
  using namespace std::chrono;
  // Unsigned arithmetic: an event before the anchor wraps around twice and comes out right.
  const auto since_epoch =
      nanoseconds(static_cast<int64_t>(anchor.realtime_ns + (mono_ns - anchor.mono_ns)));
  const auto day = floor<days>(since_epoch);
  const year_month_day date{sys_days(day)};
  const hh_mm_ss<nanoseconds> time(since_epoch - day);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:09}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     time.hours().count(), time.minutes().count(), time.seconds().count(),
                     time.subseconds().count());
}

}  // namespace pollgap
