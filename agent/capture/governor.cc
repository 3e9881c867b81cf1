// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/governor.h"

#include <algorithm>

namespace pollgap {
namespace {

constexpr double kMinuteNs = 60e9;
// A small budget never fills a purse for the worst that may come: then a nearly full one will do.
constexpr double kNearlyFull = 0.8;
// Looking half as often begins here: the agent has other work, too, at times.
constexpr double kNearlySpent = 0.8;
// Looking twice as often is tried below a third of the budget, when it has been so for a while.
constexpr double kFarBelow = 1.0 / 3;
constexpr uint64_t kFrugalNs = 30'000'000'000;

}  // namespace

Governor::Governor(double budget, double housekeeping_budget, uint64_t probe_ns,
                   uint64_t leaving_ns)
    : budget_(budget),
      housekeeping_budget_(housekeeping_budget),
      probe_ns_(static_cast<double>(probe_ns)),
      leaving_ns_(static_cast<double>(leaving_ns)),
      most_ns_(budget / 2 * kMinuteNs),
      purse_ns_(most_ns_) {}

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

uint32_t Governor::look_rate(uint64_t length_ns, uint64_t cpu_ns, uint32_t hz, uint32_t wanted,
                             uint32_t least) {
  const double used = static_cast<double>(cpu_ns) / static_cast<double>(length_ns);
  if (used > kNearlySpent * housekeeping_budget_) {
    frugal_ns_ = 0;
    return std::max(hz / 2, std::min(least, hz));
  }
  frugal_ns_ = used < kFarBelow * housekeeping_budget_ ? frugal_ns_ + length_ns : 0;
  if (frugal_ns_ < kFrugalNs) return hz;
  frugal_ns_ = 0;
  return std::min(2 * hz, wanted);
}

}  // namespace pollgap
