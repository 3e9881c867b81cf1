// SPDX-License-Identifier: Apache-2.0
#include "agent/ledger/segments.h"

#include <algorithm>
#include <functional>
#include <map>

namespace pollgap {
namespace {

void absorb(Entry& into, const Entry& other) {
  into.count += other.count;
  into.samples += other.samples;
  if (other.longest_ns > into.longest_ns) {
    into.longest_ns = other.longest_ns;
    into.origin = other.origin;
  }
}

// Sums [first, last) up by culprit, in the order in which the culprits first appear.
void coalesce(std::vector<Entry>::const_iterator first, std::vector<Entry>::const_iterator last,
              std::vector<Entry>& out) {
  if (first == last) {
    return;
  }
  std::map<CulpritKey, size_t> places;
  std::vector<std::pair<Entry, uint64_t>> sums;
  for (auto entry = first; entry != last; ++entry) {
    const auto [place, is_new] = places.try_emplace(entry->key, sums.size());
    if (is_new) {
      sums.emplace_back(*entry, entry->length_ns());
    } else {
      absorb(sums[place->second].first, *entry);
      sums[place->second].second += entry->length_ns();
    }
  }
  uint64_t cursor_ns = first->start_ns;
  for (auto& [entry, sum_ns] : sums) {
    entry.start_ns = cursor_ns;
    cursor_ns += sum_ns;
    entry.end_ns = cursor_ns;
    out.push_back(entry);
  }
}

// Keeps entries of at least `kept_from_ns` and coalesces the ones between them.
std::vector<Entry> coalesce_shorter_than(const std::vector<Entry>& entries, uint64_t kept_from_ns) {
  std::vector<Entry> out;
  auto first = entries.begin();
  for (auto entry = entries.begin(); entry != entries.end(); ++entry) {
    if (entry->length_ns() >= kept_from_ns) {
      coalesce(first, entry, out);
      out.push_back(*entry);
      first = entry + 1;
    }
  }
  coalesce(first, entries.end(), out);
  return out;
}

// Renames all but the largest culprits to their cause's "others".
void fold_small_culprits(std::vector<Entry>& entries) {
  const std::vector<CulpritTotal> totals = total_by_culprit(entries);
  std::map<CulpritKey, bool> kept;
  for (size_t i = 0; i < totals.size() && i < kMaxCulprits; ++i) {
    kept[totals[i].key] = true;
  }
  for (Entry& entry : entries) {
    if (!kept.contains(entry.key)) {
      entry.key = others_of(entry.key.cause);
    }
  }
}

}  // namespace

std::vector<Entry> merge_claims(const Account& account) {
  std::vector<Claim> claims = account.claims();
  std::sort(claims.begin(), claims.end(),
            [](const Claim& left, const Claim& right) { return left.start_ns < right.start_ns; });
  std::vector<Entry> entries;
  std::vector<bool> counted;
  for (const Claim& claim : claims) {
    const Origin& origin = account.origin(claim.origin);
    counted.resize(std::max<size_t>(counted.size(), claim.origin + 1));
    // One event that interrupts cut in two is still one event.
    const bool first_part = !counted[claim.origin];
    counted[claim.origin] = true;
    const Entry entry{.start_ns = claim.start_ns,
                      .end_ns = claim.end_ns,
                      .key = origin.key,
                      .origin = claim.origin,
                      .longest_ns = claim.length_ns(),
                      .count = first_part ? origin.count : 0,
                      .samples = first_part ? origin.samples : 0};
    if (!entries.empty() && entries.back().key == entry.key &&
        entries.back().end_ns == entry.start_ns) {
      entries.back().end_ns = entry.end_ns;
      absorb(entries.back(), entry);
    } else {
      entries.push_back(entry);
    }
  }
  return entries;
}

std::vector<CulpritTotal> total_by_culprit(const std::vector<Entry>& entries) {
  std::map<CulpritKey, CulpritTotal> by_key;
  for (const Entry& entry : entries) {
    CulpritTotal& total = by_key[entry.key];
    total.key = entry.key;
    total.total_ns += entry.length_ns();
    total.count += entry.count;
    total.samples += entry.samples;
    if (entry.longest_ns > total.longest_ns) {
      total.longest_ns = entry.longest_ns;
      total.origin = entry.origin;
    }
  }
  std::vector<CulpritTotal> totals;
  totals.reserve(by_key.size());
  for (const auto& [key, total] : by_key) {
    totals.push_back(total);
  }
  std::stable_sort(totals.begin(), totals.end(),
                   [](const CulpritTotal& left, const CulpritTotal& right) {
                     return left.total_ns > right.total_ns;
                   });
  return totals;
}

std::vector<Entry> bound_entries(std::vector<Entry> entries) {
  if (entries.size() <= kMaxSegments) {
    return entries;
  }
  fold_small_culprits(entries);
  std::vector<uint64_t> lengths;
  lengths.reserve(entries.size());
  for (const Entry& entry : entries) {
    lengths.push_back(entry.length_ns());
  }
  std::sort(lengths.begin(), lengths.end(), std::greater<>());
  for (size_t kept = kMaxSegments / 2; kept > 0; kept /= 2) {
    // Entries as long as the first that is not kept are not kept either.
    std::vector<Entry> bounded = coalesce_shorter_than(entries, lengths[kept] + 1);
    if (bounded.size() <= kMaxSegments) {
      return bounded;
    }
  }
  return coalesce_shorter_than(entries, UINT64_MAX);
}

}  // namespace pollgap
