// SPDX-License-Identifier: Apache-2.0
// Durations as a person writes them.
#pragma once

#include <cstdint>
#include <string_view>

#include "probes/result.h"

namespace pollgap::workload {

// "5ms", "1.5s", "250us", "800ns": nanoseconds. A number and one of the units ns, us, ms, s; 0
// needs no unit. Anything else, and what does not fit 64 bits, is an Error with ExitCode::usage.
Result<uint64_t> parse_duration(std::string_view text);

}  // namespace pollgap::workload
