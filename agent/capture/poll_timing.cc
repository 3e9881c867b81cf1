// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/poll_timing.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "agent/capture/open_gaps.h"
#include "probes/monotonic_clock.h"

namespace pollgap {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kMinuteNs = 60 * kSecondNs;
constexpr double kHousekeepingBudget = 0.05;
// Polls that become many are noticed by the next turn of maintain(), a tenth of a second later at
// most, and their probes are off so long after that.
constexpr uint64_t kLeavingNs = 250 * kMs;
// A burst, placing and taking off included.
constexpr uint64_t kBurstNs = 150 * kMs;
// From one burst that asks for the rate of polls to the next; each that changes nothing doubles it.
constexpr uint64_t kBurstPauseNs = 10 * kSecondNs;
constexpr uint64_t kLongestBurstPauseNs = 30 * kSecondNs;
// A rate is told from no less.
constexpr uint64_t kGovernNs = 50 * kMs;
constexpr uint64_t kGovernLooksNs = kSecondNs;
constexpr uint32_t kLeastHz = 200;
// Who polled a CQ within the last second polls it.
constexpr uint64_t kRecentNs = kSecondNs;

uint64_t agent_cpu_ns() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ns = [](const timeval& time) {
    return static_cast<uint64_t>(time.tv_sec) * kSecondNs +
           static_cast<uint64_t>(time.tv_usec) * 1000;
  };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2g%%", 100 * share);
  return text;
}

bool is_live(const Site& site) {
  return std::ranges::any_of(site.found_by,
                             [](const std::string& by) { return by.starts_with("live "); });
}

}  // namespace

PollTiming::PollTiming(const AttachOptions& options, const pg_config& config,
                       KernelPrograms& programs, RecordQueue& records, const Process& process)
    : options_(options),
      config_(config),
      programs_(programs),
      records_(records),
      process_(process),
      probes_(programs, process.pid(),
              {.returns = options.timing == "return",
               .bursts = may_observe(options),
               .times = may_time_polls(options)}),
      burst_(programs, probes_),
      counter_(programs),
      look_hz_(options.observe_hz) {}

// ---- the modes ----

Status PollTiming::begin(const Sites& found, uint64_t kernel_entry_ns) {
  contexts_ = found.contexts;
  if (Status failed = probes_.attach(found.sites)) return failed;
  if (!may_observe(options_)) {
    phases_.push_back({false, monotonic_ns()});
    return probes_.time_polls();
  }
  ProbePrices prices;
  if (may_time_polls(options_)) prices = measure_probe_prices(programs_);
  observation_.emplace(programs_, burst_, process_,
                       ObservedGapOptions{.pid = config_.target_pid,
                                          .threshold_ns = options_.threshold_ns,
                                          .period_ns = kSecondNs / options_.observe_hz,
                                          .kernel_entry_ns = kernel_entry_ns,
                                          .nothing_steals = config_.steal_valid != 0});
  if (Status failed = observe_polls()) return failed;
  if (!may_time_polls(options_)) return std::nullopt;
  begin_governing(prices);
  if (burst_.count() == 0)
    if (Status failed = burst_.run({})) return failed;
  decide();
  if (observing()) announce(governor_->share(burst_.length_ns(), burst_.polls()));
  return std::nullopt;
}

Status PollTiming::check_observed(bool shares_core) const {
  const std::string who = "process " + std::to_string(process_.pid());
  if (shares_core) {
    return Error{ExitCode::other, "timing observe needs a core that " + who +
                                      " does not poll on: let pollgap run on another one, or use "
                                      "--timing uprobe"};
  }
  if (observation_->observed() == 0 && !observation_->refused().empty()) {
    return Error{ExitCode::no_poll_function, "no CQ of " + who + " can be observed (" +
                                                 observation_->refused().front().reason +
                                                 "): use --timing uprobe"};
  }
  return std::nullopt;
}

Status PollTiming::observe_polls() {
  const uint64_t now = monotonic_ns();
  programs_.judge_polls_from(UINT64_MAX);
  programs_.set_observing(true);
  programs_.hold_silences(now + kSecondNs);
  const Status failed =
      observation_->begin(now, contexts_, pollers_since(programs_, now - kRecentNs));
  probes_.leave_polls();
  phases_.push_back({true, now});
  return failed;
}

Status PollTiming::time_polls() {
  if (Status failed = probes_.time_polls()) {
    probes_.leave_polls();
    return failed;
  }
  const uint64_t now = monotonic_ns();
  programs_.set_observing(false);
  programs_.judge_polls_from(now);
  observation_->leave(now);
  phases_.push_back({false, now});
  return std::nullopt;
}

Status PollTiming::update(const Sites& found) {
  contexts_ = found.contexts;
  if (Status failed = probes_.attach(found.sites)) return failed;
  return observing() ? observation_->update(contexts_) : std::nullopt;
}

