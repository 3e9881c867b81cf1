// SPDX-License-Identifier: Apache-2.0
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <cap-ng.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string_view>

#include "agent/capture/host_facts.h"
#include "agent/capture/smi_counters.h"
#include "agent/cli/check.h"
#include "agent/report/cpu_list.h"
#include "bpf/config.h"
#include "pollgap_bpf.skel.h"
#include "probes/file_descriptor.h"

namespace pollgap {
namespace {

namespace fs = std::filesystem;

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool has_capability(unsigned capability) {
  capng_get_caps_process();
  return capng_have_capability(CAPNG_EFFECTIVE, capability) == 1;
}

// ---- what pollgap needs ----

// bpf_loop() came with 5.17.
Check kernel_version() {
  utsname name{};
  int major = 0;
  int minor = 0;
  if (uname(&name) == 0)
    std::sscanf(name.release, "%d.%d", &major, &minor);  // NOLINT(cert-err34-c)
  if (major > 5 || (major == 5 && minor >= 17)) return {Grade::ok, "kernel", name.release, "", {}};
  return {Grade::fail, "kernel", name.release, "pollgap needs Linux 5.17 or later",
          ExitCode::kernel_lacks};
}

using Btf = std::unique_ptr<btf, void (*)(btf*)>;

Check type_information(const Btf& types) {
  if (types) return {Grade::ok, "kernel type information", "/sys/kernel/btf/vmlinux", "", {}};
  return {Grade::fail, "kernel type information", "none",
          "use a kernel built with CONFIG_DEBUG_INFO_BTF", ExitCode::kernel_lacks};
}

// The BPF object itself says which tracepoints there are to attach to.
std::set<std::string> tracepoints_used() {
  constexpr std::string_view kPrefix = "tp_btf/";
  std::set<std::string> names;
  pollgap_bpf* object = pollgap_bpf::open();
  if (object == nullptr) return names;
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, object->obj) {
    const std::string_view section = bpf_program__section_name(program);
    if (section.starts_with(kPrefix)) names.emplace(section.substr(kPrefix.size()));
  }
  pollgap_bpf::destroy(object);
  return names;
}

Check tracepoints(const Btf& types) {
  if (!types)
    return {Grade::fail, "tracepoints", "not known without type information", "see above",
            ExitCode::kernel_lacks};
  std::vector<std::string> missing;
  const auto used = tracepoints_used();
  for (const std::string& name : used)
    if (btf__find_by_name_kind(types.get(), ("btf_trace_" + name).c_str(), BTF_KIND_TYPEDEF) < 0)
      missing.push_back(name);
  if (missing.empty())
    return {Grade::ok, "tracepoints", fmt::format("all {} that pollgap uses", used.size()), "", {}};
  return {
      Grade::warn, "tracepoints",
      fmt::format("{} of {} missing: {}", missing.size(), used.size(), fmt::join(missing, ", ")),
      "time that they would have shown is unexplained; a kernel with them configured shows it",
      ExitCode::done};
}

Check capability(unsigned number, const char* name, const char* purpose, Grade without) {
  if (has_capability(number)) return {Grade::ok, name, "held", "", {}};
  return {without, name, "not held",
          fmt::format("{}: run as root, or add it to the service or container", purpose),
          without == Grade::fail ? ExitCode::no_privilege : ExitCode::done};
}

// Loads the least program of the kind that pollgap uses: a tracepoint's, with type information.
// 0, or a negative errno.
int try_tracing_program() {
  const int type = libbpf_find_vmlinux_btf_id("sched_switch", BPF_TRACE_RAW_TP);
  if (type < 0) return type;
  constexpr bpf_insn kReturnZero[] = {
      {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .src_reg = 0, .off = 0, .imm = 0},
      {.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0}};
  LIBBPF_OPTS(bpf_prog_load_opts, options, .expected_attach_type = BPF_TRACE_RAW_TP,
              .attach_btf_id = static_cast<uint32_t>(type));
  const FileDescriptor program(bpf_prog_load(BPF_PROG_TYPE_TRACING, "pollgap_doctor", "GPL",
                                             kReturnZero, std::size(kReturnZero), &options));
  return program ? 0 : -errno;
}

int try_ring_buffer() {
  const auto bytes = static_cast<uint32_t>(sysconf(_SC_PAGESIZE));
  const FileDescriptor map(
      bpf_map_create(BPF_MAP_TYPE_RINGBUF, "pollgap_doctor", 0, 0, bytes, nullptr));
  return map ? 0 : -errno;
}

Check bpf_feature(const char* name, int error) {
  if (error == 0) return {Grade::ok, name, "works", "", {}};
  const bool privilege = error == -EPERM && !has_capability(CAP_BPF);
  if (privilege)
    return {Grade::fail, name, "cannot be tried without CAP_BPF", "run pollgap doctor as root",
            ExitCode::no_privilege};
  return {
      Grade::fail, name, fmt::format("refused by the kernel: {}", std::strerror(-error)),
      "use a kernel with CONFIG_BPF_EVENTS and the BPF JIT; a security module or seccomp profile "
      "may forbid bpf()",
      ExitCode::kernel_lacks};
}

Check uprobes() {
  const std::string type = first_line("/sys/bus/event_source/devices/uprobe/type");
  if (!type.empty()) return {Grade::ok, "uprobes", "works", "", {}};
  return {Grade::fail, "uprobes", "the kernel has none",
          "use a kernel built with CONFIG_UPROBE_EVENTS, and mount sysfs", ExitCode::kernel_lacks};
}

Check lockdown() {
  const std::string line = first_line("/sys/kernel/security/lockdown");
  if (line.find("[confidentiality]") != std::string::npos)
    return {Grade::fail, "kernel lockdown", "confidentiality: BPF may not read kernel memory",
            "boot with lockdown=integrity or none", ExitCode::kernel_lacks};
  return {Grade::ok, "kernel lockdown", line.empty() ? "not active" : line, "", {}};
}

Check perf_paranoia() {
  const std::string value = first_line("/proc/sys/kernel/perf_event_paranoid");
  const bool matters = !has_capability(CAP_PERFMON) && !has_capability(CAP_SYS_ADMIN);
  if (!matters)
    return {Grade::ok, "perf_event_paranoid", value + ", without effect given CAP_PERFMON", "", {}};
  return {
      Grade::warn, "perf_event_paranoid", value, "uprobes need CAP_PERFMON whatever its value", {}};
}

Check kernel_symbols() {
  std::ifstream file("/proc/kallsyms");
  std::string address;
  while (file >> address) {
    if (address.find_first_not_of('0') != std::string::npos)
      return {Grade::ok, "kernel symbols", "readable", "", {}};
    std::getline(file, address);  // the first are per-CPU variables, at offsets from 0
  }
  return {Grade::warn,
          "kernel symbols",
          "/proc/kallsyms shows no addresses",
          "work functions and wait stacks stay without names: give CAP_SYSLOG and set "
          "kernel.kptr_restrict=1 or 0",
          {}};
}

Check without_hypervisor() {
  const Result<SmiEvent> smis = find_smi_event();
  if (smis) return {Grade::ok, "stolen time", "no hypervisor; SMIs are counted", "", {}};
  return {Grade::warn,
          "stolen time",
          fmt::format("no hypervisor; SMIs are not counted ({})", smis.error().message),
          "time that the firmware takes shows as unexplained: compare with rtla hwnoise on a core "
          "that does not poll",
          {}};
}

Check steal() {
  switch (steal_clock()) {
    case StealClock::none_needed:
      return without_hypervisor();
    case StealClock::counts:
      return {Grade::ok, "stolen time", "the hypervisor's steal clock counts", "", {}};
    case StealClock::silent:
      break;
  }
  return {Grade::warn,
          "stolen time",
          "under a hypervisor whose steal clock never advanced",
          "time that the hypervisor takes shows as unexplained; ask for paravirtual steal time "
          "(KVM: kvm-steal-time), or see the hypervisor's own accounting",
          {}};
}

// ---- settings that make gaps ----

Check numa_balancing() {
  const std::string value = first_line("/proc/sys/kernel/numa_balancing");
  if (value.empty() || value == "0") return {Grade::ok, "NUMA balancing", "off", "", {}};
  const auto nodes = parse_cpu_list(first_line("/sys/devices/system/node/online"));
  if (nodes && nodes->size() < 2)
    return {Grade::ok, "NUMA balancing", "on, without effect on one node", "", {}};
  return {Grade::warn,
          "NUMA balancing",
          "on: it scans memory in the polling threads themselves",
          "sysctl -w kernel.numa_balancing=0",
          {}};
}

bool is_running(const std::string& comm) {
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator("/proc", failed))
    if (first_line(entry.path() / "comm") == comm) return true;
  return false;
}

