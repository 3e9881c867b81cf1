// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

#include "agent/cli/check.h"
#include "agent/report/cpu_list.h"
#include "probes/discovery.h"

namespace pollgap {
namespace {

namespace fs = std::filesystem;

constexpr double kBusyShare = 0.5;  // of a CPU: such a thread polls or computes

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

Check failed_check(const char* name, const Error& error) {
  return {Grade::fail, name, error.message, "", error.code};
}

Check poll_functions(const Process& process) {
  const auto sites = discover(process, {});
  if (!sites) return failed_check("poll functions", sites.error());
  std::vector<std::string> names;
  for (const Site& site : sites.value().sites)
    if (site.role == SiteRole::poll_cq || site.role == SiteRole::start_poll)
      names.push_back(site.name);
  return {Grade::ok, "poll functions", fmt::format("{}", fmt::join(names, ", ")), "", {}};
}

std::string thread_label(const ThreadInfo& thread) {
  return fmt::format("thread {} ({})", thread.tid, thread.comm);
}

bool is_pinned(const ThreadInfo& thread) {
  const auto cpus = parse_cpu_list(thread.cpus);
  return cpus && cpus->size() == 1;
}

Check affinity(const ThreadInfo& thread) {
  if (is_pinned(thread))
    return {Grade::ok, thread_label(thread), fmt::format("pinned to CPU {}", thread.cpus), "", {}};
  return {Grade::warn,
          thread_label(thread),
          fmt::format("may run on CPUs {}: the scheduler may move it", thread.cpus),
          fmt::format("taskset -pc CPU {}", thread.tid),
          {}};
}

std::optional<Check> real_time_limit(const ThreadInfo& thread) {
  if (thread.policy != "SCHED_FIFO" && thread.policy != "SCHED_RR") return std::nullopt;
  const std::string runtime = first_line("/proc/sys/kernel/sched_rt_runtime_us");
  if (runtime == "-1") return std::nullopt;
  return Check{Grade::warn,
               thread_label(thread),
               fmt::format("polls as {}: stopped after {} us of each period when others wait",
                           thread.policy, runtime),
               "run it as SCHED_OTHER on an isolated core, or sysctl -w "
               "kernel.sched_rt_runtime_us=-1",
               {}};
}

// Device interrupts that the thread's CPU takes now.
std::optional<Check> interrupts_on_its_cpu(const ThreadInfo& thread) {
  if (!is_pinned(thread)) return std::nullopt;
  const uint32_t cpu = *parse_cpu_list(thread.cpus)->begin();
  std::vector<std::string> found;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator("/proc/irq", failed)) {
    const auto cpus = parse_cpu_list(first_line(entry.path() / "effective_affinity_list"));
    if (!cpus || !cpus->contains(cpu)) continue;
    for (const auto& action : fs::directory_iterator(entry.path(), failed))
      if (action.is_directory(failed))
        found.push_back(fmt::format("{} {}", entry.path().filename().string(),
                                    action.path().filename().string()));
  }
  if (found.empty()) return std::nullopt;
  std::ranges::sort(found);
  return Check{Grade::warn,
               thread_label(thread),
               fmt::format("CPU {} takes interrupts: {}", cpu, fmt::join(found, ", ")),
               "echo OTHER_CPUS > /proc/irq/N/smp_affinity_list",
               {}};
}

struct CgroupPath {
  fs::path directory;  // below the mount of the cpu controller
  bool v2 = true;
};

// proc_pid_cgroup(5): "0::/path" for v2, "4:cpu,cpuacct:/path" for v1.
std::optional<CgroupPath> cpu_cgroup(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/cgroup", pid));
  std::optional<CgroupPath> found;
  std::string line;
  while (std::getline(file, line)) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers.find(",cpu,") != std::string::npos)
      return CgroupPath{"/sys/fs/cgroup/cpu" + path, false};
    if (line.starts_with("0::")) found = CgroupPath{"/sys/fs/cgroup" + path, true};
  }
  return found;
}

// Any group on the way to the root may limit it.
Check cpu_quota(pid_t pid) {
  const auto cgroup = cpu_cgroup(pid);
  if (!cgroup) return {Grade::ok, "CPU quota", "no cgroup with the cpu controller", "", {}};
  const char* file = cgroup->v2 ? "cpu.max" : "cpu.cfs_quota_us";
  for (fs::path group = cgroup->directory; group.string().starts_with("/sys/fs/cgroup/");
       group = group.parent_path()) {
    const std::string limit = first_line(group / file);
    if (limit.empty() || limit.starts_with("max") || limit.starts_with("-1")) continue;
    return {Grade::warn,
            "CPU quota",
            fmt::format("{} is {}", (group / file).string(), limit),
            fmt::format("echo {} > {}", cgroup->v2 ? "max" : "-1", (group / file).string()),
            {}};
  }
  return {Grade::ok, "CPU quota", "none", "", {}};
}

}  // namespace

std::vector<Check> check_target(pid_t pid) {
  const auto process = Process::open(pid);
  if (!process) return {failed_check("process", process.error())};
  std::vector<Check> checks = {
      {Grade::ok, "process", fmt::format("{} {}", pid, process.value().executable()), "", {}}};
  const auto map = process.value().memory_map();
  Status refused = map ? process.value().check_memory_access(map.value()) : Status(map.error());
  if (refused) {
    checks.push_back(failed_check("memory of the process", *refused));
  } else {
    checks.push_back(poll_functions(process.value()));
  }
  for (const ThreadInfo& thread : process.value().threads()) {
    if (thread.cpu_share < kBusyShare) continue;
    checks.push_back(affinity(thread));
    for (auto& check : {real_time_limit(thread), interrupts_on_its_cpu(thread)})
      if (check) checks.push_back(*check);
  }
  checks.push_back(cpu_quota(pid));
  return checks;
}

}  // namespace pollgap