uint64_t PollTiming::look_period_ns() const {
  return observing() || governor_ ? kSecondNs / look_hz_ : 0;
}

void PollTiming::shed() {
  programs_.judge_polls_from(UINT64_MAX);
  probes_.shed();
  shed_ns_ = monotonic_ns();  // last: whatever the loop has placed meanwhile, come_back() mends
}

// After the agent was stuck.
Status PollTiming::come_back() {
  const uint64_t since_ns = shed_ns_.exchange(0);
  if (since_ns == 0 || observing()) return std::nullopt;
  const uint64_t now = monotonic_ns();
  stuck_ns_ += now - since_ns;
  if (!governor_) {
    if (Status failed = probes_.time_polls()) return failed;
    programs_.judge_polls_from(monotonic_ns());
    return std::nullopt;
  }
  next_burst_ns_ = now + burst_pause_ns_;
  announcements_.push_back("timing observe from now on: the agent was stuck");
  return observe_polls();
}

Status PollTiming::maintain(uint64_t sampler_cpu_ns) {
  if (Status failed = come_back()) return failed;
  if (governor_)
    if (Status failed = govern(sampler_cpu_ns)) return failed;
  return observing() ? observation_->maintain() : std::nullopt;
}

void PollTiming::pause(bool paused) {
  if (observation_) observation_->pause(paused);
}

void PollTiming::prepare() {
  if (observation_) observation_->prepare();
}

void PollTiming::accept(std::span<const std::byte> record) {
  if (observation_) observation_->accept(record);
}

void PollTiming::tell(const Sink& sink) {
  if (observation_) observation_->tell(sink);
}

void PollTiming::finish(const Sink& sink) {
  if (observing()) {
    const auto take = [&](std::span<const std::byte> record) {
      observation_->accept(record);
      sink(record);
    };
    observation_->leave(monotonic_ns());
    write_open_entries(programs_, records_, take);
    records_.drain(take);
    observation_->tell(sink, /*last=*/true);
  } else {
    write_open_gaps(programs_, records_, config_, sink);
  }
  const auto sum = [this](std::span<const std::byte> record) {
    ev_polls polls;
    std::memcpy(&polls, record.data(), sizeof(polls));
    add_sums(polls);
  };
  if (may_time_polls(options_)) write_poll_sums(programs_, sum);
  if (observation_) observation_->write_sums(sum);
  for (const auto& [key, polls] : sums_)
    sink(std::as_bytes(std::span<const ev_polls, 1>(&polls, 1)));
  programs_.judge_polls_from(UINT64_MAX);
}

void PollTiming::add_sums(const ev_polls& more) {
  const auto [place, is_new] = sums_.try_emplace({more.tid, more.cq}, more);
  if (is_new) return;
  ev_polls& sum = place->second;
  sum.header.start_ns = std::min(sum.header.start_ns, more.header.start_ns);
  sum.header.end_ns = std::max(sum.header.end_ns, more.header.end_ns);
  sum.completions += more.completions;
  sum.posted_sends += more.posted_sends;
  sum.idle_ns += more.idle_ns;
}

// ---- the governor ----

void PollTiming::begin_governing(const ProbePrices& prices) {
  prices_ = prices;
  governor_.emplace(options_.overhead_budget, kHousekeepingBudget, probe_ns(), kLeavingNs);
  burst_pause_ns_ = kBurstPauseNs;
  accounted_ns_ = looks_governed_ns_ = monotonic_ns();
  agent_ns_ = governed_agent_ns_ = agent_cpu_ns();
}

// Of a poll at the dearest of the functions that the target has in use. On a core that shares its
// hardware with the polled one a trap takes the agent several times longer; what the target itself
// has shown is closer.
uint64_t PollTiming::probe_ns() const {
  uint64_t ns = prices_.emulated_ns;
  bool returns = false;
  for (const Site& site : probes_.poll_sites()) {
    if (!is_live(site)) continue;
    returns = returns || site.cq_layout == nullptr;
    ns = std::max(ns, prices_.of(site));
  }
  if (const uint64_t closest_ns = counter_.closest_ns(); closest_ns != 0)
    ns = std::min(ns, closest_ns);
  return ns + (returns ? prices_.at_return_ns : 0);
}

