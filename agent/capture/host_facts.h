// SPDX-License-Identifier: Apache-2.0
// What a report says of the machine, and the clock that its times refer to.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace pollgap {

// Object {hostname, kernel, architecture, online_cpus, isolated_cpus, hypervisor, numa_balancing,
// sched_rt_runtime_us, cgroup_version, steal_clock, clock{mono_ns, realtime_ns}}; what cannot be
// read is left out.
nlohmann::ordered_json host_facts(int cgroup_version);

// Does a steal clock count here, so that its standing still means that nothing was stolen?
// "none_needed": no hypervisor. "counts": it has moved since boot. "unknown": a hypervisor, and no
// steal seen: it may not report any.
const char* steal_clock_state();

}  // namespace pollgap
