// SPDX-License-Identifier: Apache-2.0
// Gaps with every kind of detail, for the tests of the report.
#pragma once

#include <vector>

#include "agent/ledger/correlator.h"
#include "agent/ledger/gap.h"

namespace pollgap::sample {

// A session on 8 CPUs whose clocks are anchored at 2025-01-31T23:59:59Z == 1000 s.
SessionFacts facts();

// One gap with one segment that fills it and is its verdict.
Gap gap_of(Cause cause, Detail detail);

// One gap per cause, in the order of the causes, ids from 1; then one of many segments.
std::vector<Gap> gaps_of_every_cause();
Gap mixed_gap();

// Every member of Detail set to something.
Detail full_detail();

}  // namespace pollgap::sample
