// SPDX-License-Identifier: Apache-2.0
// Random evidence streams: plausible enough to reach every rule, wild enough to break their
// assumptions (overlaps, clocks that disagree, missing records, nonsense values).
#pragma once

#include <cstdint>

#include "tests/unit/ledger_stream.h"

namespace pollgap::test {

// The same seed gives the same stream. About `records` records, a gap among every 20 of them.
EvidenceStream random_stream(uint64_t seed, size_t records);

}  // namespace pollgap::test
