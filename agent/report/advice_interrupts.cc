// SPDX-License-Identifier: Apache-2.0
// Advice where interrupts took the polling thread's CPU.
#include <fmt/format.h>

#include "agent/report/advice_rules.h"

namespace pollgap::advice {
namespace {

std::string irq_label(const Detail& detail) {
  return detail.action.empty() ? fmt::format("interrupt {}", *detail.irq)
                               : fmt::format("interrupt {} ({})", *detail.irq, detail.action);
}

void move_irq(const Detail& detail, const Context& context, Sentences& out) {
  const std::string others = other_cpus(context);
  if (!detail.irq || others.empty()) return;
  out.push_back(fmt::format(
      "Move {} off CPU {}: echo {} > /proc/irq/{}/smp_affinity_list (a managed interrupt refuses: "
      "boot with isolcpus=managed_irq,domain,{})",
      irq_label(detail), context.gap.cpu, others, *detail.irq, context.gap.cpu));
  out.push_back(
      fmt::format("Where irqbalance runs, keep it from moving it back: "
                  "IRQBALANCE_BANNED_CPULIST={} in /etc/default/irqbalance, then "
                  "systemctl restart irqbalance",
                  context.gap.cpu));
}

bool contains(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    if (text.find(part) != std::string::npos) return true;
  return false;
}

// Functions that other CPUs ask this one to run, and what makes them ask.
std::string ipi_reason(const std::string& callback) {
  if (contains(callback, {"flush_tlb", "tlb_flush"}))
    return "TLB shootdowns come from threads of the same process that unmap or protect memory "
           "(munmap, mprotect, madvise): keep and reuse the memory, and let malloc keep it "
           "(MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_ large).";
  if (contains(callback, {"ipi_mb", "ipi_sync_core", "ipi_rseq", "membarrier"}))
    return "membarrier(MEMBARRIER_CMD_*_EXPEDITED) was called by a thread of the same process: use "
           "fences, or keep the caller rare.";
  if (contains(callback, {"do_sync_core", "text_poke"}))
    return "Kernel code was patched (tracing, BPF, static keys): do not attach tracers while it "
           "matters.";
  if (contains(callback, {"rdmsr", "wrmsr", "aperfmperf"}))
    return "A monitor reads this CPU's registers (turbostat, /proc/cpuinfo, scaling_cur_freq): "
           "take "
           "this CPU out of it.";
  if (contains(callback, {"remote_function", "perf_", "event_function"}))
    return "perf events were set up on this CPU: leave it out of system-wide profiling.";
  return {};
}

void inter_processor(const Detail& detail, Sentences& out) {
  if (const std::string reason = ipi_reason(detail.callback); !reason.empty())
    out.push_back(reason);
  if (detail.sender)
    out.push_back(
        fmt::format("The interrupts were sent by {}: find out what it does with ps -Lp {}",
                    task_name(*detail.sender), detail.sender->pid));
}

}  // namespace

void hard_irq(const Detail& detail, const Context& context, Sentences& out) {
  if (detail.irq) return move_irq(detail, context, out);
  if (detail.kind == "local_timer") {
    out.push_back(fmt::format(
        "Stop the tick on CPU {0}: boot with nohz_full={0}; timers armed by other CPUs stay away "
        "with sysctl -w kernel.timer_migration=0",
        context.gap.cpu));
  } else if (detail.kind == "thermal") {
    out.push_back(
        "The processor reached its temperature limit: check cooling and power limits "
        "(turbostat --show CPU,CoreTmp,PkgTmp).");
  } else if (detail.kind == "threshold" || detail.kind == "deferred_error") {
    out.push_back(
        "The processor reported corrected errors: ras-mc-ctl --summary, and have the "
        "memory or processor replaced.");
  } else {
    inter_processor(detail, out);
  }
}

void soft_irq(const Detail& detail, const Context& context, Sentences& out) {
  const uint32_t cpu = context.gap.cpu;
  const std::string others = other_cpus(context);
  if (detail.kind == "TIMER")
    out.push_back("Keep other CPUs' timers away: sysctl -w kernel.timer_migration=0");
  if (detail.kind == "HRTIMER")
    out.push_back(
        fmt::format("Timers armed on CPU {} expire there: move the task that arms them "
                    "(bpftrace -e 'tracepoint:timer:hrtimer_start /cpu == {}/ "
                    "{{ @[comm] = count(); }}').",
                    cpu, cpu));
  if (detail.kind == "SCHED")
    out.push_back(
        fmt::format("Take CPU {0} out of load balancing: boot with isolcpus=domain,{0}, or "
                    "use an isolated cpuset partition.",
                    cpu));
  if (detail.kind == "RCU")
    out.push_back(fmt::format("Move RCU callbacks off CPU {0}: boot with rcu_nocbs={0}.", cpu));
  if (detail.kind == "NET_RX" && !detail.irq && !others.empty())
    out.push_back(fmt::format(
        "Network packets were processed on CPU {}: see whose interrupt lands there (cat "
        "/proc/interrupts) and move it: echo {} > /proc/irq/N/smp_affinity_list; check "
        "/sys/class/net/*/queues/rx-*/rps_cpus, too.",
        cpu, others));
  if (detail.kind == "BLOCK" && !detail.irq)
    out.push_back(
        fmt::format("Block I/O completed on CPU {0}: do that I/O from another CPU, or let "
                    "completions stay where the interrupt is: echo 0 > "
                    "/sys/block/DISK/queue/rq_affinity",
                    cpu));
  move_irq(detail, context, out);
}

void nmi(const Detail&, const Context&, Sentences& out) {
  out.push_back(
      "Turn the NMI watchdog off (sysctl -w kernel.nmi_watchdog=0) and keep perf away from "
      "this CPU.");
}

}  // namespace pollgap::advice
