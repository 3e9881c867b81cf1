// SPDX-License-Identifier: Apache-2.0
// Durations as people write and read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "probes/result.h"

namespace pollgap {

// "250us", "1ms", "1.5s", "2m" to nanoseconds. Units: ns, us, ms, s, m, h. A bare number, a sign, a
// zero, more than nine decimals or anything beyond 2^63 ns is an Error of code usage.
Result<uint64_t> parse_duration(std::string_view text);

// Three significant digits in the unit that suits: "512 ns", "4.92 ms", "61.4 s"; from two minutes
// on whole seconds: "3 min 20 s", "2 h 5 min".
std::string duration_text(uint64_t duration_ns);

}  // namespace pollgap
