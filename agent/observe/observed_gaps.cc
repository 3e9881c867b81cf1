// SPDX-License-Identifier: Apache-2.0
#include "agent/observe/observed_gaps.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace pollgap {
namespace {

// A window up to so many looks wide has its edge in the middle.
constexpr double kOrdinaryLooks = 2.5;
// A stall is told so long after it has ended.
constexpr uint64_t kSettledNs = 10'000'000;
// A thread that has exited is remembered for so long.
constexpr uint64_t kMournedNs = 1'000'000'000;
// Of a thread's past: more than this is forgotten, the oldest first.
constexpr size_t kMostStretches = 1 << 14;
constexpr size_t kMostCpus = 1 << 10;
// What lies so far back no silence or stall that is still to be told can need.
constexpr uint64_t kHorizonNs = 10'000'000'000;
constexpr uint32_t kFlushed = 5;  // IBV_WC_WR_FLUSH_ERR

template <typename T>
bool read_as(std::span<const std::byte> record, T& out) {
  if (record.size() != sizeof(T)) return false;
  std::memcpy(&out, record.data(), sizeof(T));
  return out.header.end_ns >= out.header.start_ns;
}

// Takes [start, end) out of sorted, disjoint pieces.
template <typename Piece>
void take_out(std::vector<Piece>& pieces, uint64_t start_ns, uint64_t end_ns) {
  std::vector<Piece> left;
  for (const Piece& piece : pieces) {
    if (piece.end_ns <= start_ns || piece.start_ns >= end_ns) {
      left.push_back(piece);
      continue;
    }
    if (piece.start_ns < start_ns) left.push_back({piece.start_ns, start_ns});
    if (piece.end_ns > end_ns) left.push_back({end_ns, piece.end_ns});
  }
  pieces.swap(left);
}

template <typename Piece>
void drop_before(std::vector<Piece>& pieces, uint64_t ns, size_t most) {
  const auto first = std::find_if(pieces.begin(), pieces.end(),
                                  [ns](const Piece& piece) { return piece.end_ns > ns; });
  pieces.erase(pieces.begin(), first);
  if (pieces.size() > most)
    pieces.erase(pieces.begin(), pieces.end() - static_cast<std::ptrdiff_t>(most));
}

// The error completion that ended a gap: consumed then, one of it is known.
ev_wc_error error_record(const ev_gap& gap, const CompletionError& error) {
  ev_wc_error record{};
  const uint64_t at_ns = gap.header.end_ns;
  record.header = {EV_WC_ERROR, sizeof(record), gap.header.cpu, at_ns, at_ns};
  record.tid = gap.tid;
  record.completions = record.errors = record.looked_at = 1;
  record.cq = gap.cq;
  record.wr_id = error.wr_id;
  record.qp_num = error.qp_num;
  record.status = error.status;
  record.vendor_err = error.vendor_error;
  record.flushes = error.status == kFlushed ? 1 : 0;
  return record;
}

std::optional<ev_stamp> stamp_record(const ev_gap& gap, const Silence& silence) {
  if (!silence.stamp || !silence.made || !silence.ready) return std::nullopt;
  ev_stamp record{};
  const uint64_t at_ns = gap.header.end_ns;
  record.header = {EV_STAMP, sizeof(record), gap.header.cpu, at_ns, at_ns};
  record.tid = gap.tid;
  record.cq = gap.cq;
  record.ticks = *silence.stamp;
  record.made_after_ns = silence.made->after_ns;
  record.made_until_ns = silence.made->until_ns;
  record.written_after_ns = silence.ready->after_ns;
  record.written_until_ns = silence.ready->until_ns;
  return record;
}

template <typename Record, typename Sink>
void tell_record(const Record& record, const Sink& sink) {
  sink(std::as_bytes(std::span<const Record, 1>(&record, 1)));
}

uint32_t saturated(uint64_t value) {
  return static_cast<uint32_t>(std::min<uint64_t>(value, std::numeric_limits<uint32_t>::max()));
}

}  // namespace

void ObservedGaps::add_thread(uint32_t tid, uint32_t cpu) {
  const auto [thread, is_new] = threads_.try_emplace(tid);
  if (is_new) thread->second.cpus.push_back({0, cpu});
}

