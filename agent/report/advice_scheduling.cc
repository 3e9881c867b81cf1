// SPDX-License-Identifier: Apache-2.0
// Advice where the polling thread was off the CPU.
#include <fmt/format.h>

#include "agent/report/advice_rules.h"
#include "agent/report/cpu_list.h"

namespace pollgap::advice {
namespace {

std::string isolate(const Context& context) {
  const uint32_t cpu = context.gap.cpu;
  return fmt::format(
      "Keep other tasks off CPU {0} for good: boot with isolcpus=domain,managed_irq,{0} "
      "nohz_full={0} rcu_nocbs={0}, or put the poller into a cgroup v2 cpuset with "
      "cpuset.cpus={0} and cpuset.cpus.partition=isolated.",
      cpu);
}

void kworker(const Detail& detail, const Context& context, Sentences& out) {
  const std::string work =
      detail.work_function.empty() ? "its work" : fmt::format("{}()", detail.work_function);
  const std::string others = other_cpus(context);
  if (detail.task->comm.starts_with("kworker/u")) {
    const auto cpus = parse_cpu_list(others);
    const std::string mask = cpus && !cpus->empty() ? format_cpu_mask(*cpus) : "MASK";
    if (!others.empty())
      out.push_back(
          fmt::format("Keep unbound kernel work ({}) off CPU {}: echo {} > "
                      "/sys/devices/virtual/workqueue/cpumask",
                      work, context.gap.cpu, mask));
    return;
  }
  if (detail.work_function == "vmstat_update") {
    out.push_back(
        "vmstat_update runs on every CPU each vm.stat_interval seconds: sysctl -w "
        "vm.stat_interval=120, and nohz_full keeps it off idle-tick CPUs.");
    return;
  }
  out.push_back(
      fmt::format("{} is bound to CPU {}: work that this CPU itself queued. Find who queues {}: "
                  "trace-cmd record "
                  "-e workqueue:workqueue_queue_work -M {:x} sleep 10",
                  detail.task->comm, context.gap.cpu, work, uint64_t{1} << (context.gap.cpu % 64)));
}

// "irq/36-virtio1" is the thread of interrupt 36 and goes where that interrupt goes.
std::string threaded_irq(const std::string& comm) {
  const size_t dash = comm.find('-');
  if (!comm.starts_with("irq/") || dash == std::string::npos) return {};
  return comm.substr(4, dash - 4);
}

// Kernel threads that are made one for each CPU and cannot be moved.
bool is_per_cpu_thread(const std::string& comm) {
  for (const char* prefix : {"migration/", "ksoftirqd/", "cpuhp/", "rcuc/", "idle_inject/"})
    if (comm.starts_with(prefix)) return true;
  return false;
}

bool kernel_thread(const Detail& detail, const Context& context, Sentences& out) {
  const std::string& comm = detail.task->comm;
  const uint32_t cpu = context.gap.cpu;
  if (comm.starts_with("kworker/")) {
    kworker(detail, context, out);
    return true;
  }
  if (const std::string irq = threaded_irq(comm); !irq.empty()) {
    if (const std::string others = other_cpus(context); !others.empty())
      out.push_back(fmt::format(
          "{} follows its interrupt: echo {} > /proc/irq/{}/smp_affinity_list", comm, others, irq));
    return true;
  }
  if (comm.starts_with("rcu")) {
    out.push_back(fmt::format("Move RCU callbacks off CPU {0}: boot with rcu_nocbs={0}.", cpu));
    return !comm.starts_with("rcu_");  // rcu_preempt and the like can be moved, too
  }
  if (comm.starts_with("ksoftirqd/")) {
    out.push_back(
        fmt::format("See which softirq grows on CPU {} (watch -n1 -d cat /proc/softirqs) "
                    "and move the interrupt that raises it.",
                    cpu));
    return true;
  }
  if (is_per_cpu_thread(comm)) {
    out.push_back(isolate(context));
    return true;
  }
  if (comm.starts_with("kcompactd")) out.push_back("sysctl -w vm.compaction_proactiveness=0");
  if (comm == "khugepaged")
    out.push_back("echo 0 > /sys/kernel/mm/transparent_hugepage/khugepaged/defrag");
  return false;
}

std::string v2_quota_command(const std::string& cgroup) {
  return fmt::format("echo max > /sys/fs/cgroup{}/cpu.max", cgroup);
}
std::string v1_quota_command(const std::string& cgroup) {
  return fmt::format("echo -1 > /sys/fs/cgroup/cpu{}/cpu.cfs_quota_us", cgroup);
}

void cfs_quota(const Detail& detail, const Context& context, Sentences& out) {
  if (detail.cgroup.empty()) return;
  const std::string path =
      detail.cgroup.starts_with('/') ? detail.cgroup : fmt::format("/{}", detail.cgroup);
  std::string command = v2_quota_command(path);
  if (context.host.cgroup_version == 1) command = v1_quota_command(path);
  if (context.host.cgroup_version == 0)
    command += fmt::format(" (cgroup v2) or {} (v1)", v1_quota_command(path));
  out.push_back(fmt::format("Lift the CPU quota of cgroup {}: {}", path, command));
  if (path.find("kubepods") != std::string::npos)
    out.push_back(
        "In Kubernetes, drop the container's CPU limit, or use the static CPU manager policy with "
        "whole CPUs and requests equal to limits and cpuCFSQuota off.");
  else if (path.ends_with(".service") || path.ends_with(".slice") || path.ends_with(".scope"))
    out.push_back(fmt::format("To keep it so: systemctl set-property {} CPUQuota=",
                              path.substr(path.rfind('/') + 1)));
}

std::string call_site(const Detail& detail) {
  for (const Frame& frame : detail.user_stack) {
    if (frame.function.empty()) continue;
    if (frame.file.empty()) continue;
    return fmt::format(" in {} at {}:{}", frame.function, frame.file, frame.line);
  }
  for (const Frame& frame : detail.user_stack)
    if (!frame.function.empty()) return fmt::format(" in {}", frame.function);
  return {};
}

bool is_one_of(const std::string& name, std::initializer_list<const char*> names) {
  for (const char* candidate : names)
    if (name == candidate) return true;
  return false;
}

}  // namespace

std::string other_cpus(const Context& context) {
  const auto online = parse_cpu_list(context.host.online_cpus);
  if (!online || online->empty()) return "LIST";
  CpuSet others = *online;
  others.erase(context.gap.cpu);
  return format_cpu_list(others);
}

std::string task_name(const TaskRef& task) {
  if (task.pid == task.tid || task.tid == 0) return fmt::format("{} (pid {})", task.comm, task.pid);
  return fmt::format("{} (pid {}, tid {})", task.comm, task.pid, task.tid);
}

void preemption(const Detail& detail, const Context& context, Sentences& out) {
  if (!detail.task) return;
  if (kernel_thread(detail, context, out)) return;
  if (const std::string others = other_cpus(context); !others.empty())
    out.push_back(fmt::format("Move {} off CPU {}: taskset -apc {} {}", task_name(*detail.task),
                              context.gap.cpu, others, detail.task->pid));
  if (detail.rt_priority)
    out.push_back(fmt::format("It outranks the poller as {} {}; where it need not: chrt -o -p 0 {}",
                              detail.policy.empty() ? "a real-time task" : detail.policy,
                              *detail.rt_priority, detail.task->tid));
  out.push_back(isolate(context));
}

void throttled(const Detail& detail, const Context& context, Sentences& out) {
  if (detail.throttle == "cfs_quota") cfs_quota(detail, context, out);
  if (detail.throttle == "rt_runtime")
    out.push_back(
        "The poller is a real-time task that never sleeps, and the kernel stops it after "
        "kernel.sched_rt_runtime_us of each period: run it as SCHED_OTHER on an isolated CPU, or "
        "sysctl -w kernel.sched_rt_runtime_us=-1 (ordinary tasks of that CPU then starve).");
  if (detail.throttle == "dl_runtime")
    out.push_back(fmt::format(
        "The poller used up its SCHED_DEADLINE runtime: give it a larger share of its period (chrt "
        "-d --sched-runtime NS --sched-period NS -p 0 {}), or run it as SCHED_OTHER on an isolated "
        "CPU.",
        context.gap.tid));
  if (detail.throttle == "fair_server")
    out.push_back(fmt::format(
        "The fair server lends ordinary tasks time on CPU {0} while a real-time task spins there: "
        "move them away, or echo 0 > /sys/kernel/debug/sched/fair_server/cpu{0}/runtime",
        context.gap.cpu));
}

void stopped(const Detail& detail, const Context& context, Sentences& out) {
  if (detail.kind == "ptrace")
    out.push_back(fmt::format("A tracer stopped it; see which: grep TracerPid /proc/{}/status",
                              context.gap.tid));
  if (detail.kind == "signal" && detail.task)
    out.push_back(fmt::format("{} came from {}: keep it from signalling the poller.",
                              detail.signal.empty() ? "The stop signal" : detail.signal,
                              task_name(*detail.task)));
  if (detail.kind == "freezer")
    out.push_back(detail.cgroup.empty()
                      ? fmt::format("Find the frozen cgroup: cat /proc/{}/cgroup, then its "
                                    "cgroup.freeze; a container pause or a suspend sets it.",
                                    context.gap.tid)
                      : fmt::format("echo 0 > /sys/fs/cgroup{}/cgroup.freeze; a container pause or "
                                    "a suspend sets it.",
                                    detail.cgroup));
}

void blocked(const Detail& detail, const Context& context, Sentences& out) {
  const std::string site = call_site(detail);
  if (!detail.fault.empty()) {
    out.push_back(
        "It slept in a page fault: lock its memory with mlockall(MCL_CURRENT | MCL_FUTURE), or map "
        "with MAP_POPULATE before polling.");
    return;
  }
  if (context.gap.waited_for_event) {
    out.push_back(
        "It waited for a completion event (ibv_get_cq_event): to have the latency of polling, poll "
        "for some microseconds before arming the CQ and sleeping.");
    return;
  }
  if (detail.syscall.empty()) return;
  if (is_one_of(detail.syscall, {"nanosleep", "clock_nanosleep"})) {
    out.push_back(
        fmt::format("The poll loop sleeps by itself: {}(){}. Take the sleep out, or spin; "
                    "prctl(PR_SET_TIMERSLACK, 1) only trims the overshoot.",
                    detail.syscall, site));
  } else if (detail.syscall == "futex") {
    const std::string waker = detail.woken_by && detail.woken_by->context == "task"
                                  ? fmt::format("; {} let it go", task_name(detail.woken_by->task))
                                  : std::string();
    out.push_back(
        fmt::format("It waited for a lock or condition{}{}: take no contended lock on the "
                    "polling thread.",
                    site, waker));
  } else {
    out.push_back(fmt::format("{}(){} sleeps: call it from another thread than the poller.",
                              detail.syscall, site));
  }
}

void stolen(const Detail& detail, const Context& context, Sentences& out) {
  if (detail.kind == "smi") {
    out.push_back(fmt::format(
        "The firmware took it, in system management interrupts (SMIs). How often they "
        "come: turbostat --quiet --show CPU,SMI. How long they take, when nothing polls "
        "there: rtla hwnoise -c {} -d 1m",
        context.gap.cpu));
    out.push_back(
        "Turn their sources off in the firmware setup: power management and capping by the "
        "firmware "
        "(choose its profile for performance, or control by the system), polling for corrected "
        "memory errors, thermal reporting, USB legacy support. The vendor's guide for low latency "
        "names the settings.");
    return;
  }
  out.push_back(
      fmt::format("On the hypervisor, give this virtual CPU a core of its own (virsh vcpupin "
                  "DOMAIN {} CORE), or "
                  "take an instance with dedicated cores.",
                  context.gap.cpu));
}

}  // namespace pollgap::advice
