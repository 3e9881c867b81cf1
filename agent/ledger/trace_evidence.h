// SPDX-License-Identifier: Apache-2.0
// Tracepoints of drivers and modules as a gap's evidence: what happened meanwhile, never a cause.
#pragma once

#include "agent/ledger/account.h"
#include "agent/ledger/gap.h"

namespace pollgap {

// Sets trace_events: the first that fired in the gap, in order of time; counts the others.
void add_trace_events(const Account& account, GapEvidence& evidence);

}  // namespace pollgap
