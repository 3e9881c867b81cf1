// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/observation.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "probes/monotonic_clock.h"

namespace pollgap {
namespace {

using Json = nlohmann::ordered_json;

// A CQ in the middle of being resized has no layout for some microseconds.
constexpr int kVerifications = 10;
// From one search for a CQ's pollers to the next; each that found none makes it longer.
constexpr uint64_t kSearchNs = 1'000'000'000;
constexpr uint64_t kLongestSearchNs = 60'000'000'000;

std::string hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

std::string name_of(uint64_t cq) { return "CQ " + hex(cq); }

std::string microseconds(uint64_t ns) { return std::to_string(ns / 1'000) + " us"; }
std::string milliseconds(uint64_t ns) { return std::to_string(ns / 1'000'000) + " ms"; }

// The slowest and the fastest of them.
std::string how_often(const PollRates& rates) {
  if (rates.empty()) return {};
  double least = rates.begin()->second.least, most = 0;
  for (const auto& [who, rate] : rates) {
    least = std::min(least, rate.least);
    most = std::max(most, rate.most);
  }
  char text[96];
  std::snprintf(text, sizeof(text), ": %.3g to %.3g times a second, slowed down by the probes",
                least, most);
  return text;
}

// Returns whether one of them polls a CQ of `wanted`.
bool add_owners(std::vector<ObservedCq>& cqs, const std::vector<CqPoller>& pollers,
                const std::set<uint64_t>& wanted) {
  bool found = false;
  for (const CqPoller& poller : pollers) {
    for (ObservedCq& cq : cqs) {
      const bool known = std::ranges::any_of(
          cq.owners, [&poller](const CqOwner& owner) { return owner.tid == poller.tid; });
      if (cq.queues.ring.cq != poller.cq || known) continue;
      cq.owners.push_back({poller.tid, poller.site});
      found = found || wanted.contains(poller.cq);
    }
  }
  return found;
}

}  // namespace

Observation::Observation(KernelPrograms& programs, PollBurst& burst, const Process& process,
                         const ObservedGapOptions& options)
    : programs_(programs),
      process_(process),
      options_(options),
      burst_(burst),
      observer_(programs, process, options.period_ns, options.threshold_ns),
      gaps_(options),
      longest_period_ns_(options.period_ns) {}

// ---- when ----

Status Observation::begin(uint64_t ns, const std::vector<ContextInfo>& contexts,
                          const std::vector<CqPoller>& pollers) {
  active_ = true;
  gaps_.begin(ns);
  polled_ = pollers;
  return update(contexts);
}

void Observation::leave(uint64_t ns) {
  if (!active_) return;
  observer_.stop();
  prepare();
  std::set<uint32_t> threads;
  for (const OwnedSilence& open : observer_.open_silences()) {
    gaps_.add(open.owner.tid, open.owner.site, open.silence);
    threads.insert(open.owner.tid);
  }
  for (const uint32_t tid : threads) programs_.tell_pending(tid);
  add_sums();
  gaps_.end(ns);
  left_cqs_ = paused_ ? std::move(paused_cqs_) : observer_.cqs();
  observer_.forget();
  active_ = false;
}

// ---- which CQs, and whose ----

Status Observation::update(const std::vector<ContextInfo>& contexts) {
  const Result<MemoryMap> map = process_.memory_map();
  if (!map) return map.error();
  const auto memory = process_.memory();
  ReadableQueues found = find_readable_queues(*memory, *map, contexts);
  refused_ = std::move(found.refused);
  changed_.clear();
  std::vector<ObservedCq> cqs;
  for (ReadableCq& queues : found.cqs) cqs.push_back({std::move(queues), {}});
  for (const ObservedCq& known : paused_ ? paused_cqs_ : observer_.cqs())
    for (const CqOwner& owner : known.owners)
      add_owners(cqs, {{known.queues.ring.cq, owner.tid, owner.site}}, {});
  add_owners(cqs, std::exchange(polled_, {}), {});
  const bool unknown =
      std::ranges::any_of(cqs, [](const ObservedCq& cq) { return cq.owners.empty(); });
  if (unknown && may_search())
    if (Status failed = search_pollers(cqs)) return failed;
  observe(std::move(cqs));
  return std::nullopt;
}

bool Observation::may_search() const { return may_burst_ && monotonic_ns() >= next_search_ns_; }

Status Observation::search_pollers(std::vector<ObservedCq>& cqs) {
  std::set<uint64_t> wanted;
  for (const ObservedCq& cq : cqs)
    if (cq.owners.empty()) wanted.insert(cq.queues.ring.cq);
  if (Status failed = burst_.run(wanted)) return failed;
  const bool found = add_owners(cqs, burst_.pollers(), wanted);
  searches_in_vain_ = found ? 0 : searches_in_vain_ + 1;
  const uint64_t pause_ns = kSearchNs << std::min<uint64_t>(searches_in_vain_, 6);
  next_search_ns_ = monotonic_ns() + std::min(pause_ns, kLongestSearchNs);
  ownerless_.clear();
  return std::nullopt;
}

void Observation::observe(std::vector<ObservedCq> cqs) {
  follow_threads();
  if (paused_) {
    paused_cqs_ = std::move(cqs);
  } else {
    observer_.observe(std::move(cqs));
  }
}

void Observation::follow_threads() {
  const auto& clocks = programs_.clocks();
  for (size_t slot = 0; slot < clocks.size() && clocks[slot].tid != 0; ++slot)
    if (clocks[slot].exited == 0) gaps_.add_thread(clocks[slot].tid, clocks[slot].cpu);
}

void Observation::pause(bool paused) {
  if (paused == paused_) return;
  paused_ = paused;
  if (!active_) return;
  was_paused_ = was_paused_ || paused;
  if (paused) {
    paused_cqs_ = observer_.cqs();
    observer_.stop();
  } else {
    observer_.observe(std::move(paused_cqs_));
  }
}

// A CQ that is as it was but for its ring has been resized. Returns whether the list has changed.
bool Observation::verify_changed(std::vector<ObservedCq>& cqs) {
  const Result<MemoryMap> map = process_.memory_map();
  if (!map) return false;
  const auto memory = process_.memory();
  bool any = false;
  for (auto& [cq, failures] : changed_) {
    const auto place = std::ranges::find_if(
        cqs, [cq = cq](const ObservedCq& other) { return other.queues.ring.cq == cq; });
    if (place == cqs.end()) {
      failures = kVerifications;
      continue;
    }
    if (auto again = find_again(*memory, *map, place->queues)) {
      place->queues = std::move(*again);
      failures = kVerifications;
      any = true;
    } else if (++failures == kVerifications) {
      refused_.push_back({cq, "it was destroyed, or its memory has no known layout any more"});
      cqs.erase(place);
      any = true;
    }
  }
  std::erase_if(changed_, [](const auto& entry) { return entry.second >= kVerifications; });
  return any;
}

bool Observation::forget_exited(std::vector<ObservedCq>& cqs) {
  size_t owners = 0;
  for (ObservedCq& cq : cqs)
    owners += std::erase_if(cq.owners,
                            [this](const CqOwner& owner) { return exited_.contains(owner.tid); });
  exited_.clear();
  return owners != 0;
}

Status Observation::maintain() {
  if (paused_ || !active_) return std::nullopt;
  for (const uint64_t cq : observer_.take_changed()) changed_.try_emplace(cq, 0);
  ownerless_.merge(observer_.take_ownerless());
  const bool search = !ownerless_.empty() && may_search();
  if (changed_.empty() && exited_.empty() && !search) return std::nullopt;
  std::vector<ObservedCq> cqs = observer_.cqs();
  bool any = !changed_.empty() && verify_changed(cqs);
  any = (!exited_.empty() && forget_exited(cqs)) || any;
  if (search) {
    if (Status failed = search_pollers(cqs)) return failed;
    any = true;
  }
  if (any) observe(std::move(cqs));
  return std::nullopt;
}

// ---- gaps ----

void Observation::prepare() {
  complete_ns_ = monotonic_ns();
  served_ = observer_.served_until();
  for (const OwnedSilence& found : observer_.take())
    gaps_.add(found.owner.tid, found.owner.site, found.silence);
}

void Observation::accept(std::span<const std::byte> record) {
  gaps_.accept(record);
  ev_process process;
  if (record.size() != sizeof(process)) return;
  std::memcpy(&process, record.data(), sizeof(process));
  if (process.header.kind == EV_PROCESS && process.what == EV_PROCESS_THREAD_EXIT)
    exited_.insert(process.tid);
}

void Observation::tell(const Sink& sink, bool last) {
  const auto served_until = [this](uint32_t tid) {
    const auto served = served_.find(tid);
    return served == served_.end() ? complete_ns_ : std::min(served->second, complete_ns_);
  };
  gaps_.tell(served_until, sink, last);
}

// What is known of the time since begin().
void Observation::add_sums() {
  const std::map<uint64_t, ObservedTotals> totals = observer_.totals();
  for (const ObservedCq& cq : observer_.cqs()) {
    const auto seen = totals.find(cq.queues.ring.cq);
    if (seen == totals.end()) continue;
    for (const CqOwner& owner : cq.owners) {
      ev_polls record{};
      record.header = {EV_POLLS, sizeof(record), 0, seen->second.first_ns, seen->second.last_ns};
      record.tid = owner.tid;
      record.site = owner.site;
      record.cq = cq.queues.ring.cq;
      record.completions = seen->second.consumed;
      record.posted_sends = seen->second.posted;
      record.idle_ns = seen->second.idle_ns;
      sums_.push_back(record);
    }
  }
}

void Observation::write_sums(const Sink& sink) const {
  for (const ev_polls& record : sums_)
    sink(std::as_bytes(std::span<const ev_polls, 1>(&record, 1)));
}

void Observation::set_look_rate(uint32_t hz) {
  options_.period_ns = 1'000'000'000 / hz;
  longest_period_ns_ = std::max(longest_period_ns_, options_.period_ns);
  observer_.set_period(options_.period_ns);
  gaps_.set_period(options_.period_ns);
}

// ---- what could be seen ----

Json Observation::coverage() const {
  const LookFacts facts = observer_.facts();
  Json json{{"period_ns", options_.period_ns}, {"looks", facts.looks},
            {"late_looks", facts.late},        {"longest_apart_ns", facts.longest_apart_ns},
            {"blind_ns", facts.blind_ns},      {"bursts", burst_.count()},
            {"burst_ns", burst_.probed_ns()}};
  json["blind"] = Json::array();
  for (const BlindTime& blind : facts.blind)
    json["blind"].push_back(
        {{"start_mono_ns", blind.start_ns}, {"duration_ns", blind.end_ns - blind.start_ns}});
  json["cqs"] = Json::array();
  for (const ObservedCq& cq : active_ ? observer_.cqs() : left_cqs_) {
    Json threads = Json::array(), polls = Json::array();
    for (const CqOwner& owner : cq.owners) {
      threads.push_back(owner.tid);
      if (const auto rate = burst_.rates().find({cq.queues.ring.cq, owner.tid});
          rate != burst_.rates().end())
        polls.push_back({{"tid", owner.tid},
                         {"site", rate->second.site},
                         {"least_per_second", std::llround(rate->second.least)},
                         {"most_per_second", std::llround(rate->second.most)}});
    }
    json["cqs"].push_back({{"cq", hex(cq.queues.ring.cq)},
                           {"layout", cq.queues.layout},
                           {"send_queues", cq.queues.sends.size()},
                           {"all_counted", !facts.uncounted.contains(cq.queues.ring.cq)},
                           {"threads", threads},
                           {"polls", polls}});
  }
  json["refused"] = Json::array();
  for (const UnreadableCq& cq : refused_)
    json["refused"].push_back({{"cq", hex(cq.cq)}, {"reason", cq.reason}});
  return json;
}

std::vector<std::string> Observation::notes() const {
  std::vector<std::string> notes;
  notes.push_back(
      "while the CQs were looked at, of user code only what kept a completion waiting was seen; "
      "that "
      "a poll itself lasted long is not told from what the thread did between polls");
  notes.push_back("polls were probed in " + std::to_string(burst_.count()) + " bursts, for " +
                  milliseconds(burst_.probed_ns()) + " in all, to see which thread polls which CQ" +
                  how_often(burst_.rates()));
  const LookFacts facts = observer_.facts();
  if (facts.blind_ns != 0)
    notes.push_back(
        "pollgap itself came too late to look at the CQs, for " + milliseconds(facts.blind_ns) +
        " in all: of what happened meanwhile, gaps of user code and late completions may "
        "be missing (coverage.observe.blind)");
  if (longest_period_ns_ > options_.threshold_ns / 4)
    notes.push_back("the CQs were looked at only every " + microseconds(longest_period_ns_) +
                    " for a time, to take no more of the agent's core: of gaps of user code and "
                    "late completions, short ones may be missing, and edges are as uncertain");
  for (const UnreadableCq& cq : refused_)
    notes.push_back(name_of(cq.cq) + " was not observed: " + cq.reason);
  for (const ObservedCq& cq : active_ ? observer_.cqs() : left_cqs_) {
    const std::string name = name_of(cq.queues.ring.cq);
    if (facts.uncounted.contains(cq.queues.ring.cq))
      notes.push_back(
          name + ": its " + std::to_string(cq.queues.ring.entries) +
          " entries may have been consumed more than once between two looks: it has had "
          "at least as many completions as are said, and gaps of it may be missing");
    if (cq.owners.empty())
      notes.push_back(name + ": no thread was seen to poll it, so no gap is told of it");
    if (cq.queues.unreadable_sends != 0)
      notes.push_back(name + ": " + std::to_string(cq.queues.unreadable_sends) +
                      " send queues that complete to it cannot be read: late completions of their "
                      "sends are not told");
  }
  if (was_paused_)
    notes.push_back(
        "for a time nothing was observed: target threads polled on every core that the agent may "
        "use");
  return notes;
}

}  // namespace pollgap
