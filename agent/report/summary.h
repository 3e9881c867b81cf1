// SPDX-License-Identifier: Apache-2.0
// The sums of a session: what a person reads first.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "agent/ledger/correlator.h"
#include "agent/ledger/gap.h"

namespace pollgap {

// Of a set of durations. Percentiles are by nearest rank: values that occurred.
struct DurationStatistic {
  uint64_t count = 0;
  uint64_t total_ns = 0;
  uint64_t max_ns = 0;
  uint64_t p50_ns = 0;
  uint64_t p99_ns = 0;
  bool operator==(const DurationStatistic&) const = default;
};

// Sorts `durations_ns`.
DurationStatistic statistic_of(std::vector<uint64_t>& durations_ns);

struct CauseSummary {
  DurationStatistic gaps;  // durations of the gaps whose verdict names the cause
  uint64_t ledger_ns = 0;  // the cause's segments in all gaps: over all causes, the gaps' total
  bool operator==(const CauseSummary&) const = default;
};

struct CulpritSummary {
  Cause cause = Cause::unexplained;
  std::string name;
  uint64_t total_ns = 0;
  uint64_t count = 0;  // events
  uint64_t gaps = 0;   // gaps it had a part in
};

struct ThreadSummary {
  uint32_t tid = 0;
  std::string thread;
  uint64_t gaps = 0;
  uint64_t gap_ns = 0;  // a time in which two CQs were silent counts twice
};

struct CqSummary {
  uint32_t tid = 0;
  uint64_t cq = 0;  // 0: not known
  uint64_t gaps = 0;
  uint64_t gap_ns = 0;
  PollTotals totals;
};

struct AdviceSummary {
  std::string text;
  uint64_t gaps = 0;
  uint64_t gap_ns = 0;  // duration of those gaps
};

struct Summary {
  uint64_t gaps = 0;
  uint64_t gap_ns = 0;
  uint64_t observed_ns = 0;                // from the first to the last record
  std::map<Cause, CauseSummary> by_cause;  // causes that occurred
  std::map<GapKind, DurationStatistic> by_kind;
  std::vector<CulpritSummary> culprits;  // by time, the largest few
  std::vector<AdviceSummary> advice;     // by time of the gaps, the largest few
  std::vector<ThreadSummary> threads;    // by tid
  std::vector<CqSummary> cqs;            // by tid and address
};

// Sums gaps as they come.
class SummaryBuilder {
 public:
  void add(const Gap& gap, const std::vector<std::string>& advice);
  Summary finish(const SessionFacts& facts) const;

 private:
  struct CulpritSums {
    uint64_t total_ns = 0, count = 0, gaps = 0;
  };
  struct GapSums {
    uint64_t gaps = 0, gap_ns = 0;
    void add(const Gap& gap) {
      ++gaps;
      gap_ns += gap.duration_ns;
    }
  };

  std::vector<CulpritSummary> top_culprits() const;
  std::vector<AdviceSummary> top_advice() const;
  std::vector<ThreadSummary> threads(const SessionFacts& facts) const;
  std::vector<CqSummary> cqs(const SessionFacts& facts) const;

  GapSums all_;
  std::map<Cause, std::vector<uint64_t>> durations_by_cause_;
  std::map<GapKind, std::vector<uint64_t>> durations_by_kind_;
  std::map<Cause, uint64_t> ledger_ns_;
  std::map<std::pair<Cause, std::string>, CulpritSums> culprits_;
  std::map<std::string, GapSums> advice_;
  std::map<uint32_t, GapSums> threads_;
  std::map<uint32_t, std::string> thread_names_;
  std::map<std::pair<uint32_t, uint64_t>, GapSums> cqs_;
};

}  // namespace pollgap
