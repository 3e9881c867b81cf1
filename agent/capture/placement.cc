// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/placement.h"

#include <sched.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

namespace pollgap {

bool keep_off(const std::set<int>& cpus) {
  static const std::optional<cpu_set_t> given = [] {  // where the agent was allowed to run at first
    cpu_set_t own;
    return sched_getaffinity(0, sizeof(own), &own) == 0 ? std::optional(own) : std::nullopt;
  }();
  if (!given) return false;
  cpu_set_t allowed = *given;
  for (const int cpu : cpus)
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_CLR(cpu, &allowed);
  if (CPU_COUNT(&allowed) == 0) return false;
  std::error_code failed;
  bool moved = true;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", failed)) {
    const int tid = std::atoi(task.path().filename().c_str());
    if (sched_setaffinity(tid, sizeof(allowed), &allowed) != 0) moved = false;
  }
  return moved && !failed;
}

}  // namespace pollgap
