// SPDX-License-Identifier: Apache-2.0
// From claims to a ledger: sorted, disjoint entries without holes, each one culprit's, bounded in
// number.
#pragma once

#include <cstdint>
#include <vector>

#include "agent/ledger/account.h"

namespace pollgap {

// A stretch of the gap that one culprit took.
struct Entry {
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  CulpritKey key;
  uint32_t origin = 0;      // of its longest part
  uint64_t longest_ns = 0;  // that part's length
  uint64_t count = 0;       // events
  uint64_t samples = 0;

  uint64_t length_ns() const { return end_ns - start_ns; }
};

// A culprit's total.
struct CulpritTotal {
  CulpritKey key;
  uint64_t total_ns = 0;
  uint64_t count = 0;
  uint64_t samples = 0;
  uint32_t origin = 0;  // of its longest part
  uint64_t longest_ns = 0;
};

// No gap has more segments than this. Where they have to be coalesced, so many culprits keep their
// names; the others are summed up by cause.
constexpr size_t kMaxSegments = 256;
constexpr size_t kMaxCulprits = 64;

// The key that stands for all the small culprits of a cause.
constexpr CulpritKey others_of(Cause cause) { return {cause, UINT64_MAX, UINT64_MAX}; }

// All claims of the account, sorted; neighbours of one culprit are one entry.
std::vector<Entry> merge_claims(const Account& account);

// The same entries, coalesced until there are at most kMaxSegments: the longest stay as they are,
// the short ones between them are summed up by culprit in place. Sums stay exact.
std::vector<Entry> bound_entries(std::vector<Entry> entries);

// Totals by culprit, the largest first; ties in the order of the causes.
std::vector<CulpritTotal> total_by_culprit(const std::vector<Entry>& entries);

}  // namespace pollgap
