// SPDX-License-Identifier: Apache-2.0
// The correlator: a pure function from an evidence stream to gaps with ledgers and verdicts.
// No clock, no I/O, no globals: the same stream gives the same gaps.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "agent/ledger/gap.h"
#include "bpf/evidence.h"

namespace pollgap {

struct CorrelatorOptions {
  uint64_t threshold_ns = 1'000'000;  // shorter gaps in the stream are dropped
};

struct Latency {
  uint64_t count = 0, sum_ns = 0, longest_ns = 0;
};

// An event-driven thread's ways back from where it slept until its completion event, to its poll.
struct EventWaits {
  Latency interrupt_to_wakeup;  // count: of those whose interrupt was seen
  Latency wakeup_to_run, run_to_poll;
};

// Sums of one thread's polls of one CQ over the session, from the last EV_POLLS of that pair.
struct PollTotals {
  uint64_t polls = 0, empty_polls = 0, completions = 0, error_completions = 0;
  uint64_t idle_ns = 0, posted_sends = 0, posted_signaled = 0;
  uint64_t first_mono_ns = 0, last_mono_ns = 0;
  std::optional<EventWaits> event_waits;  // nullopt: it never slept in one
};

// Hard interrupts of one kind on the cores that the target's threads poll on, while they were
// there.
struct InterruptTotals {
  uint64_t count = 0, by_agent = 0;
};

struct SessionFacts {
  std::string session_json;            // EV_SESSION, "" if the stream had none
  std::string coverage_json;           // EV_COVERAGE, likewise
  uint64_t first_ns = 0, last_ns = 0;  // earliest start, latest end of any record
  uint64_t records = 0;
  uint64_t malformed = 0;  // records dropped because their kind or size was wrong
  uint64_t lost = 0;       // sum of EV_LOST
  uint64_t evicted = 0;    // records that no longer fitted into memory or came too late to place
  std::map<std::pair<uint32_t, uint64_t>, PollTotals> polls;  // by (tid, cq)
  std::map<uint32_t, std::string> threads;                    // tid -> comm
  std::array<InterruptTotals, EV_VECTOR_COUNT> interrupts{};  // by enum ev_vector
};

class Correlator {
 public:
  explicit Correlator(CorrelatorOptions options);
  ~Correlator();
  Correlator(Correlator&&) noexcept;
  Correlator& operator=(Correlator&&) noexcept;

  // One record: header and body in one contiguous span. Malformed ones are counted and dropped.
  // Gaps that it completes are appended to `gaps`.
  void accept(std::span<const std::byte> record, std::vector<Gap>& gaps);

  // No more records will come: completes the gaps that still wait for evidence (a thread that was
  // moved away while it waited leaves a task whose run is recorded only when it ends). EV_COVERAGE,
  // the last record of a whole capture, does the same.
  void finish(std::vector<Gap>& gaps);

  const SessionFacts& facts() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pollgap
