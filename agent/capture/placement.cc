// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/placement.h"

#include <sched.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace pollgap {

bool keep_off(const std::set<int>& cpus) {
  std::error_code failed;
  bool moved = true;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", failed)) {
    const int tid = std::atoi(task.path().filename().c_str());
    cpu_set_t allowed;
    if (sched_getaffinity(tid, sizeof(allowed), &allowed) != 0) continue;
    for (const int cpu : cpus)
      if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_CLR(cpu, &allowed);
    if (CPU_COUNT(&allowed) == 0 || sched_setaffinity(tid, sizeof(allowed), &allowed) != 0)
      moved = false;
  }
  return moved && !failed;
}

}  // namespace pollgap
