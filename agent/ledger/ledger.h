// SPDX-License-Identifier: Apache-2.0
// From a gap's record and the evidence around it to its ledger and verdict.
#pragma once

#include <cstdint>
#include <optional>

#include "agent/ledger/dictionary.h"
#include "agent/ledger/gap.h"
#include "agent/ledger/session.h"
#include "agent/timeline/timeline.h"

namespace pollgap {

// The gap, complete but for its id. gap.header.end_ns must be after its start.
Gap make_gap(const Timeline& timeline, const Dictionary& names, const Session& session,
             const GapRecord& gap);

// A thread that was moved away while it waited leaves a task running whose stretch is recorded
// only when it ends, perhaps after the gap.
struct AwaitedRun {
  uint32_t cpu = 0;
  uint64_t at_ns = 0;  // an instant that the missing stretch covers
};
std::optional<AwaitedRun> awaited_run(const Timeline& timeline, const GapRecord& gap);

}  // namespace pollgap
