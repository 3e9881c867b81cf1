// SPDX-License-Identifier: Apache-2.0
// What a report says of the machine, and the clock that its times refer to.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace pollgap {

// Object {hostname, kernel, architecture, online_cpus, isolated_cpus, hypervisor, numa_balancing,
// sched_rt_runtime_us, cgroup_version, steal_clock, clock{mono_ns, realtime_ns}}; what cannot be
// read is left out.
nlohmann::ordered_json host_facts(int cgroup_version);

// Can something take the CPU from under this kernel, and does it say so?
enum class StealClock {
  none_needed,  // no hypervisor
  counts,       // it has moved since boot
  silent,       // a hypervisor, and no steal seen: it may not report any
};
StealClock steal_clock();
const char* to_string(StealClock state);

}  // namespace pollgap