Status PollTiming::govern(uint64_t sampler_cpu_ns) {
  const uint64_t now = monotonic_ns();
  const uint64_t length_ns = now - accounted_ns_;
  if (length_ns < kGovernNs) return std::nullopt;
  const uint64_t polls = counter_.most_on_a_core();
  const uint64_t agent_ns = agent_cpu_ns();
  governor_->spend(length_ns, polls);
  minute_.add(length_ns, governor_->share(length_ns, polls), agent_ns - agent_ns_);
  accounted_ns_ = now;
  agent_ns_ = agent_ns;
  observation_->allow_bursts(governor_->may_probe(kBurstNs));
  govern_looks(sampler_cpu_ns);
  if (observing()) {
    if (now < next_burst_ns_ || !governor_->may_probe(kBurstNs)) return std::nullopt;
    if (Status failed = burst_.run({})) return failed;
    decide();
    return std::nullopt;
  }
  if (!governor_->must_leave()) return std::nullopt;
  burst_pause_ns_ = kBurstPauseNs;
  next_burst_ns_ = now + burst_pause_ns_;
  if (Status failed = observe_polls()) return failed;
  announce(governor_->share(length_ns, polls));
  return std::nullopt;
}

// By the latest burst: where polls are few enough, they are timed from now on.
void PollTiming::decide() {
  governor_->set_probe_ns(probe_ns());
  const double share = governor_->share(burst_.length_ns(), burst_.polls());
  // Where the probes cannot be placed any more, looking goes on.
  if (governor_->may_time(share) && !time_polls()) {
    announce(share);
    return;
  }
  next_burst_ns_ = monotonic_ns() + burst_pause_ns_;
  burst_pause_ns_ = std::min(2 * burst_pause_ns_, kLongestBurstPauseNs);
}

// The share of a polled core that probes of all polls take, or would take.
void PollTiming::announce(double share) {
  announcements_.push_back(observing()
                               ? "timing observe from now on: probes of all polls would take " +
                                     percent(share) + " of a polled core; up to " +
                                     percent(options_.overhead_budget / 2) + " would do"
                               : "timing uprobe from now on: probes of all polls take " +
                                     percent(share) + " of a polled core");
}

// The agent looks less often where it takes too much of its own core.
void PollTiming::govern_looks(uint64_t sampler_cpu_ns) {
  const uint64_t now = monotonic_ns();
  if (now < looks_governed_ns_ + kGovernLooksNs) return;
  const uint64_t length_ns = now - looks_governed_ns_;
  const uint64_t agent_ns = agent_cpu_ns();
  const uint64_t all_ns = agent_ns - std::exchange(governed_agent_ns_, agent_ns);
  const uint64_t cpu_ns = observation_->looks_cpu_ns() + sampler_cpu_ns;
  const uint64_t looks_ns = cpu_ns - std::exchange(governed_looks_ns_, cpu_ns);
  looks_governed_ns_ = now;
  const uint32_t hz =
      governor_->look_rate({length_ns, all_ns, looks_ns}, look_hz_, options_.observe_hz, kLeastHz);
  if (hz == look_hz_) return;
  look_hz_ = hz;
  observation_->set_look_rate(hz);
  if (!observing()) return;
  announcements_.push_back("the CQs are looked at " + std::to_string(hz) +
                           " times a second from now on, as often as " +
                           percent(kHousekeepingBudget) + " of a core for the agent bears");
}

void PollTiming::Minute::add(uint64_t ns, double probes, uint64_t agent) {
  length_ns += ns;
  probes_ns += probes * static_cast<double>(ns);
  agent_ns += agent;
  if (length_ns >= kMinuteNs) end();
}

void PollTiming::Minute::end() {
  if (length_ns == 0) return;
  most_probes = std::max(most_probes, probes_ns / kMinuteNs);
  most_agent = std::max(most_agent, static_cast<double>(agent_ns) / static_cast<double>(length_ns));
  length_ns = agent_ns = 0;
  probes_ns = 0;
}

// ---- what could be seen ----

void PollTiming::tell_coverage(Json& coverage, std::vector<std::string>& notes) const {
  coverage["timing"] =
      options_.timing == "auto" && !may_observe(options_) ? "uprobe" : options_.timing;
  coverage["polls_without_return"] = probes_.without_return();
  coverage["uprobes"] = probes_.count();
  if (stuck_ns_ != 0)
    notes.push_back("the agent was stuck for " + std::to_string(stuck_ns_ / kMs) +
                    " ms in all, as if nobody read its output: polls were not timed meanwhile, and "
                    "gaps are missing");
  if (observation_) {
    coverage["observe"] = observation_->coverage();
    for (const std::string& note : observation_->notes()) notes.push_back(note);
  }
  if (!governor_) return;
  Json& phases = coverage["timings"] = Json::array();
  for (const Phase& phase : phases_)
    phases.push_back(
        {{"timing", phase.observed ? "observe" : "uprobe"}, {"start_mono_ns", phase.start_ns}});
  Minute minute = minute_;
  minute.end();
  coverage["governor"] = {{"probe_ns", probe_ns()},
                          {"overhead_budget", options_.overhead_budget},
                          {"most_of_polled_core", minute.most_probes},
                          {"housekeeping_budget", kHousekeepingBudget},
                          {"most_of_agent_core", minute.most_agent}};
}

}  // namespace pollgap
