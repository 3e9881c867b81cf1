// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/catch_up.h"

namespace pollgap {
namespace {

constexpr uint64_t kCalmNs = 2'000'000'000;

}  // namespace

void CatchUp::drained(bool all, uint64_t now_ns) {
  if (!all) {
    behind_ns_ = now_ns;
    raise();
  } else if (raised_ && now_ns - behind_ns_ > kCalmNs) {
    lower();
  }
}

void CatchUp::raise() {
  if (raised_) return;
  policy_ = sched_getscheduler(0);
  if (policy_ != SCHED_OTHER || sched_getparam(0, &parameters_) != 0) return;  // the user's choice
  const sched_param lowest{.sched_priority = 1};
  raised_ = sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &lowest) == 0;
  was_raised_ = was_raised_ || raised_;
}

void CatchUp::lower() {
  if (raised_) sched_setscheduler(0, policy_, &parameters_);
  raised_ = false;
}

}  // namespace pollgap