void ObservedGaps::begin(uint64_t ns) {
  from_ns_ = ns;
  until_ns_ = UINT64_MAX;
}

void ObservedGaps::add(uint32_t tid, uint32_t site, const Silence& silence) {
  const auto thread = threads_.find(tid);
  if (thread != threads_.end()) thread->second.pending.push_back({site, silence});
}

// ---- what the kernel says ----

void ObservedGaps::accept(std::span<const std::byte> record) {
  ev_header header;
  if (record.size() < sizeof(header)) return;
  std::memcpy(&header, record.data(), sizeof(header));
  switch (header.kind) {
    case EV_OFF_CPU: {
      ev_off_cpu off;
      if (read_as(record, off)) take_off_cpu(off);
      break;
    }
    case EV_SELF: {
      ev_self self;
      if (read_as(record, self) && self.count == 1) take_stretch(self.tid, self.header);
      break;
    }
    case EV_VERB: {
      ev_verb verb;
      if (read_as(record, verb)) take_stretch(verb.tid, verb.header);
      break;
    }
    case EV_IRQ: {
      ev_irq irq;
      if (read_as(record, irq)) take_interrupt(irq.header);
      break;
    }
    case EV_SOFTIRQ: {
      ev_softirq softirq;
      if (read_as(record, softirq)) take_interrupt(softirq.header);
      break;
    }
    case EV_PROCESS: {
      ev_process process;
      if (!read_as(record, process) || process.what != EV_PROCESS_THREAD_EXIT) break;
      if (const auto thread = threads_.find(process.tid); thread != threads_.end())
        thread->second.exited_ns = process.header.end_ns;
      break;
    }
    default:
      break;
  }
}

void ObservedGaps::take_off_cpu(const ev_off_cpu& off) {
  const auto found = threads_.find(off.tid);
  if (found == threads_.end()) return;
  Thread& thread = found->second;
  if (off.header.cpu != thread.cpus.back().cpu) {
    thread.cpus.push_back({off.header.end_ns, off.header.cpu});
    if (thread.cpus.size() > kMostCpus) thread.cpus.erase(thread.cpus.begin());
  }
  if ((off.flags & EV_OFF_UNSEEN) != 0) return;  // it may have run again all the while
  if ((off.flags & EV_OFF_WAITS_EVENT) != 0) {
    thread.events.push_back({off.header.start_ns, off.header.end_ns});
  } else {
    add_away(thread, off.header.start_ns, off.header.end_ns);
  }
}

void ObservedGaps::take_stretch(uint32_t tid, const ev_header& header) {
  const auto found = threads_.find(tid);
  if (found != threads_.end()) add_away(found->second, header.start_ns, header.end_ns);
}

// One on the CPU of a thread that was off it does no harm: that time is the thread's already.
void ObservedGaps::take_interrupt(const ev_header& header) {
  for (auto& [tid, thread] : threads_)
    if (thread.cpus.back().cpu == header.cpu && header.start_ns >= thread.cpus.back().from_ns)
      add_away(thread, header.start_ns, header.end_ns);
}

void ObservedGaps::add_away(Thread& thread, uint64_t start_ns, uint64_t end_ns) const {
  std::vector<Stretch>& away = thread.away;
  Stretch whole{start_ns, end_ns};
  const uint64_t apart = options_.kernel_entry_ns;
  auto first = away.end();
  while (first != away.begin() && std::prev(first)->end_ns + apart >= start_ns) --first;
  auto last = first;
  while (last != away.end() && last->start_ns <= end_ns + apart) {
    whole.start_ns = std::min(whole.start_ns, last->start_ns);
    whole.end_ns = std::max(whole.end_ns, last->end_ns);
    ++last;
  }
  away.insert(away.erase(first, last), whole);
}

// ---- edges ----

const ObservedGaps::Stretch* ObservedGaps::away_at(const Thread& thread, uint64_t ns) {
  const auto next = std::partition_point(thread.away.begin(), thread.away.end(),
                                         [ns](const Stretch& away) { return away.end_ns <= ns; });
  return next != thread.away.end() && next->start_ns <= ns ? &*next : nullptr;
}

