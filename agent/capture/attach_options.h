// SPDX-License-Identifier: Apache-2.0
// What a capture session is asked for.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace pollgap {

struct AttachOptions {
  pid_t pid = 0;
  std::vector<pid_t> tids;  // only these threads; empty: every thread that polls
  uint64_t threshold_ns = 1'000'000;
  uint64_t duration_ns = 0;       // 0: until told to stop; recorded, not enforced here
  std::string timing = "auto";    // uprobe, return, observe; auto: uprobe or observe by the budget
  double overhead_budget = 0.01;  // with timing auto: share of a polled core
  uint32_t observe_hz = 5000;     // where polls are not timed: looks at the CQs a second
  std::vector<std::string> poll_sites;    // --poll-site
  std::vector<std::string> trace_events;  // --trace-event, "GROUP:EVENT"
};

inline bool may_time_polls(const AttachOptions& options) { return options.timing != "observe"; }

// A poll site that the user names is to be probed: how it keeps its completions is not known.
inline bool may_observe(const AttachOptions& options) {
  return options.timing == "observe" || (options.timing == "auto" && options.poll_sites.empty());
}

}  // namespace pollgap
