// SPDX-License-Identifier: Apache-2.0
#include "agent/ledger/correlator.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>

#include "agent/ledger/dictionary.h"
#include "agent/ledger/ledger.h"
#include "agent/ledger/session.h"
#include "agent/timeline/timeline.h"

namespace pollgap {
namespace {

// How long, in the stream's time, a gap waits for the record of a task that still ran where the
// thread had waited, or for the next reading of the steal clock. A real-time task can keep a core
// for 950 ms (RT throttling).
constexpr uint64_t kLongestAwaitNs = 1'000'000'000;
// What the agent's sampler has to say of a gap has been said so long after it: it is woken, as a
// real-time task, when the machine goes on, as the thread is.
constexpr uint64_t kStandstillAwaitNs = 5'000'000;

struct WaitingGap {
  GapRecord record;
  bool awaits_run = false;
  bool awaits_steal = false;
  std::optional<bool> awaits_standstill;  // looked at when nothing else is awaited

  bool waits() const { return awaits_run || awaits_steal; }
};

Latency latency(const ev_latency& value) {
  return {.count = value.count, .sum_ns = value.sum_ns, .longest_ns = value.longest_ns};
}

std::optional<EventWaits> event_waits(const ev_polls& polls) {
  if (polls.wakeup_to_run.count == 0) {
    return std::nullopt;
  }
  return EventWaits{.interrupt_to_wakeup = latency(polls.interrupt_to_wakeup),
                    .wakeup_to_run = latency(polls.wakeup_to_run),
                    .run_to_poll = latency(polls.run_to_poll)};
}

}  // namespace

struct Correlator::Impl {
  CorrelatorOptions options;
  Timeline timeline;
  Dictionary names;
  Session session;
  SessionFacts facts;
  std::deque<WaitingGap> waiting;  // in the order they ended
  uint64_t gaps_made = 0;

