// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/poll_burst.h"

#include <time.h>

#include <algorithm>

#include "agent/capture/poll_states.h"
#include "probes/monotonic_clock.h"

namespace pollgap {
namespace {

constexpr uint64_t kShortestNs = 5'000'000;
constexpr uint64_t kLongestNs = 20'000'000;
constexpr timespec kPause{0, 1'000'000};

bool all_polled(const std::set<uint64_t>& cqs, const std::vector<CqPoller>& pollers) {
  return std::ranges::all_of(cqs, [&pollers](uint64_t cq) {
    return std::ranges::any_of(pollers, [cq](const CqPoller& poller) { return poller.cq == cq; });
  });
}

}  // namespace

std::vector<CqPoller> pollers_since(KernelPrograms& programs, uint64_t ns) {
  std::vector<CqPoller> pollers;
  for_each_poll_state(programs,
                      [&pollers, ns](const poll_key& key, const poll_state& poll, uint64_t) {
                        if (poll.last_ns >= ns)
                          pollers.push_back({key.cq, key.tid, poll.site, poll.seen});
                      });
  return pollers;
}

Status PollBurst::run(const std::set<uint64_t>& cqs) {
  const uint64_t begun = monotonic_ns();
  if (Status failed = probes_.begin_burst()) return failed;
  const uint64_t placed = monotonic_ns();
  counter_.most_on_a_core();
  const std::vector<CqPoller> before = pollers_since(programs_, 0);
  uint64_t now = placed;
  while (now < placed + kLongestNs) {
    nanosleep(&kPause, nullptr);
    now = monotonic_ns();
    if (now >= placed + kShortestNs && all_polled(cqs, pollers_since(programs_, begun))) break;
  }
  polls_ = counter_.most_on_a_core();
  length_ns_ = monotonic_ns() - placed;
  rate(before, pollers_since(programs_, placed));
  probes_.end_burst();
  ++count_;
  probed_ns_ += monotonic_ns() - begun;
  pollers_ = pollers_since(programs_, begun);
  return std::nullopt;
}

void PollBurst::rate(const std::vector<CqPoller>& before, const std::vector<CqPoller>& after) {
  for (const CqPoller& poller : after) {
    const auto same = std::ranges::find_if(before, [&poller](const CqPoller& other) {
      return other.cq == poller.cq && other.tid == poller.tid;
    });
    const uint32_t polls = poller.seen - (same == before.end() ? 0 : same->seen);
    if (polls == 0) continue;
    const double rate = polls * 1e9 / static_cast<double>(length_ns_);
    const auto [place, is_new] =
        rates_.try_emplace({poller.cq, poller.tid}, PollRate{poller.site, rate, rate});
    place->second.least = std::min(place->second.least, rate);
    place->second.most = std::max(place->second.most, rate);
  }
}

}  // namespace pollgap
