// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/observer.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "probes/monotonic_clock.h"

namespace pollgap {
namespace {

constexpr size_t kMostBlindTimes = 1000;
constexpr uint64_t kLooksPerCount = 64;  // of its own CPU time

bool same_ring(const CqRing& left, const CqRing& right) {
  return left.cq == right.cq && left.context == right.context && left.ring == right.ring &&
         left.entries == right.entries;
}

bool same_queues(const ReadableCq& left, const ReadableCq& right) {
  const auto same = [](const SendRing& one, const SendRing& other) {
    return one.qp == other.qp && one.qp_num == other.qp_num && one.ring == other.ring;
  };
  return same_ring(left.ring, right.ring) && std::ranges::equal(left.sends, right.sends, same);
}

}  // namespace

Observer::Observer(KernelPrograms& programs, const Process& process, uint64_t period_ns,
                   uint64_t threshold_ns)
    : programs_(programs), process_(process), period_ns_(period_ns), threshold_ns_(threshold_ns) {}

void Observer::observe(std::vector<ObservedCq> cqs) {
  stop();
  for (const auto& [cq, totals] : totals()) past_totals_[cq] = totals;
  std::vector<Watched> watched;
  auto reader = std::make_unique<QueueReader>(process_.memory());
  for (const ObservedCq& cq : cqs) {
    const auto before = std::ranges::find_if(
        cqs_, [&cq](const ObservedCq& other) { return same_queues(cq.queues, other.queues); });
    const size_t number = static_cast<size_t>(before - cqs_.begin());
    if (before != cqs_.end() && !watched_[number].changed) {
      watched.push_back(watched_[number]);
    } else {
      watched.push_back({CqWatch(cq.queues.ring.cq, threshold_ns_), 0, {}, false});
    }
    reader->add(cq.queues);
  }
  std::erase_if(clocks_, [&cqs](const auto& clock) {
    return std::ranges::none_of(
        cqs, [&clock](const ObservedCq& cq) { return cq.queues.ring.context == clock.first; });
  });
  cqs_ = std::move(cqs);
  watched_ = std::move(watched);
  reader_ = std::move(reader);
  served_.clear();
  for (size_t number = 0; number < cqs_.size(); ++number)
    for (const CqOwner& owner : cqs_[number].owners) served_[owner.tid].cqs.push_back(number);
  const auto& clocks = programs_.clocks();
  for (size_t slot = 0; slot < clocks.size() && clocks[slot].tid != 0; ++slot)
    if (clocks[slot].exited == 0) served_[uint32_t{clocks[slot].tid}].slot = slot;
  start();
}

void Observer::start() {
  if (cqs_.empty()) return;
  stop_ = false;
  thread_ = std::thread([this] { run(); });
}

void Observer::stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  hand_over();
}

void Observer::forget() {
  stop();
  cqs_.clear();
  watched_.clear();
  reader_.reset();
  served_.clear();
  clocks_.clear();
  past_totals_.clear();
  last_look_ns_ = 0;
}

void Observer::run() {
  // On a housekeeping core full of other tasks an ordinary thread would look some times in a second
  // and learn nothing. Above the agent's other real-time threads, which may have milliseconds of
  // work; this one has some microseconds of it at a time.
  const sched_param low{.sched_priority = 2};
  sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &low);
  uint64_t next_ns = monotonic_ns();
  uint64_t used_ns = thread_cpu_ns();
  while (!stop_) {
    look();
    if (facts_.looks % kLooksPerCount == 0) {
      const uint64_t now_ns = thread_cpu_ns();
      cpu_ns_ += now_ns - used_ns;
      used_ns = now_ns;
    }
    next_ns = std::max(next_ns + period_ns_, last_look_ns_ + period_ns_ / 2);
    sleep_until_ns(next_ns);
  }
}

void Observer::look() {
  LookTime when{monotonic_ns(), 0};
  reader_->read();
  when.ended_ns = monotonic_ns();
  note_lateness(when);
  last_look_ns_ = when.begun_ns;
  for (size_t number = 0; number < cqs_.size(); ++number) look_at(number, when);
  hand_over();
}

void Observer::note_lateness(LookTime when) {
  ++facts_.looks;
  if (last_look_ns_ == 0) return;
  const uint64_t apart_ns = when.ended_ns - last_look_ns_;
  facts_.longest_apart_ns = std::max(facts_.longest_apart_ns, apart_ns);
  if (apart_ns > 2 * period_ns_) ++facts_.late;
  if (apart_ns < std::max(threshold_ns_ / 2, 2 * period_ns_)) return;
  facts_.blind_ns += apart_ns;
  std::vector<BlindTime>& blind = facts_.blind;
  if (!blind.empty() && last_look_ns_ < blind.back().end_ns + threshold_ns_) {
    blind.back().end_ns = when.ended_ns;
  } else if (blind.size() < kMostBlindTimes) {
    blind.push_back({last_look_ns_, when.ended_ns});
  }
}