  bool dispatch(const ev_header& header, std::span<const std::byte> record, std::vector<Gap>& gaps);
  bool take_text(std::span<const std::byte> record, std::string& text);
  bool take_name(std::span<const std::byte> record);
  bool take_gap(std::span<const std::byte> record);
  bool take_polls(std::span<const std::byte> record);
  bool take_interrupt(std::span<const std::byte> record);
  void note_time(const ev_header& header);
  bool still_waits(WaitingGap& gap) const;
  bool awaits_standstill(WaitingGap& gap, uint64_t now_ns) const;
  void release_gaps(const ev_header& header, std::vector<Gap>& gaps);
  void release_all(std::vector<Gap>& gaps);
  void release_front(std::vector<Gap>& gaps);
};

bool Correlator::Impl::take_text(std::span<const std::byte> record, std::string& text) {
  ev_text value;
  std::string_view bytes;
  if (record.size() < sizeof(value)) {
    return false;
  }
  std::memcpy(&value, record.data(), sizeof(value));
  if (!trailing_text(record, sizeof(value), value.text_bytes, bytes)) {
    return false;
  }
  text = bytes;
  return true;
}

bool Correlator::Impl::take_name(std::span<const std::byte> record) {
  ev_name name;
  if (!names.accept(record)) {
    return false;
  }
  std::memcpy(&name, record.data(), sizeof(name));
  if (name.name_kind == EV_NAME_THREAD) {
    facts.threads[static_cast<uint32_t>(name.key)] = names.find(EV_NAME_THREAD, name.key);
  }
  return true;
}

bool Correlator::Impl::take_gap(std::span<const std::byte> record) {
  WaitingGap gap;
  if (!timeline.read_gap(record, gap.record)) {
    return false;
  }
  const ev_header& header = gap.record.header;
  if (header.end_ns > header.start_ns && header.end_ns - header.start_ns >= options.threshold_ns) {
    gap.awaits_run = lacks_run(timeline, gap.record);
    // Of an observed one nobody reads the clock: the thread polled on.
    const bool read_after =
        (gap.record.flags & EV_GAP_OPEN) == 0 && (gap.record.gap_kind != EV_GAP_LATE_COMPLETION ||
                                                  (gap.record.flags & EV_GAP_OBSERVED) == 0);
    gap.awaits_steal = session.steal_at_ticks && read_after;
    waiting.push_back(gap);
  }
  return true;
}

bool Correlator::Impl::take_polls(std::span<const std::byte> record) {
  ev_polls value;
  if (!read_record(record, value)) {
    return false;
  }
  facts.polls[{value.tid, value.cq}] = {.polls = value.polls,
                                        .empty_polls = value.empty_polls,
                                        .completions = value.completions,
                                        .error_completions = value.error_completions,
                                        .idle_ns = value.idle_ns,
                                        .posted_sends = value.posted_sends,
                                        .posted_signaled = value.posted_signaled,
                                        .first_mono_ns = value.header.start_ns,
                                        .last_mono_ns = value.header.end_ns,
                                        .event_waits = event_waits(value)};
  return true;
}

bool Correlator::Impl::take_interrupt(std::span<const std::byte> record) {
  ev_irq irq;
  if (!read_record(record, irq) || !timeline.accept(record)) {
    return false;
  }
  if (irq.vector < facts.interrupts.size()) {
    InterruptTotals& totals = facts.interrupts[irq.vector];
    ++totals.count;
    totals.by_agent += caused_by_agent(irq, session) ? 1 : 0;
  }
  return true;
}

bool Correlator::Impl::dispatch(const ev_header& header, std::span<const std::byte> record,
                                std::vector<Gap>& gaps) {
  switch (header.kind) {
    case EV_GAP:
      return take_gap(record);
    case EV_NAME:
      return take_name(record);
    case EV_SESSION:
      if (!take_text(record, facts.session_json)) {
        return false;
      }
      session = parse_session(facts.session_json);
      return true;
    case EV_COVERAGE:
      release_all(gaps);
      return take_text(record, facts.coverage_json);
    case EV_POLLS:
      return take_polls(record);
    case EV_IRQ:
      return take_interrupt(record);
    case EV_PROCESS: {
      ev_process value;
      return read_record(record, value);
    }
    case EV_LOST: {
      ev_lost value;
      if (!read_record(record, value)) {
        return false;
      }
      facts.lost += value.records;
      return timeline.accept(record);
    }
    default:
      return timeline.accept(record);
  }
}

void Correlator::Impl::note_time(const ev_header& header) {
  if (header.start_ns == 0) {
    return;  // names and texts have no time
  }
  facts.first_ns =
      facts.first_ns == 0 ? header.start_ns : std::min<uint64_t>(facts.first_ns, header.start_ns);
  facts.last_ns = std::max<uint64_t>(facts.last_ns, std::max(header.start_ns, header.end_ns));
}

void Correlator::Impl::release_front(std::vector<Gap>& gaps) {
  gaps.push_back(make_gap(timeline, names, session, waiting.front().record));
  Gap& gap = gaps.back();
  gap.id = ++gaps_made;
  uint64_t stolen_ns = 0;
  for (const Segment& segment : gap.segments) {
    stolen_ns += segment.cause == Cause::stolen ? segment.duration_ns : 0;
  }
  if (session.steal_at_ticks && stolen_ns > 0) {
    timeline.tell_steal(gap.cpu, gap.start_mono_ns, gap.start_mono_ns + gap.duration_ns, stolen_ns);
  }
  waiting.pop_front();
}

void Correlator::Impl::release_all(std::vector<Gap>& gaps) {
  while (!waiting.empty()) {
    release_front(gaps);
  }
}

bool Correlator::Impl::still_waits(WaitingGap& gap) const {
  gap.awaits_run = gap.awaits_run && lacks_run(timeline, gap.record);
  gap.awaits_steal = gap.awaits_steal && lacks_steal_reading(timeline, gap.record);
  return gap.waits();
}

bool Correlator::Impl::awaits_standstill(WaitingGap& gap, uint64_t now_ns) const {
  const uint64_t end_ns = gap.record.header.end_ns;
  if (now_ns > end_ns && now_ns - end_ns > kStandstillAwaitNs) {
    return false;
  }
  if (!gap.awaits_standstill) {
    gap.awaits_standstill = may_lack_standstill(timeline, names, session, gap.record);
  }
  return *gap.awaits_standstill;
}

void Correlator::Impl::release_gaps(const ev_header& header, std::vector<Gap>& gaps) {
  const bool may_end_a_wait =
      header.kind == EV_RUN || header.kind == EV_STEAL || header.kind == EV_GAP;
  while (!waiting.empty()) {
    const uint64_t end_ns = waiting.front().record.header.end_ns;
    const bool too_long = header.end_ns > end_ns && header.end_ns - end_ns > kLongestAwaitNs;
    if (!too_long && waiting.front().waits() && (!may_end_a_wait || still_waits(waiting.front()))) {
      return;
    }
    if (awaits_standstill(waiting.front(), header.end_ns)) {
      return;
    }
    release_front(gaps);
  }
}

Correlator::Correlator(CorrelatorOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
}
Correlator::~Correlator() = default;
Correlator::Correlator(Correlator&&) noexcept = default;
Correlator& Correlator::operator=(Correlator&&) noexcept = default;

void Correlator::accept(std::span<const std::byte> record, std::vector<Gap>& gaps) {
  SessionFacts& facts = impl_->facts;
  ++facts.records;
  ev_header header;
  if (record.size() < sizeof(header)) {
    ++facts.malformed;
    return;
  }
  std::memcpy(&header, record.data(), sizeof(header));
  if (!impl_->dispatch(header, record, gaps)) {
    ++facts.malformed;
    return;
  }
  impl_->note_time(header);
  facts.evicted = impl_->timeline.evicted();
  if (!impl_->waiting.empty()) {
    impl_->release_gaps(header, gaps);
  }
}

void Correlator::finish(std::vector<Gap>& gaps) { impl_->release_all(gaps); }

const SessionFacts& Correlator::facts() const { return impl_->facts; }

}  // namespace pollgap
