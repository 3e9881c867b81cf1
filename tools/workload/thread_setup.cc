// SPDX-License-Identifier: Apache-2.0
#include "tools/workload/thread_setup.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace pollgap::workload {

void name_thread(const std::string& name) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
}

Status pin_thread(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  if (sched_setaffinity(0, sizeof set, &set) == 0) return std::nullopt;
  return Error{ExitCode::other,
               fmt::format("cannot run on CPU {}: {} (is it in this process's cpuset?)", cpu,
                           std::strerror(errno))};
}

const char* kernel_name(Policy policy) {
  switch (policy) {
    case Policy::other:
      return "SCHED_OTHER";
    case Policy::fifo:
      return "SCHED_FIFO";
    case Policy::rr:
      return "SCHED_RR";
  }
  return "?";
}

Status set_thread_policy(Policy policy, int priority) {
  sched_param parameters{};
  int result = 0;
  if (policy == Policy::other) {
    result = sched_setscheduler(0, SCHED_OTHER, &parameters);
    // Linux: who 0 is the calling thread, not the process (setpriority(2), C library/kernel
    // differences).
    if (result == 0) result = setpriority(PRIO_PROCESS, 0, priority);
  } else {
    parameters.sched_priority = priority;
    result = sched_setscheduler(0, policy == Policy::fifo ? SCHED_FIFO : SCHED_RR, &parameters);
  }
  if (result == 0) return std::nullopt;
  return Error{ExitCode::no_privilege,
               fmt::format("cannot become {} with priority {}: {} (needs CAP_SYS_NICE, and a "
                           "cgroup with real-time runtime)",
                           kernel_name(policy), priority, std::strerror(errno))};
}

}  // namespace pollgap::workload
