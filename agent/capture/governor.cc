// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/governor.h"

#include <algorithm>

namespace pollgap {
namespace {

constexpr double kMinuteNs = 60e9;
// A small budget never fills a purse for the worst that may come: then a nearly full one will do.
constexpr double kNearlyFull = 0.8;
// Of the agent's budget: what flows into its purse.
constexpr double kAgentIncome = 0.6;
// Of what looking may take: what it is to take when it has taken more. What it takes varies.
constexpr double kRoom = 0.8;
// Looking twice as often is tried when less than half of what it may take has been taken for so
// long.
constexpr uint64_t kFrugalNs = 30'000'000'000;

}  // namespace

Governor::Governor(double budget, double housekeeping_budget, uint64_t probe_ns,
                   uint64_t leaving_ns)
    : budget_(budget),
      probe_ns_(static_cast<double>(probe_ns)),
      leaving_ns_(static_cast<double>(leaving_ns)),
      most_ns_(budget / 2 * kMinuteNs),
      purse_ns_(most_ns_),
      agent_income_(kAgentIncome * housekeeping_budget),
      agent_most_ns_((1 - kAgentIncome) * housekeeping_budget * kMinuteNs),
      agent_purse_ns_(agent_most_ns_) {}

double Governor::share(uint64_t length_ns, uint64_t polls) const {
  if (length_ns == 0) return 0;
  if (probe_ns_ == 0) return 1;
  return std::min(1.0, static_cast<double>(polls) * probe_ns_ / static_cast<double>(length_ns));
}

void Governor::spend(uint64_t length_ns, uint64_t polls) {
  const auto length = static_cast<double>(length_ns);
  share_ = share(length_ns, polls);
  purse_ns_ = std::min(most_ns_, purse_ns_ + (budget_ / 2 - share_) * length);
}

bool Governor::must_leave() const {
  return share_ > budget_ / 2 && purse_ns_ < share_ * leaving_ns_;
}

bool Governor::may_probe(uint64_t length_ns) const {
  return purse_ns_ >= std::min(static_cast<double>(length_ns), kNearlyFull * most_ns_);
}

bool Governor::may_time(double share) const {
  return share <= budget_ / 2 && purse_ns_ >= std::min(leaving_ns_, kNearlyFull * most_ns_);
}

uint32_t Governor::look_rate(const AgentTime& time, uint32_t hz, uint32_t wanted, uint32_t least) {
  const auto length = static_cast<double>(time.length_ns);
  const double all = static_cast<double>(time.cpu_ns) / length;
  const double looks = static_cast<double>(time.looks_ns) / length;
  agent_purse_ns_ =
      std::clamp(agent_purse_ns_ + (agent_income_ - all) * length, 0.0, agent_most_ns_);
  const double for_all = agent_purse_ns_ < agent_most_ns_ / 2 ? agent_income_ / 2 : agent_income_;
  const double for_looks = for_all - std::min(all - looks, for_all / 2);
  if (looks > for_looks) {
    frugal_ns_ = 0;
    return std::max(static_cast<uint32_t>(hz * kRoom * for_looks / looks), std::min(least, hz));
  }
  frugal_ns_ = 2 * looks < for_looks ? frugal_ns_ + time.length_ns : 0;
  if (frugal_ns_ < kFrugalNs) return hz;
  frugal_ns_ = 0;
  return std::min(2 * hz, wanted);
}

}  // namespace pollgap
