// SPDX-License-Identifier: Apache-2.0
// The ledger's answer: the cause with the largest total, how sure it is, and one line of words.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "agent/ledger/account.h"
#include "agent/ledger/gap.h"
#include "agent/ledger/segments.h"

namespace pollgap {

struct CulpritDetail {
  Culprit culprit;
  Detail detail;
  uint32_t cpu = 0;  // where its longest part was
};

// A detail for an entry or a total of this key.
Detail detail_of(const Account& account, const CulpritKey& key, uint32_t origin, uint64_t count,
                 uint64_t samples);

// `culprits` are the gap's, the largest first. `gap` has everything but its verdict.
Verdict make_verdict(const Account& account, const std::vector<Entry>& entries,
                     std::span<const CulpritDetail> culprits, const Gap& gap);

// "4.97 ms": three significant digits.
std::string format_duration(uint64_t ns);

// The line for the cause; `culprits` are its own, the largest first, never empty.
std::string describe(Cause cause, uint64_t cause_ns, std::span<const CulpritDetail> culprits);

}  // namespace pollgap
