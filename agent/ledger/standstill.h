// SPDX-License-Identifier: Apache-2.0
// When the machine stood still. An SMI stops all cores, the agent's own with them: what the agent
// has to say of it is that a timer's interrupt came late on a core that is not polled.
#pragma once

#include <vector>

#include "agent/ledger/account.h"

namespace pollgap {

// Parts of the gap in which another core took no interrupt, and nothing was seen of the gap's CPU
// either: no interrupt began or ended there, no task came or went, and the thread neither entered
// nor left the kernel nor was sampled. Sorted, disjoint; without an origin.
std::vector<Claim> standstills_in(const Account& account);

// Whether a standstill may tell of time that is not to be seen otherwise. Not so where a steal
// clock tells what the hypervisor took, or where there is none and SMIs are counted.
bool standstill_matters(const Account& account);

}  // namespace pollgap
