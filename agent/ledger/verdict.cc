// SPDX-License-Identifier: Apache-2.0
#include "agent/ledger/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "agent/ledger/detail.h"

namespace pollgap {
namespace {

constexpr size_t kCauses = static_cast<size_t>(Cause::unexplained) + 1;
constexpr double kHighShare = 0.8;
constexpr double kMediumShare = 0.5;
// Evidence of a lesser grade counts when more than this share of the cause's time rests on it.
constexpr double kToleratedShare = 0.2;

using CauseTotals = std::array<uint64_t, kCauses>;

CauseTotals totals_by_cause(const std::vector<Entry>& entries) {
  CauseTotals totals{};
  for (const Entry& entry : entries) {
    totals[static_cast<size_t>(entry.key.cause)] += entry.length_ns();
  }
  return totals;
}

double ratio(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

// The worst grade that a relevant share of the cause's time rests on.
Grade grade_of(const Account& account, Cause cause) {
  std::array<uint64_t, 3> ns_by_grade{};
  uint64_t sum_ns = 0;
  for (const Claim& claim : account.claims()) {
    const Origin& origin = account.origin(claim.origin);
    if (origin.key.cause == cause) {
      ns_by_grade[static_cast<size_t>(origin.grade)] += claim.length_ns();
      sum_ns += claim.length_ns();
    }
  }
  const uint64_t weak_ns = ns_by_grade[static_cast<size_t>(Grade::weak)];
  const uint64_t indirect_ns = ns_by_grade[static_cast<size_t>(Grade::indirect)];
  if (ratio(weak_ns, sum_ns) > kToleratedShare) {
    return Grade::weak;
  }
  return ratio(weak_ns + indirect_ns, sum_ns) > kToleratedShare ? Grade::indirect : Grade::exact;
}

Confidence confidence_of(const Account& account, Cause cause, double share) {
  const Grade grade = grade_of(account, cause);
  if (cause == Cause::unexplained || !account.evidence_complete() || grade == Grade::weak ||
      share < kMediumShare) {
    return Confidence::low;
  }
  return share >= kHighShare && grade == Grade::exact ? Confidence::high : Confidence::medium;
}

// "; also soft_irq 1.2 ms, unexplained 300 us": what else took a notable part.
std::string other_causes(const CauseTotals& totals, Cause primary, uint64_t duration_ns) {
  std::vector<std::pair<uint64_t, Cause>> others;
  for (size_t i = 0; i < kCauses; ++i) {
    if (static_cast<Cause>(i) != primary && ratio(totals[i], duration_ns) >= 0.05) {
      others.emplace_back(totals[i], static_cast<Cause>(i));
    }
  }
  std::stable_sort(others.begin(), others.end(),
                   [](const auto& left, const auto& right) { return left.first > right.first; });
  std::string text;
  for (const auto& [ns, cause] : others) {
    text += fmt::format("{}{} {}", text.empty() ? "; also " : ", ", to_string(cause),
                        format_duration(ns));
  }
  return text;
}

std::string loss(const Account& account) {
  if (account.lost_records() > 0) {
    return fmt::format("; {} records were lost meanwhile", account.lost_records());
  }
  return account.evidence_complete() ? "" : "; part of its evidence no longer fitted into memory";
}

// "; meanwhile mlx5:mlx5_cmd, mlx5:mlx5_fw (3 times)": it may have to do with it, or not.
std::string meanwhile(const GapEvidence& evidence) {
  constexpr size_t kNamed = 3;
  std::vector<std::pair<std::string, uint64_t>> counts;
  for (const TraceEvidence& event : evidence.trace_events) {
    const auto found = std::find_if(counts.begin(), counts.end(), [&event](const auto& entry) {
      return entry.first == event.event;
    });
    if (found == counts.end()) {
      counts.emplace_back(event.event, 1);
    } else {
      ++found->second;
    }
  }
  std::string text;
  for (size_t i = 0; i < counts.size() && i < kNamed; ++i) {
    const auto& [name, count] = counts[i];
    text += (i == 0 ? "; meanwhile " : ", ") + name +
            (count > 1 ? fmt::format(" ({} times)", count) : "");
  }
  if (counts.size() > kNamed || evidence.trace_events_left_out > 0) {
    text += " and others";
  }
  return text;
}

}  // namespace

Detail detail_of(const Account& account, const CulpritKey& key, uint32_t origin, uint64_t count,
                 uint64_t samples) {
  Detail detail;
  if (key == others_of(key.cause)) {
    detail.note = "the smaller ones together";
  } else {
    detail = make_detail(account, account.origin(origin));
  }
  detail.count = std::max<uint64_t>(count, 1);
  detail.samples = samples;
  return detail;
}

Verdict make_verdict(const Account& account, const std::vector<Entry>& entries,
                     std::span<const CulpritDetail> culprits, const Gap& gap) {
  const CauseTotals totals = totals_by_cause(entries);
  const auto largest = std::max_element(totals.begin(), totals.end());
  const auto cause = static_cast<Cause>(largest - totals.begin());
  std::vector<CulpritDetail> of_cause;
  std::copy_if(culprits.begin(), culprits.end(), std::back_inserter(of_cause),
               [cause](const CulpritDetail& entry) { return entry.culprit.cause == cause; });
  Verdict verdict;
  verdict.cause = cause;
  verdict.share = ratio(*largest, gap.duration_ns);
  verdict.confidence = confidence_of(account, cause, verdict.share);
  if (!of_cause.empty()) {
    verdict.detail = of_cause.front().detail;
    verdict.culprit_ns = of_cause.front().culprit.total_ns;
    verdict.text = describe(cause, *largest, of_cause);
  }
  verdict.text +=
      other_causes(totals, cause, gap.duration_ns) + meanwhile(gap.evidence) + loss(account);
  return verdict;
}

}  // namespace pollgap
