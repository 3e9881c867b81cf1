// SPDX-License-Identifier: Apache-2.0
// From a gap's record and the evidence around it to its ledger and verdict.
#pragma once

#include <cstdint>

#include "agent/ledger/dictionary.h"
#include "agent/ledger/gap.h"
#include "agent/ledger/session.h"
#include "agent/timeline/timeline.h"

namespace pollgap {

// The gap, complete but for its id. gap.header.end_ns must be after its start.
Gap make_gap(const Timeline& timeline, const Dictionary& names, const Session& session,
             const GapRecord& gap);

// Whether evidence is still to come that is written only after the gap: the stretch of a task that
// ran on where the thread had waited before it was moved away; the scheduler's reading of the steal
// clock.
bool lacks_run(const Timeline& timeline, const GapRecord& gap);
bool lacks_steal_reading(const Timeline& timeline, const GapRecord& gap);

// Whether a standstill, told by the agent's sampler when the machine goes on, would change what is
// said of the gap.
bool may_lack_standstill(const Timeline& timeline, const Dictionary& names, const Session& session,
                         const GapRecord& gap);

}  // namespace pollgap
