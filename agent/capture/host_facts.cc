// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/host_facts.h"

#include <sys/utsname.h>
#include <time.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "probes/monotonic_clock.h"

namespace pollgap {
namespace {

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool under_hypervisor() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line))
    if (line.starts_with("flags")) return line.find(" hypervisor") != std::string::npos;
  return false;
}

// proc_stat(5): the eighth number of the "cpu" line, in clock ticks.
uint64_t steal_ticks() {
  std::istringstream line(first_line("/proc/stat"));
  std::string name;
  uint64_t value = 0;
  line >> name;
  for (int field = 1; field <= 8; ++field)
    if (!(line >> value)) return 0;
  return value;
}

nlohmann::ordered_json clock_anchor() {
  timespec wall{};
  const uint64_t mono_ns = monotonic_ns();
  clock_gettime(CLOCK_REALTIME, &wall);
  const uint64_t realtime_ns =
      static_cast<uint64_t>(wall.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(wall.tv_nsec);
  return {{"mono_ns", mono_ns}, {"realtime_ns", realtime_ns}};
}

}  // namespace

StealClock steal_clock() {
  if (!under_hypervisor()) return StealClock::none_needed;
  return steal_ticks() > 0 ? StealClock::counts : StealClock::silent;
}

const char* to_string(StealClock state) {
  switch (state) {
    case StealClock::none_needed:
      return "none_needed";
    case StealClock::counts:
      return "counts";
    case StealClock::silent:
      break;
  }
  return "silent";
}

nlohmann::ordered_json host_facts(int cgroup_version) {
  nlohmann::ordered_json facts;
  utsname name{};
  if (uname(&name) == 0) {
    facts["hostname"] = name.nodename;
    facts["kernel"] = name.release;
    facts["architecture"] = name.machine;
  }
  const auto add = [&facts](const char* key, const char* path) {
    const std::string line = first_line(path);
    if (!line.empty()) facts[key] = line;
  };
  add("online_cpus", "/sys/devices/system/cpu/online");
  add("isolated_cpus", "/sys/devices/system/cpu/isolated");
  add("numa_balancing", "/proc/sys/kernel/numa_balancing");
  add("sched_rt_runtime_us", "/proc/sys/kernel/sched_rt_runtime_us");
  facts["hypervisor"] = under_hypervisor();
  facts["steal_clock"] = to_string(steal_clock());
  facts["cgroup_version"] = cgroup_version;
  facts["clock"] = clock_anchor();
  return facts;
}

}  // namespace pollgap