Check irqbalance() {
  if (!is_running("irqbalance")) return {Grade::ok, "irqbalance", "not running", "", {}};
  return {Grade::warn,
          "irqbalance",
          "running: it may move interrupts to polling cores",
          "name the polling cores in IRQBALANCE_BANNED_CPULIST (/etc/default/irqbalance)",
          {}};
}

Check isolation() {
  const std::string isolated = first_line("/sys/devices/system/cpu/isolated");
  const std::string no_tick = first_line("/sys/devices/system/cpu/nohz_full");
  const bool ticks = no_tick.empty() || no_tick.find("null") != std::string::npos;
  if (!isolated.empty() && !ticks)
    return {
        Grade::ok, "isolated cores", fmt::format("{}; no tick on {}", isolated, no_tick), "", {}};
  return {Grade::warn,
          "isolated cores",
          fmt::format("{}{}", isolated.empty() ? "none" : isolated, ticks ? ", the tick runs" : ""),
          "for cores that only poll: boot with isolcpus=domain,managed_irq,LIST nohz_full=LIST "
          "rcu_nocbs=LIST",
          {}};
}

Check timer_migration() {
  const bool isolated = !first_line("/sys/devices/system/cpu/isolated").empty();
  if (!isolated || first_line("/proc/sys/kernel/timer_migration") != "1")
    return {Grade::ok, "timer migration", "harmless here", "", {}};
  return {Grade::warn,
          "timer migration",
          "on: idle cores' timers may move to a busy polling core",
          "sysctl -w kernel.timer_migration=0",
          {}};
}