LookFacts Observer::facts() const {
  const std::lock_guard lock(mutex_);
  return facts_handed_over_;
}

void Observer::look_at(size_t number, LookTime when) {
  Watched& watched = watched_[number];
  const ObservedCq& cq = cqs_[number];
  if (watched.changed) return;  // until it has been verified again
  const CqReading& reading = reader_->cq(number);
  if (!reading.intact) {
    watched.changed = true;
    changed_.insert(cq.queues.ring.cq);
    return;
  }
  CqWatch& watch = watched.watch;
  const uint64_t consumed = watch.consumed();
  AdapterClock& clock = clocks_[cq.queues.ring.context];
  if (reading.new_stamp && watched.first_ns != 0)
    clock.add(*reading.new_stamp, {watched.last.begun_ns, when.ended_ns});
  auto silence = watch.look(when, reading, reader_->sends(number));
  if (silence) {
    if (silence->stamp) silence->made = clock.host_time(*silence->stamp);
    for (const CqOwner& owner : cq.owners) {
      // At once: when the thread counts as served, the kernel forgets what it has held back of it.
      programs_.tell_pending(owner.tid);
      found_.push_back({owner, *silence});
    }
  }
  if (!watch.is_exact()) facts_.uncounted.insert(cq.queues.ring.cq);
  if (cq.owners.empty() && watch.consumed() != consumed) ownerless_.insert(cq.queues.ring.cq);
  if (const auto send_queue = watch.unsure_of())
    watch.signaled(*send_queue, reader_->signaled(number, *send_queue));
  if (watched.first_ns == 0) watched.first_ns = when.begun_ns;
  watched.last = when;
}

// What was found goes first: who sees that a thread was served until then can take all of its
// silences before. Not if that is being taken right now: then with the next look.
void Observer::hand_over() {
  {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return;
    handed_over_.insert(handed_over_.end(), found_.begin(), found_.end());
    hand_over_facts();
    changed_handed_over_.merge(changed_);
    ownerless_handed_over_.merge(ownerless_);
  }
  found_.clear();
  changed_.clear();
  ownerless_.clear();
  tell_served();
}

// The lists only when there is more in them.
void Observer::hand_over_facts() {
  LookFacts& to = facts_handed_over_;
  if (facts_.blind_ns != to.blind_ns || facts_.uncounted.size() != to.uncounted.size()) {
    to = facts_;
    return;
  }
  to.looks = facts_.looks;
  to.late = facts_.late;
  to.longest_apart_ns = facts_.longest_apart_ns;
}

void Observer::tell_served() {
  for (auto& [tid, served] : served_) {
    uint64_t until_ns = UINT64_MAX;
    for (const size_t number : served.cqs)
      if (!watched_[number].changed)
        until_ns = std::min(until_ns, watched_[number].watch.served_until_ns());
    if (until_ns == UINT64_MAX) until_ns = last_look_ns_;
    served.until_ns = until_ns;
    if (served.slot != SIZE_MAX) programs_.tell_served(served.slot, until_ns);
  }
}

std::vector<OwnedSilence> Observer::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(handed_over_, {});
}

std::map<uint32_t, uint64_t> Observer::served_until() const {
  std::map<uint32_t, uint64_t> all;
  for (const auto& [tid, served] : served_) all[tid] = served.until_ns;
  return all;
}

std::vector<OwnedSilence> Observer::open_silences() const {
  std::vector<OwnedSilence> silences;
  for (size_t number = 0; number < cqs_.size(); ++number) {
    if (watched_[number].changed) continue;
    const auto silence = watched_[number].watch.so_far();
    if (!silence) continue;
    for (const CqOwner& owner : cqs_[number].owners) silences.push_back({owner, *silence});
  }
  return silences;
}

std::set<uint64_t> Observer::take_changed() {
  const std::lock_guard lock(mutex_);
  return std::exchange(changed_handed_over_, {});
}

std::set<uint64_t> Observer::take_ownerless() {
  const std::lock_guard lock(mutex_);
  return std::exchange(ownerless_handed_over_, {});
}

std::map<uint64_t, ObservedTotals> Observer::totals() const {
  std::map<uint64_t, ObservedTotals> all = past_totals_;
  for (size_t number = 0; number < cqs_.size(); ++number) {
    const Watched& watched = watched_[number];
    if (watched.first_ns == 0) continue;
    const CqWatch& watch = watched.watch;
    all[cqs_[number].queues.ring.cq] = {watched.first_ns, watched.last.ended_ns, watch.consumed(),
                                        watch.posted(), watch.idle_ns()};
  }
  return all;
}

}  // namespace pollgap
