// SPDX-License-Identifier: Apache-2.0
// What a person can do about a gap: one sentence each, with the exact command or setting.
#pragma once

#include <string>
#include <vector>

#include "agent/ledger/gap.h"
#include "agent/report/session_info.h"

namespace pollgap {

// From the gap's own evidence only: causes that took at least a tenth of the gap, largest first,
// then error completions returned in it. Empty when the evidence points to nothing that a person
// can change. The same culprit gives the same sentences in every gap, so that they can be counted.
std::vector<std::string> advise(const Gap& gap, const HostFacts& host);

}  // namespace pollgap