Check governor() {
  std::set<std::string> governors;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator("/sys/devices/system/cpu/cpufreq", failed))
    governors.insert(first_line(entry.path() / "scaling_governor"));
  governors.erase("");
  if (governors.empty()) return {Grade::ok, "frequency governor", "none", "", {}};
  const std::string found = fmt::format("{}", fmt::join(governors, ", "));
  if (governors == std::set<std::string>{"performance"})
    return {Grade::ok, "frequency governor", found, "", {}};
  return {Grade::warn, "frequency governor", found, "cpupower frequency-set -g performance", {}};
}

// Deeper idle states take this long to leave; only a consumer that sleeps for events goes there.
Check idle_states() {
  constexpr int kSlowUs = 100;
  const fs::path directory = "/sys/devices/system/cpu/cpu0/cpuidle";
  std::error_code failed;
  int slowest_us = 0;
  for (const auto& state : fs::directory_iterator(directory, failed)) {
    if (first_line(state.path() / "disable") == "1") continue;
    std::ifstream file(state.path() / "latency");
    int latency_us = 0;
    if (file >> latency_us) slowest_us = std::max(slowest_us, latency_us);
  }
  const std::string found = fmt::format("up to {} us to leave", slowest_us);
  if (slowest_us < kSlowUs) return {Grade::ok, "idle states", found, "", {}};
  return {Grade::warn,
          "idle states",
          found,
          "delays consumers that sleep for completion events, never pollers: cpupower idle-set -D "
          "10",
          {}};
}

Check rt_throttling() {
  const std::string runtime = first_line("/proc/sys/kernel/sched_rt_runtime_us");
  return {Grade::ok,
          "real-time throttling",
          runtime == "-1" ? "off" : fmt::format("{} us a period for real-time tasks", runtime),
          "",
          {}};
}

Check agent_core() {
  const auto online = parse_cpu_list(first_line("/sys/devices/system/cpu/online"));
  if (!online || online->size() > 1)
    return {Grade::ok, "a core for pollgap", "there is one", "", {}};
  return {Grade::warn,
          "a core for pollgap",
          "one CPU only: pollgap has to share it with the poller",
          "expect gaps of cause 'agent'",
          {}};
}

int silent(libbpf_print_level, const char*, va_list) { return 0; }

}  // namespace

std::vector<Check> check_machine() {
  libbpf_set_print(silent);
  const Btf types(btf__load_vmlinux_btf(), btf__free);
  return {
      kernel_version(),
      type_information(types),
      tracepoints(types),
      capability(CAP_BPF, "CAP_BPF", "loading BPF programs needs it", Grade::fail),
      capability(CAP_PERFMON, "CAP_PERFMON", "tracing needs it", Grade::fail),
      capability(CAP_SYS_PTRACE, "CAP_SYS_PTRACE", "reading the target's memory needs it",
                 Grade::fail),
      capability(CAP_SYSLOG, "CAP_SYSLOG", "names of kernel functions need it", Grade::warn),
      bpf_feature("BPF tracing programs", try_tracing_program()),
      bpf_feature("BPF ring buffer", try_ring_buffer()),
      uprobes(),
      lockdown(),
      perf_paranoia(),
      kernel_symbols(),
      steal(),
      agent_core(),
      isolation(),
      irqbalance(),
      timer_migration(),
      numa_balancing(),
      governor(),
      idle_states(),
      rt_throttling(),
  };
}

}  // namespace pollgap
