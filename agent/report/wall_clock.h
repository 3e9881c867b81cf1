// SPDX-License-Identifier: Apache-2.0
// Wall time of an event whose CLOCK_MONOTONIC time is known.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace pollgap {

// One instant read on both clocks when the session began.
struct ClockAnchor {
  uint64_t mono_ns = 0;      // CLOCK_MONOTONIC
  uint64_t realtime_ns = 0;  // CLOCK_REALTIME, since the epoch
};

// RFC 3339 in UTC with nanoseconds: "2025-01-31T23:59:59.123456789Z".
std::string wall_time(uint64_t mono_ns, const ClockAnchor& anchor);

}  // namespace pollgap
