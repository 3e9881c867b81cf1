// SPDX-License-Identifier: Apache-2.0
#include "agent/report/summary.h"

#include <algorithm>

namespace pollgap {
namespace {

constexpr size_t kTopCulprits = 20;
constexpr size_t kTopAdvice = 10;

// The smallest value that at least `percent` percent of the sorted values do not exceed.
uint64_t nearest_rank(const std::vector<uint64_t>& sorted, uint64_t percent) {
  const size_t rank = (sorted.size() * percent + 99) / 100;
  return sorted[std::max<size_t>(rank, 1) - 1];
}

}  // namespace

DurationStatistic statistic_of(std::vector<uint64_t>& durations_ns) {
  DurationStatistic statistic;
  if (durations_ns.empty()) return statistic;
  std::ranges::sort(durations_ns);
  statistic.count = durations_ns.size();
  for (const uint64_t duration : durations_ns) statistic.total_ns += duration;
  statistic.max_ns = durations_ns.back();
  statistic.p50_ns = nearest_rank(durations_ns, 50);
  statistic.p99_ns = nearest_rank(durations_ns, 99);
  return statistic;
}

void SummaryBuilder::add(const Gap& gap, const std::vector<std::string>& advice) {
  all_.add(gap);
  durations_by_cause_[gap.verdict.cause].push_back(gap.duration_ns);
  durations_by_kind_[gap.kind].push_back(gap.duration_ns);
  for (const Segment& segment : gap.segments) ledger_ns_[segment.cause] += segment.duration_ns;
  for (const Culprit& culprit : gap.culprits) {
    CulpritSums& sums = culprits_[{culprit.cause, culprit.name}];
    sums.total_ns += culprit.total_ns;
    sums.count += culprit.count;
    ++sums.gaps;
  }
  for (const std::string& text : advice) advice_[text].add(gap);
  threads_[gap.tid].add(gap);
  if (!gap.thread.empty()) thread_names_[gap.tid] = gap.thread;
  cqs_[{gap.tid, gap.cq}].add(gap);
}

std::vector<CulpritSummary> SummaryBuilder::top_culprits() const {
  std::vector<CulpritSummary> culprits;
  for (const auto& [key, sums] : culprits_)
    culprits.push_back({key.first, key.second, sums.total_ns, sums.count, sums.gaps});
  std::ranges::stable_sort(culprits, std::greater{}, &CulpritSummary::total_ns);
  if (culprits.size() > kTopCulprits) culprits.resize(kTopCulprits);
  return culprits;
}

std::vector<AdviceSummary> SummaryBuilder::top_advice() const {
  std::vector<AdviceSummary> advice;
  for (const auto& [text, sums] : advice_) advice.push_back({text, sums.gaps, sums.gap_ns});
  std::ranges::stable_sort(advice, std::greater{}, &AdviceSummary::gap_ns);
  if (advice.size() > kTopAdvice) advice.resize(kTopAdvice);
  return advice;
}

std::vector<ThreadSummary> SummaryBuilder::threads(const SessionFacts& facts) const {
  std::map<uint32_t, ThreadSummary> by_tid;
  for (const auto& [tid, name] : facts.threads) by_tid[tid].thread = name;
  for (const auto& [key, totals] : facts.polls) by_tid[key.first];
  for (const auto& [tid, sums] : threads_) {
    by_tid[tid].gaps = sums.gaps;
    by_tid[tid].gap_ns = sums.gap_ns;
  }
  for (const auto& [tid, name] : thread_names_)
    if (by_tid[tid].thread.empty()) by_tid[tid].thread = name;
  std::vector<ThreadSummary> threads;
  for (auto& [tid, thread] : by_tid) {
    thread.tid = tid;
    threads.push_back(std::move(thread));
  }
  return threads;
}

std::vector<CqSummary> SummaryBuilder::cqs(const SessionFacts& facts) const {
  std::map<std::pair<uint32_t, uint64_t>, CqSummary> by_key;
  for (const auto& [key, totals] : facts.polls) by_key[key].totals = totals;
  for (const auto& [key, sums] : cqs_) {
    by_key[key].gaps = sums.gaps;
    by_key[key].gap_ns = sums.gap_ns;
  }
  std::vector<CqSummary> cqs;
  for (auto& [key, cq] : by_key) {
    cq.tid = key.first;
    cq.cq = key.second;
    cqs.push_back(cq);
  }
  return cqs;
}

Summary SummaryBuilder::finish(const SessionFacts& facts) const {
  Summary summary;
  summary.gaps = all_.gaps;
  summary.gap_ns = all_.gap_ns;
  summary.observed_ns = facts.last_ns > facts.first_ns ? facts.last_ns - facts.first_ns : 0;
  for (const auto& [cause, durations] : durations_by_cause_) {
    auto sorted = durations;
    summary.by_cause[cause].gaps = statistic_of(sorted);
  }
  for (const auto& [cause, ledger_ns] : ledger_ns_) summary.by_cause[cause].ledger_ns = ledger_ns;
  for (const auto& [kind, durations] : durations_by_kind_) {
    auto sorted = durations;
    summary.by_kind[kind] = statistic_of(sorted);
  }
  summary.culprits = top_culprits();
  summary.advice = top_advice();
  summary.threads = threads(facts);
  summary.cqs = cqs(facts);
  return summary;
}

}  // namespace pollgap
