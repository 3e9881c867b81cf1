// SPDX-License-Identifier: Apache-2.0
// Whether a thread was on a CPU, waited for one, or could not run, at each instant of a window.
#pragma once

#include <cstdint>
#include <vector>

#include "agent/timeline/timeline.h"

namespace pollgap {

enum class Activity {
  on_cpu,
  runnable,      // ready to run, on the runqueue of `cpu`
  not_runnable,  // asleep, stopped, frozen
};

struct Stint {
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  Activity activity = Activity::on_cpu;
  uint32_t cpu = 0;             // where it ran or waited
  const OffCpu* off = nullptr;  // the record behind runnable and not_runnable
  bool moved_away = false;      // runnable: it ended because the thread was moved to another CPU
};

// The stints of the thread in [start_ns, end_ns): sorted, disjoint, without holes. start_cpu is
// where it was at start_ns. `thread` may be nullptr: nothing was seen of it.
std::vector<Stint> thread_activity(const ThreadTimeline* thread, uint64_t start_ns, uint64_t end_ns,
                                   uint32_t start_cpu);

}  // namespace pollgap
