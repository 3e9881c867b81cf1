// SPDX-License-Identifier: Apache-2.0
// The verdict in words: one line for a person.
#include <fmt/format.h>

#include "agent/ledger/detail.h"
#include "agent/ledger/verdict.h"

namespace pollgap {
namespace {

using Culprits = std::span<const CulpritDetail>;

// "0000:3b:00.0, completion 3 of RDMA adapter mlx5_0, which this process uses"; empty: not known
std::string device_of(const Detail& detail) {
  std::string text = detail.device;
  if (!detail.vector.empty()) {
    text += (text.empty() ? "" : ", ") + detail.vector;
  }
  if (!detail.rdma_device.empty()) {
    text += (detail.vector.empty() ? ", of RDMA adapter " : " of RDMA adapter ") +
            detail.rdma_device + (detail.target_uses_adapter ? ", which this process uses" : "");
  }
  return text;
}

// "a/1 1.9 ms, b/2 1.2 ms and 3 more"; an RDMA adapter's interrupt says whose it is
std::string listed(Culprits culprits) {
  constexpr size_t kListed = 4;
  std::string text;
  for (size_t i = 0; i < culprits.size() && i < kListed; ++i) {
    const Detail& detail = culprits[i].detail;
    const bool of_adapter = !detail.vector.empty() || !detail.rdma_device.empty();
    text += fmt::format("{}{}{} {}", i == 0 ? "" : ", ", culprits[i].culprit.name,
                        of_adapter ? " (" + device_of(detail) + ")" : "",
                        format_duration(culprits[i].culprit.total_ns));
  }
  if (culprits.size() > kListed) {
    text += fmt::format(" and {} more", culprits.size() - kListed);
  }
  return text;
}

std::string times(uint64_t count) { return count > 1 ? fmt::format(" ({} times)", count) : ""; }

// ", woken by pollgap-workload/800"
std::string woken_by(const Detail& detail) {
  if (!detail.woken_by) {
    return "";
  }
  const Waker& waker = *detail.woken_by;
  if (waker.context == "softirq") {
    return ", woken from a softirq";
  }
  if (waker.context == "hard_irq") {
    return ", woken from a hard interrupt";
  }
  return ", woken by " + (waker.task.tid == 0 ? "the idle task" : task_name(waker.task));
}

// "main() at loop.cc:12", "0x5500 in libfoo.so+0x12"
std::string place(const Frame& frame) {
  std::string text = frame.function.empty() ? hex(frame.address) : frame.function + "()";
  if (!frame.file.empty()) {
    text += fmt::format(" at {}:{}", frame.file, frame.line);
  } else if (!frame.module.empty()) {
    text += fmt::format(" in {}+{:#x}", frame.module, frame.module_offset);
  }
  return text;
}

std::string called_from(const Detail& detail) {
  return detail.user_stack.empty() ? "" : ", called from " + place(detail.user_stack.front());
}

// "pg-fifo-hog (pid 812, SCHED_FIFO 50)"
std::string task_with_policy(const Detail& detail) {
  const TaskRef& task = *detail.task;
  const std::string thread = task.tid == task.pid ? "" : fmt::format("tid {}, ", task.tid);
  const std::string priority = detail.rt_priority ? fmt::format(" {}", *detail.rt_priority) : "";
  return fmt::format("{} ({}pid {}, {}{})", task.comm, thread, task.pid, detail.policy, priority);
}

// "36 virtio1-req.0 (0000:00:02.0)"
std::string numbered(const Detail& detail) {
  const std::string device = device_of(detail);
  return fmt::format("{}{}{}", *detail.irq, detail.action.empty() ? "" : " " + detail.action,
                     device.empty() ? "" : " (" + device + ")");
}

std::string preemption(uint64_t ns, Culprits culprits) {
  const Detail& first = culprits.front().detail;
  if (culprits.size() > 1 || !first.task) {
    return fmt::format("preempted {} by {} tasks: {}", format_duration(ns), culprits.size(),
                       listed(culprits));
  }
  const std::string work =
      first.work_function.empty() ? "" : ", running the work item " + first.work_function;
  const std::string handler =
      first.irq ? ", which handles hard interrupt " + numbered(first) : std::string();
  return fmt::format("preempted {} by {}{}{}{}", format_duration(ns), task_with_policy(first), work,
                     handler, woken_by(first));
}

std::string instead(Culprits culprits) {
  for (const CulpritDetail& entry : culprits) {
    if (entry.detail.task) {
      return fmt::format("; {} ran instead",
                         entry.detail.task->tid == 0 ? "nothing" : task_name(*entry.detail.task));
    }
  }
  return "";
}

std::string throttled(uint64_t ns, Culprits culprits) {
  const Detail& first = culprits.front().detail;
  const std::string duration = format_duration(ns);
  if (first.throttle == "cfs_quota") {
    const std::string limit = first.period_ns == 0
                                  ? ""
                                  : fmt::format(" of {} per {}", format_duration(first.quota_ns),
                                                format_duration(first.period_ns));
    return fmt::format("throttled {}: cgroup {} used up its CFS quota{}", duration,
                       first.cgroup.empty() ? "(unknown)" : first.cgroup, limit);
  }
  if (first.throttle == "fair_server") {
    return fmt::format(
        "throttled {}: real-time tasks had used up CPU {}, and the kernel's fair server lent it "
        "to ordinary tasks{}",
        duration, culprits.front().cpu, instead(culprits));
  }
  if (first.throttle == "dl_runtime") {
    return fmt::format("throttled {}: the thread used up its SCHED_DEADLINE runtime{}", duration,
                       instead(culprits));
  }
  if (!first.cgroup.empty()) {
    return fmt::format("throttled {}: the real-time tasks of cgroup {} used up their {} per {}{}",
                       duration, first.cgroup, format_duration(first.quota_ns),
                       format_duration(first.period_ns), instead(culprits));
  }
  return fmt::format(
      "throttled {}: real-time tasks used up the runtime that kernel.sched_rt_runtime_us, or their "
      "cgroup's cpu.rt_runtime_us, allows them{}",
      duration, instead(culprits));
}

std::string stopped(uint64_t ns, const Detail& detail) {
  const std::string duration = format_duration(ns);
  if (detail.kind == "freezer") {
    return fmt::format("stopped {} by the cgroup freezer", duration);
  }
  if (detail.kind == "ptrace") {
    return fmt::format("stopped {} by a tracer (ptrace)", duration);
  }
  return fmt::format("stopped {} by {}{}", duration,
                     detail.signal.empty() ? "a signal" : detail.signal,
                     detail.task ? " from " + task_name(*detail.task) : "");
}

std::string blocked(uint64_t ns, Culprits culprits) {
  if (culprits.size() > 1) {
    return fmt::format("blocked {}: {}", format_duration(ns), listed(culprits));
  }
  const Detail& detail = culprits.front().detail;
  const std::string where = detail.syscall.empty() ? " in the kernel" : " in " + detail.syscall;
  const std::string wait = detail.kernel_stack.empty() || detail.kernel_stack[0].function.empty()
                               ? ""
                               : fmt::format(" ({})", detail.kernel_stack[0].function);
  return fmt::format("blocked {}{}{}{}{}{}", format_duration(ns), where, wait, times(detail.count),
                     called_from(detail), woken_by(detail));
}

// "hard interrupt 36 virtio1-req.0 (0000:00:02.0)", "local_timer interrupt"
std::string interrupt(const Detail& detail) {
  return detail.irq ? "hard interrupt " + numbered(detail) : detail.kind + " interrupt";
}

std::string hard_irq(uint64_t ns, Culprits culprits) {
  if (culprits.size() > 1) {
    return fmt::format("hard interrupts held CPU {} for {}: {}", culprits.front().cpu,
                       format_duration(ns), listed(culprits));
  }
  const Detail& detail = culprits.front().detail;
  return fmt::format("{} held CPU {} for {}{}{}{}{}", interrupt(detail), culprits.front().cpu,
                     format_duration(ns), times(detail.count),
                     detail.callback.empty() ? "" : " to run " + detail.callback,
                     detail.sender ? ", sent by " + task_name(*detail.sender) : "",
                     detail.affinity.empty() ? "" : "; affinity " + detail.affinity);
}

std::string soft_irq(uint64_t ns, Culprits culprits) {
  if (culprits.size() > 1) {
    return fmt::format("softirqs held CPU {} for {}: {}", culprits.front().cpu, format_duration(ns),
                       listed(culprits));
  }
  const Detail& detail = culprits.front().detail;
  const std::string where = detail.task ? " in " + task_name(*detail.task) : "";
  std::string raised;
  if (detail.irq) {
    raised = " after " + interrupt(detail);
  } else if (!detail.action.empty()) {
    raised = fmt::format(" after a {} interrupt", detail.action);
  }
  return fmt::format("softirq {}{} held CPU {} for {}{}{}", detail.kind, where,
                     culprits.front().cpu, format_duration(ns), times(detail.count), raised);
}

std::string self_kernel(uint64_t ns, Culprits culprits) {
  if (culprits.size() > 1) {
    return fmt::format("its own kernel work took {}: {}", format_duration(ns), listed(culprits));
  }
  const Detail& detail = culprits.front().detail;
  const std::string most = detail.upper_bound ? "at most " : "";
  if (detail.kind == "page_fault") {
    return fmt::format(
        "its own {}{} took {}{}{}{}", culprits.front().culprit.name, detail.count > 1 ? "s" : "",
        most, format_duration(ns), times(detail.count),
        detail.address.value_or(0) == 0 ? "" : ", at address " + hex(*detail.address));
  }
  return fmt::format("its own system call {} took {}{}{}{}", detail.syscall, most,
                     format_duration(ns), times(detail.count), called_from(detail));
}

std::string control_verb(uint64_t ns, Culprits culprits) {
  if (culprits.size() > 1) {
    return fmt::format("control verbs on the polling thread took {}: {}", format_duration(ns),
                       listed(culprits));
  }
  const Detail& detail = culprits.front().detail;
  return fmt::format("{} on the polling thread took {}{}{}", detail.verb, format_duration(ns),
                     times(detail.count),
                     detail.bytes == 0 ? "" : fmt::format(" for {} bytes", detail.bytes));
}

std::string samples(const Detail& detail) {
  return detail.samples == 0
             ? ""
             : fmt::format(" ({} sample{})", detail.samples, detail.samples == 1 ? "" : "s");
}

std::string because(const Detail& detail) { return detail.note.empty() ? "" : ": " + detail.note; }

std::string application(uint64_t ns, Culprits culprits) {
  if (culprits.size() > 1) {
    return fmt::format("the application ran {} outside the poll function: {}", format_duration(ns),
                       listed(culprits));
  }
  const Detail& detail = culprits.front().detail;
  const std::string where =
      detail.user_stack.empty() ? "" : " in " + place(detail.user_stack.front());
  return fmt::format("the application ran {} outside the poll function{}{}{}", format_duration(ns),
                     where, samples(detail), because(detail));
}

std::string poll_function(uint64_t ns, Culprits culprits) {
  const Detail& detail = culprits.front().detail;
  const std::string where =
      detail.user_stack.empty() ? "" : ", in " + place(detail.user_stack.front());
  const std::string errors =
      detail.error_completions == 0
          ? ""
          : fmt::format(", with {} error completions to handle", detail.error_completions);
  return fmt::format("on the CPU inside the poll function for {}{}{}{}{}", format_duration(ns),
                     where, errors, samples(detail), because(detail));
}

std::string unwritten(const Culprit& culprit) {
  return fmt::format(": by its timestamp the adapter had made it, and had not written it for {}",
                     format_duration(culprit.total_ns));
}

std::string late_completion(uint64_t ns, Culprits culprits) {
  const Detail& detail = culprits.front().detail;
  // Without a count of polls the CQ was looked at.
  const std::string polls =
      detail.polls == 0 ? "" : fmt::format(" of polling: {} polls", detail.polls);
  return fmt::format(
      "no completion arrived for {}{} with {} signaled send{} outstanding; reason {}{}",
      format_duration(ns), polls, detail.outstanding, detail.outstanding == 1 ? "" : "s",
      detail.reason,
      detail.reason == "cqe_write" ? unwritten(culprits.front().culprit) : because(detail));
}

std::string agent(uint64_t ns, Culprits culprits) {
  return fmt::format("pollgap itself took {}: {}", format_duration(ns), listed(culprits));
}

std::string unexplained(uint64_t ns, Culprits culprits) {
  if (culprits.size() > 1) {
    return fmt::format("unexplained {}: {}", format_duration(ns), listed(culprits));
  }
  return fmt::format("unexplained {}{}", format_duration(ns), because(culprits.front().detail));
}

}  // namespace

std::string format_duration(uint64_t ns) {
  if (ns < 1000) {
    return fmt::format("{} ns", ns);
  }
  const char* unit = "us";
  double value = static_cast<double>(ns) / 1e3;
  // Before rounding would carry it into the next unit.
  if (value >= 999.5) {
    value /= 1e3;
    unit = "ms";
  }
  if (value >= 999.5) {
    value /= 1e3;
    unit = "s";
  }
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, unit);
}