ObservedGaps::Edge ObservedGaps::start_in(const Window& window) const {
  const uint64_t width = window.until_ns - window.after_ns;
  if (is_ordinary(width)) return {window.after_ns + width / 2, width - width / 2, window.until_ns};
  return {window.until_ns, width, window.until_ns};
}

ObservedGaps::Edge ObservedGaps::end_in(const Window& window) const {
  const uint64_t width = window.until_ns - window.after_ns;
  if (is_ordinary(width)) return {window.after_ns + width / 2, width - width / 2, window.after_ns};
  return {window.after_ns, width, window.after_ns};
}

bool ObservedGaps::is_ordinary(uint64_t width_ns) const {
  return static_cast<double>(width_ns) <= kOrdinaryLooks * static_cast<double>(options_.period_ns);
}

// ---- gaps ----

bool ObservedGaps::is_gap(const Bounds& bounds) const {
  return bounds.duration_ns() >= options_.threshold_ns &&
         bounds.surely_ns() >= options_.threshold_ns / 2;
}

// The completion lay ready, and the thread did not take it. Where it was away when that came, it
// has been silent since it went.
ObservedGaps::Bounds ObservedGaps::unpolled(const Thread& thread, const Silence& silence) const {
  if (!silence.ready) return {};
  const Edge ready = start_in(*silence.ready);
  Bounds bounds{ready, end_in(silence.end)};
  if (const Stretch* away = away_at(thread, silence.end.after_ns);
      away != nullptr && away->end_ns <= silence.end.until_ns)
    bounds.end = Edge::exact(away->end_ns);
  if (bounds.duration_ns() < options_.threshold_ns) return {};
  if (const Stretch* away = away_at(thread, silence.ready->until_ns))
    bounds.start = Edge::exact(std::max(away->start_ns, silence.begin.after_ns));
  for (const Stretch& stall : thread.stalls)
    if (stall.start_ns <= bounds.start.at_ns && bounds.start.at_ns < stall.end_ns)
      bounds.start = Edge::exact(stall.end_ns);
  return is_gap(bounds) ? bounds : Bounds{};
}

// Signaled sends were outstanding and no completion lay ready, but for when the thread was away for
// long, or waited for a completion event.
std::vector<ObservedGaps::Bounds> ObservedGaps::late(const Thread& thread, const Silence& silence,
                                                     const Bounds& taken) const {
  std::vector<Bounds> late;
  if (!silence.outstanding) return late;
  const Bounds whole{start_in(*silence.outstanding),
                     end_in(silence.ready ? *silence.ready : silence.end)};
  if (whole.duration_ns() == 0) return late;
  std::vector<Stretch> vain{{whole.start.at_ns, whole.end.at_ns}};
  take_out(vain, taken.start.at_ns, taken.end.at_ns);
  for (const Stretch& away : thread.away)
    if (away.length_ns() >= options_.threshold_ns) take_out(vain, away.start_ns, away.end_ns);
  for (const Stretch& event : thread.events) take_out(vain, event.start_ns, event.end_ns);
  for (const Stretch& piece : vain) {
    Bounds bounds{Edge::exact(piece.start_ns), Edge::exact(piece.end_ns)};
    if (piece.start_ns == whole.start.at_ns) bounds.start = whole.start;
    if (piece.end_ns == whole.end.at_ns) bounds.end = whole.end;
    if (is_gap(bounds)) late.push_back(bounds);
  }
  return late;
}

void ObservedGaps::find_gaps(uint32_t tid, Thread& thread, const Pending& pending) {
  const Bounds bounds = unpolled(thread, pending.silence);
  for (const Bounds& of_late : late(thread, pending.silence, bounds))
    found(tid, EV_GAP_LATE_COMPLETION, of_late, &pending);
  if (bounds.duration_ns() == 0) return;
  found(tid, EV_GAP_UNPOLLED_COMPLETION, bounds, &pending);
  thread.gaps.push_back({bounds.start.at_ns, bounds.end.at_ns});
}

