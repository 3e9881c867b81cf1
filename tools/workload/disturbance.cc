// SPDX-License-Identifier: Apache-2.0
#include "tools/workload/disturbance.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tools/workload/disturbances/catalog.h"

namespace pollgap::workload {
namespace {

struct Setting {
  std::string key;
  std::vector<std::string> values;  // allowed; empty: anything
};

struct Entry {
  std::string name;
  DisturbancePtr (*make)(const DisturbanceSpec&, unsigned);
  std::string help;
  std::vector<Setting> settings = {};
};

const std::vector<Entry>& catalog() {
  static const std::vector<Entry> entries{
      {"fifo", make_fifo, "a SCHED_FIFO task preempts", {{"priority", {}}}},
      {"ordinary", make_ordinary, "three SCHED_OTHER tasks preempt, one after the other"},
      {"kworker", make_kworker, "a kernel worker preempts (BPF work queue)"},
      {"irq", make_irq, "a long interrupt (BPF program run by an IPI)"},
      {"irq-device", make_irq_device, "a long handler of the disk's interrupt"},
      {"softirq", make_softirq, "a long HRTIMER softirq (BPF timer)"},
      {"ipi-storm", make_ipi_storm, "a chain of short irq_work interrupts"},
      {"minor-faults", make_minor_faults, "the loop touches pages that were given back"},
      {"major-faults", make_major_faults, "the loop touches pages of a file that is on disk"},
      {"syscalls",
       make_syscalls,
       "one long system call in the loop, or many short ones",
       {{"variant", {"long", "storm"}}}},
      {"sleep", make_sleep, "the loop sleeps"},
      {"futex", make_futex, "the loop waits for a mutex that another thread holds"},
      {"stop", make_stop, "SIGSTOP and SIGCONT from another process"},
      {"quota", make_quota, "the CFS quota of a cgroup of its own throttles"},
      {"rt-throttle",
       make_rt_throttle,
       "real-time throttling (--policy fifo)",
       {{"mechanism", {"auto", "group", "fair-server"}}}},
      {"reg-mr", make_reg_mr, "ibv_reg_mr of a large buffer in the loop"},
      {"verbs", make_verbs, "ibv_create_qp, ibv_modify_qp, ibv_destroy_qp in the loop"},
      {"compute", make_compute, "the loop computes"},
      {"late", make_late, "completions are held back (soft adapter)"},
      {"idle", make_idle, "nothing is posted"},
      {"errors", make_errors, "thousands of receives are flushed with errors at once"},
  };
  return entries;
}

Status check_settings(const Entry& entry, const DisturbanceSpec& spec) {
  for (const auto& [key, value] : spec.settings) {
    const auto found =
        std::find_if(entry.settings.begin(), entry.settings.end(),
                     [&key = key](const Setting& setting) { return setting.key == key; });
    if (found == entry.settings.end()) {
      return Error{ExitCode::usage,
                   fmt::format("--disturb {} has no setting \"{}\"", spec.name, key)};
    }
    const auto& values = found->values;
    if (!values.empty() && std::find(values.begin(), values.end(), value) == values.end()) {
      return Error{ExitCode::usage, fmt::format("--disturb {}: {} is one of {}", spec.name, key,
                                                fmt::join(values, ", "))};
    }
  }
  return std::nullopt;
}

std::string help_of(const Setting& setting) {
  return fmt::format(
      " [{}={}]", setting.key,
      setting.values.empty() ? "VALUE" : fmt::format("{}", fmt::join(setting.values, "|")));
}

}  // namespace

std::string Disturbance::setting(const std::string& key, const std::string& fallback) const {
  const auto found = spec_.settings.find(key);
  return found == spec_.settings.end() ? fallback : found->second;
}

void Disturbance::log_occurrence(const Environment& environment, TruthLog& log,
                                 const std::string& cause, const Occurrence& occurrence,
                                 const nlohmann::ordered_json& culprit,
                                 const nlohmann::ordered_json& facts) const {
  log.add_disturbance(spec_.name, index_, cause, victim(environment).tid(), occurrence, culprit,
                      facts);
}

Error Disturbance::refusal(const std::string& why, ExitCode code) const {
  return {code, fmt::format("--disturb {}: {}", spec_.name, why)};
}

Result<std::unique_ptr<Disturbance>> make_disturbance(const DisturbanceSpec& spec, unsigned index) {
  for (const Entry& entry : catalog()) {
    if (entry.name != spec.name) continue;
    if (Status error = check_settings(entry, spec)) return *error;
    return entry.make(spec, index);
  }
  return Error{ExitCode::usage,
               fmt::format("--disturb: there is no disturbance \"{}\" (see --help)", spec.name)};
}

std::string disturbance_help() {
  std::string help;
  for (const Entry& entry : catalog()) {
    help += fmt::format("  {}: {}", entry.name, entry.help);
    for (const Setting& setting : entry.settings) help += help_of(setting);
    help += '\n';
  }
  return help;
}

}  // namespace pollgap::workload