std::string describe(Cause cause, uint64_t cause_ns, Culprits culprits) {
  const Detail& first = culprits.front().detail;
  switch (cause) {
    case Cause::preemption:
      return preemption(cause_ns, culprits);
    case Cause::throttled:
      return throttled(cause_ns, culprits);
    case Cause::stopped:
      return stopped(cause_ns, first);
    case Cause::blocked:
      return blocked(cause_ns, culprits);
    case Cause::hard_irq:
      return hard_irq(cause_ns, culprits);
    case Cause::soft_irq:
      return soft_irq(cause_ns, culprits);
    case Cause::self_kernel:
      return self_kernel(cause_ns, culprits);
    case Cause::control_verb:
      return control_verb(cause_ns, culprits);
    case Cause::application:
      return application(cause_ns, culprits);
    case Cause::poll_function:
      return poll_function(cause_ns, culprits);
    case Cause::late_completion:
      return late_completion(cause_ns, culprits);
    case Cause::agent:
      return agent(cause_ns, culprits);
    case Cause::stolen:
      return fmt::format("stolen {}{}", format_duration(cause_ns), because(first));
    case Cause::nmi:
      return fmt::format("a non-maskable interrupt took {}", format_duration(cause_ns));
    case Cause::unexplained:
      break;
  }
  return unexplained(cause_ns, culprits);
}

}  // namespace pollgap
