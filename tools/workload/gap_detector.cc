// SPDX-License-Identifier: Apache-2.0
#include "tools/workload/gap_detector.h"

#include <algorithm>

namespace pollgap::workload {

const char* to_string(GapKind kind) {
  switch (kind) {
    case GapKind::in_poll:
      return "in_poll";
    case GapKind::between_polls:
      return "between_polls";
    case GapKind::late_completion:
      return "late_completion";
  }
  return "?";
}

GapDetector::GapDetector(Thresholds thresholds, size_t capacity)
    : thresholds_(thresholds),
      least_(std::min(thresholds.log_ticks, thresholds.stall_ticks)),
      capacity_(capacity) {
  gaps_.resize(capacity);  // touches the pages; clear() keeps them
  gaps_.clear();
}

void GapDetector::open_window(uint64_t at) {
  window_open_ = true;
  window_start_ = window_posted_ = at;
  window_polls_ = 0;
}

void GapDetector::close_window(uint64_t at, uint32_t completions, bool open) {
  if (!window_open_) return;
  window_open_ = false;
  // Without a vain poll nobody waited: what took the time is the gap between the polls, or in one.
  if (window_polls_ == 0 || at < window_start_ + thresholds_.log_ticks) return;
  add({.start_ticks = window_start_,
       .end_ticks = at,
       .posted_ticks = window_posted_,
       .polls = window_polls_,
       .completions = completions,
       .outstanding = outstanding_,
       .kind = GapKind::late_completion,
       .open = open});
}

void GapDetector::long_poll(uint64_t entry, uint64_t exit, uint32_t completions, bool waited) {
  const uint64_t between = has_polled_ ? entry - last_exit_ : 0;
  const uint64_t inside = exit - entry;
  const bool stalled_between = between >= thresholds_.stall_ticks;
  const bool stalled_inside = inside >= thresholds_.stall_ticks;
  const uint32_t outstanding = outstanding_;
  if (stalled_between || stalled_inside) close_window(last_exit_, 0, false);
  if (between >= thresholds_.log_ticks) {
    add({.start_ticks = last_exit_,
         .end_ticks = entry,
         .completions = completions,
         .outstanding = outstanding,
         .kind = GapKind::between_polls,
         .waited_for_event = waited});
  }
  if (inside >= thresholds_.log_ticks) {
    add({.start_ticks = entry,
         .end_ticks = exit,
         .completions = completions,
         .outstanding = outstanding,
         .kind = GapKind::in_poll});
  }
  if ((stalled_between || stalled_inside) && outstanding_ != 0) {
    open_window(stalled_inside ? exit : entry);
  }
}

void GapDetector::returned_completions(uint64_t exit, uint32_t completions,
                                       uint32_t signaled_sends) {
  close_window(exit, completions, false);
  outstanding_ -= std::min(outstanding_, signaled_sends);
  if (outstanding_ != 0) open_window(exit);
}

void GapDetector::finish() {
  if (has_polled_) close_window(last_exit_, 0, true);
}

void GapDetector::add(const GapRecord& gap) {
  if (gaps_.size() < capacity_) {
    gaps_.push_back(gap);
  } else {
    ++dropped_;
  }
}

}  // namespace pollgap::workload
