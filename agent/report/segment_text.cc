// SPDX-License-Identifier: Apache-2.0
#include "agent/report/segment_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "agent/report/duration.h"
#include "agent/report/escape.h"

namespace pollgap {
namespace {

std::string task_text(const TaskRef& task) {
  if (task.pid == task.tid || task.tid == 0) return fmt::format("{} (pid {})", task.comm, task.pid);
  return fmt::format("{} (pid {}, tid {})", task.comm, task.pid, task.tid);
}

std::string waker_text(const Waker& waker) {
  if (waker.context == "softirq" || waker.context == "hard_irq")
    return fmt::format("woken from a {}", waker.context);
  return fmt::format("woken by {}", task_text(waker.task));
}

using Parts = std::vector<std::string>;

void add_task(const Detail& detail, Parts& parts) {
  if (detail.task) parts.push_back(task_text(*detail.task));
  if (!detail.policy.empty())
    parts.push_back(detail.rt_priority ? fmt::format("{} {}", detail.policy, *detail.rt_priority)
                                       : detail.policy);
  if (!detail.work_function.empty()) parts.push_back(fmt::format("work {}", detail.work_function));
  if (!detail.cgroup.empty()) parts.push_back(fmt::format("cgroup {}", detail.cgroup));
  if (detail.woken_by) parts.push_back(waker_text(*detail.woken_by));
}

void add_throttle(const Detail& detail, Parts& parts) {
  if (!detail.throttle.empty()) parts.push_back(detail.throttle);
  if (detail.quota_ns != 0 && detail.period_ns != 0)
    parts.push_back(fmt::format("{} of each {}", duration_text(detail.quota_ns),
                                duration_text(detail.period_ns)));
  if (!detail.signal.empty()) parts.push_back(detail.signal);
}

void add_interrupt(const Detail& detail, Parts& parts) {
  if (detail.irq) parts.push_back(fmt::format("irq {} {}", *detail.irq, detail.action));
  if (!detail.device.empty()) parts.push_back(fmt::format("device {}", detail.device));
  if (!detail.vector.empty()) parts.push_back(fmt::format("vector {}", detail.vector));
  if (!detail.rdma_device.empty())
    parts.push_back(fmt::format("RDMA adapter {}{}", detail.rdma_device,
                                detail.target_uses_adapter ? ", which the target uses" : ""));
  if (!detail.affinity.empty()) parts.push_back(fmt::format("affinity {}", detail.affinity));
  if (!detail.callback.empty()) parts.push_back(fmt::format("to run {}", detail.callback));
  if (detail.sender) parts.push_back(fmt::format("sent by {}", task_text(*detail.sender)));
}

void add_own_work(const Detail& detail, Parts& parts) {
  if (!detail.syscall.empty()) parts.push_back(fmt::format("{}()", detail.syscall));
  if (!detail.fault.empty()) parts.push_back(fmt::format("{} page fault", detail.fault));
  if (detail.address) parts.push_back(fmt::format("at {:#x}", *detail.address));
  if (!detail.verb.empty()) parts.push_back(fmt::format("{}()", detail.verb));
  if (detail.bytes != 0) parts.push_back(fmt::format("{} bytes", detail.bytes));
  if (detail.result) parts.push_back(fmt::format("returned {}", *detail.result));
  if (!detail.user_stack.empty())
    parts.push_back(fmt::format("in {}", describe(detail.user_stack.front())));
  if (!detail.kernel_stack.empty())
    parts.push_back(fmt::format("waiting in {}", describe(detail.kernel_stack.front())));
  if (detail.samples != 0) parts.push_back(fmt::format("{} samples", detail.samples));
}

void add_completions(const Detail& detail, Parts& parts) {
  if (detail.error_completions != 0)
    parts.push_back(fmt::format("{} error completions", detail.error_completions));
  if (!detail.reason.empty()) parts.push_back(fmt::format("reason {}", detail.reason));
  if (detail.outstanding != 0)
    parts.push_back(fmt::format("{} signaled sends outstanding", detail.outstanding));
  if (detail.polls != 0) parts.push_back(fmt::format("{} polls", detail.polls));
}

}  // namespace

std::string describe(const Frame& frame) {
  std::string text;
  if (!frame.function.empty() && !frame.file.empty())
    text = fmt::format("{} at {}:{}", frame.function, frame.file, frame.line);
  else if (!frame.function.empty())
    text = frame.function;
  else if (!frame.module.empty())
    text = fmt::format("{}+{:#x}", frame.module, frame.module_offset);
  else
    text = fmt::format("{:#x}", frame.address);
  return terminal_escaped(text);
}

std::string describe(const Segment& segment) {
  const Detail& detail = segment.detail;
  Parts parts;
  if (!detail.kind.empty() && detail.fault.empty()) parts.push_back(detail.kind);
  add_task(detail, parts);
  add_throttle(detail, parts);
  add_interrupt(detail, parts);
  add_own_work(detail, parts);
  add_completions(detail, parts);
  if (detail.count > 1) parts.push_back(fmt::format("{} times", detail.count));
  if (detail.upper_bound) parts.push_back("an upper bound");
  if (!detail.note.empty()) parts.push_back(detail.note);
  return terminal_escaped(fmt::format("{}", fmt::join(parts, ", ")));
}

}  // namespace pollgap