// Away for the threshold, beside the gaps that are told already.
void ObservedGaps::find_stalls(uint32_t tid, Thread& thread, uint64_t decided_ns) {
  for (const Stretch& away : thread.away) {
    if (away.end_ns <= std::max(thread.stalls_told_ns, from_ns_) || away.end_ns > decided_ns ||
        away.start_ns >= until_ns_ || away.length_ns() < options_.threshold_ns) {
      continue;
    }
    std::vector<Stretch> pieces{away};
    for (const Stretch& gap : thread.gaps) take_out(pieces, gap.start_ns, gap.end_ns);
    for (const Stretch& stall : thread.stalls) take_out(pieces, stall.start_ns, stall.end_ns);
    for (const Stretch& piece : pieces) {
      if (piece.length_ns() < options_.threshold_ns) continue;
      found(tid, EV_GAP_STALLED, {Edge::exact(piece.start_ns), Edge::exact(piece.end_ns)}, nullptr);
      thread.stalls.push_back(piece);
    }
  }
  thread.stalls_told_ns = std::max(thread.stalls_told_ns, decided_ns);
}

void ObservedGaps::tell(const std::function<uint64_t(uint32_t tid)>& served_until, const Sink& sink,
                        bool last) {
  for (auto& [tid, thread] : threads_) {
    for (const Pending& pending : thread.pending) find_gaps(tid, thread, pending);
    thread.pending.clear();
    const uint64_t served_ns = served_until(tid);
    // What has ended just now may go on: an interrupt that is being handled is told when it ends.
    const uint64_t settled_ns = served_ns > kSettledNs ? served_ns - kSettledNs : 0;
    find_stalls(tid, thread, last ? UINT64_MAX : settled_ns);
    forget(thread, served_ns);
  }
  // What it did last may be found after its exit.
  std::erase_if(threads_, [&served_until](const auto& entry) {
    const uint64_t exited_ns = entry.second.exited_ns;
    return exited_ns != UINT64_MAX && served_until(entry.first) > exited_ns + kMournedNs;
  });
  std::stable_sort(found_.begin(), found_.end(), [](const Found& left, const Found& right) {
    return left.gap.header.end_ns < right.gap.header.end_ns;
  });
  for (const Found& one : found_) {
    if (one.error) tell_record(error_record(one.gap, *one.error), sink);
    if (one.stamp) tell_record(*one.stamp, sink);
    tell_record(one.gap, sink);
  }
  found_.clear();
}

void ObservedGaps::forget(Thread& thread, uint64_t served_ns) {
  const uint64_t before = served_ns > kHorizonNs ? served_ns - kHorizonNs : 0;
  for (std::vector<Stretch>* stretches :
       {&thread.away, &thread.events, &thread.gaps, &thread.stalls})
    drop_before(*stretches, before, kMostStretches);
}

uint32_t ObservedGaps::cpu_at(const Thread& thread, uint64_t ns) {
  const auto later = std::partition_point(thread.cpus.begin() + 1, thread.cpus.end(),
                                          [ns](const Cpu& cpu) { return cpu.from_ns <= ns; });
  return std::prev(later)->cpu;
}

void ObservedGaps::found(uint32_t tid, ev_gap_kind kind, const Bounds& bounds, const Pending* of) {
  const Thread& thread = threads_.at(tid);
  std::optional<CompletionError> error;
  std::optional<ev_stamp> stamp;
  ev_gap record{};
  record.header = {EV_GAP, sizeof(record), cpu_at(thread, bounds.end.at_ns), bounds.start.at_ns,
                   bounds.end.at_ns};
  record.tid = tid;
  record.pid = options_.pid;
  record.gap_kind = kind;
  record.flags = EV_GAP_OBSERVED | EV_GAP_NO_RETURN;
  if (options_.nothing_steals) record.flags |= EV_GAP_STEAL_VALID;
  record.start_cpu = cpu_at(thread, bounds.start.at_ns);
  record.edge_uncertainty_ns =
      saturated(std::max(bounds.start.uncertainty_ns, bounds.end.uncertainty_ns));
  record.site = UINT32_MAX;
  if (of != nullptr) {
    const Silence& silence = of->silence;
    record.cq = silence.cq;
    record.site = of->site;
    if (silence.open) record.flags |= EV_GAP_OPEN;
    record.outstanding = silence.signaled;
    if (kind == EV_GAP_UNPOLLED_COMPLETION) error = silence.error;
    record.error_completions = error ? 1 : 0;
    if (!silence.open) stamp = stamp_record(record, silence);
  }
  found_.push_back({record, error, stamp});
}

}  // namespace pollgap
