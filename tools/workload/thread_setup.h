// SPDX-License-Identifier: Apache-2.0
// Name, CPU and scheduling policy of the calling thread.
#pragma once

#include <string>

#include "probes/result.h"
#include "tools/workload/options.h"

namespace pollgap::workload {

// At most 15 bytes are kept.
void name_thread(const std::string& name);

Status pin_thread(int cpu);

// priority: 1..99 for fifo and rr, a nice value for other. Errors have ExitCode::no_privilege when
// the caller lacks CAP_SYS_NICE, and when its cgroup has no real-time runtime (RT_GROUP_SCHED).
Status set_thread_policy(Policy policy, int priority);

// "SCHED_OTHER", "SCHED_FIFO", "SCHED_RR".
const char* kernel_name(Policy policy);

}  // namespace pollgap::workload
