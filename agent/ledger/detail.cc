// SPDX-License-Identifier: Apache-2.0
#include "agent/ledger/detail.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <csignal>

#include "agent/ledger/adapter_interrupt.h"
#include "agent/ledger/rules.h"
#include "agent/ledger/verdict.h"

namespace pollgap {
namespace {

std::string policy_name(uint32_t policy) {
  // include/uapi/linux/sched.h
  static constexpr const char* kNames[] = {"SCHED_OTHER",    "SCHED_FIFO", "SCHED_RR",
                                           "SCHED_BATCH",    "SCHED_ISO",  "SCHED_IDLE",
                                           "SCHED_DEADLINE", "SCHED_EXT"};
  return policy < std::size(kNames) ? kNames[policy] : fmt::format("policy {}", policy);
}

std::string softirq_name(uint32_t vector) {
  // include/linux/interrupt.h
  static constexpr const char* kNames[] = {"HI",       "TIMER",   "NET_TX", "NET_RX",  "BLOCK",
                                           "IRQ_POLL", "TASKLET", "SCHED",  "HRTIMER", "RCU"};
  return vector < std::size(kNames) ? kNames[vector] : fmt::format("{}", vector);
}

std::string signal_name(int signal) {
  switch (signal) {
    case SIGSTOP:
      return "SIGSTOP";
    case SIGTSTP:
      return "SIGTSTP";
    case SIGTTIN:
      return "SIGTTIN";
    case SIGTTOU:
      return "SIGTTOU";
    default:
      return fmt::format("signal {}", signal);
  }
}

std::optional<Waker> waker_of(const ev_waker& waker) {
  if (waker.at_ns == 0) {
    return std::nullopt;
  }
  static constexpr const char* kContexts[] = {"", "task", "softirq", "hard_irq"};
  return Waker{.task = {waker.tid, waker.pid, printable(waker.comm)},
               .context = waker.context < std::size(kContexts) ? kContexts[waker.context] : ""};
}

std::vector<Frame> frames_of(const ev_stack* stack, const Dictionary& names) {
  std::vector<Frame> frames;
  for (size_t i = 0; stack != nullptr && i < stack->frames; ++i) {
    frames.push_back(stack->role == EV_STACK_KERNEL ? names.kernel_frame(stack->ip[i])
                                                    : names.user_frame(stack->ip[i]));
  }
  return frames;
}

// Fills a Detail from the record behind an origin.
class DetailMaker {
 public:
  DetailMaker(const Account& account, const Origin& origin, Detail& detail)
      : account_(account), names_(account.names()), origin_(origin), detail_(detail) {}

  void operator()(std::monostate) {
    if (origin_.key.cause == Cause::stolen) {
      set_thief();
    }
  }

  void operator()(const ev_run* run) {
    detail_.task = {run->task.tid, run->task.pid, printable(run->task.comm)};
    if (origin_.key.cause == Cause::throttled) {
      set_throttle();
      return;
    }
    detail_.policy = policy_name(run->task.policy);
    detail_.priority = run->task.priority;
    const bool real_time = run->task.policy == SCHED_FIFO || run->task.policy == SCHED_RR;
    if (real_time && run->task.priority >= 0 && run->task.priority < 99) {  // else it is boosted
      detail_.rt_priority = 99 - run->task.priority;
    }
    detail_.cgroup = names_.cgroup(run->task.cgroup_id);
    detail_.woken_by = waker_of(run->waker);
    detail_.work_function = names_.kernel_function(origin_.work_function);
    const auto irq = threaded_interrupt(detail_.task->comm);
    if (irq && (run->task.flags & EV_TASK_KTHREAD) != 0) {
      set_interrupt(*irq, names_.interrupt(*irq).action);
    }
  }

  void operator()(const ev_irq* irq) {
    detail_.kind = interrupt_kind(irq->vector);
    detail_.callback = names_.kernel_function(irq->callback);
    if (irq->sender_tid != 0 || irq->sender_pid != 0) {
      detail_.sender = {irq->sender_tid, irq->sender_pid, printable(irq->sender_comm)};
    }
    if (irq->vector == EV_VECTOR_DEVICE) {
      set_interrupt(irq->irq, printable(irq->action));
    }
  }

  void operator()(const ev_softirq* softirq) {
    detail_.kind = softirq_name(softirq->vector);
    if (softirq->in_ksoftirqd != 0) {
      detail_.task = ksoftirqd(*softirq);
    }
    if (softirq->after_irq >= 0) {
      set_interrupt(softirq->after_irq, action_of(*softirq));
    } else if (softirq->after_vector != EV_VECTOR_DEVICE &&
               softirq->after_vector < EV_VECTOR_COUNT) {
      detail_.action = interrupt_kind(softirq->after_vector);
    }
  }

  void operator()(const OffCpu* off) {
    switch (origin_.key.cause) {
      case Cause::throttled:
        set_throttle();
        break;
      case Cause::stopped:
        set_stop(*off);
        break;
      case Cause::self_kernel:
        set_fault(static_cast<uint32_t>(origin_.key.a), off->fault_address);
        set_sleep(*off);
        break;
      default:
        if ((off->flags & EV_OFF_IN_SYSCALL) != 0) {
          detail_.syscall = names_.syscall(off->syscall_nr);
        }
        set_sleep(*off);
        break;
    }
  }

  void operator()(const SelfKernel* self) {
    if (self->type == EV_SELF_SYSCALL) {
      detail_.kind = "syscall";
      detail_.syscall = names_.syscall(self->syscall_nr);
    } else {
      set_fault(self->type, self->address);
    }
    detail_.upper_bound = (self->flags & EV_SELF_BOUND) != 0;
    detail_.user_stack = user_stack_of(self->stacks, self->user_ip);
  }

  void operator()(const ev_verb* verb) {
    detail_.verb = names_.verb(verb->verb);
    detail_.bytes = verb->bytes;
    detail_.result = verb->result;
  }

  void operator()(const Sample* sample) {
    detail_.user_stack = user_stack_of(sample->stacks, sample->user_ip);
  }

 private:
  void set_throttle() {
    const auto throttle = static_cast<Throttle>(origin_.key.a);
    static constexpr const char* kNames[] = {"cfs_quota", "rt_runtime", "fair_server",
                                             "dl_runtime"};
    detail_.throttle = kNames[origin_.key.a];
    if (const auto* off = std::get_if<const OffCpu*>(&origin_.source);
        off != nullptr && (throttle == Throttle::cfs_quota || throttle == Throttle::rt_runtime) &&
        (*off)->throttle_cgroup_id != 0) {
      detail_.cgroup = names_.cgroup((*off)->throttle_cgroup_id);
      detail_.quota_ns = (*off)->quota_ns;
      detail_.period_ns = (*off)->period_ns;
    }
  }

  void set_thief() {
    const uint32_t cpu = account_.gap().header.cpu;
    if (static_cast<Thief>(origin_.key.a) == Thief::hypervisor) {
      detail_.kind = "hypervisor";
      detail_.note = fmt::format("the steal clock of CPU {} advanced by {}", cpu,
                                 format_duration(account_.steal().ns));
      return;
    }
    const SmiEvidence& smis = account_.smis();
    detail_.kind = "smi";
    detail_.note =
        fmt::format("CPU {} counted {} SMI{}{}", cpu, smis.count, smis.count == 1 ? "" : "s",
                    smis.before_ns == 0
                        ? ""
                        : fmt::format(" since {} before the gap", format_duration(smis.before_ns)));
  }

  void set_stop(const OffCpu& off) {
    static constexpr const char* kNames[] = {"signal", "ptrace", "freezer"};
    detail_.kind = kNames[origin_.key.a];
    if (static_cast<Stop>(origin_.key.a) != Stop::signal) {
      return;
    }
    if (const ev_signal* signal = find_stop_signal(account_.timeline(), off, account_.gap().pid)) {
      detail_.signal = signal_name(signal->signal);
      detail_.task = {signal->sender_tid, signal->sender_pid, printable(signal->sender_comm)};
    }
  }

  void set_fault(uint32_t type, uint64_t address) {
    detail_.kind = "page_fault";
    detail_.fault = type == EV_SELF_FAULT_MINOR   ? "minor"
                    : type == EV_SELF_FAULT_MAJOR ? "major"
                                                  : "";
    detail_.address = address;
  }

  void set_sleep(const OffCpu& off) {
    detail_.woken_by = waker_of(off.waker);
    detail_.user_stack = user_stack_of(off.stacks, off.user_ip);
    detail_.kernel_stack = frames_of(account_.thread()->stacks.find(off.stacks.kernel), names_);
    if (origin_.grade != Grade::exact) {
      detail_.upper_bound = true;
      detail_.note = "its wakeup was not seen: waiting for the CPU afterwards is included";
    }
  }

  void set_interrupt(int irq, const std::string& action) {
    detail_.action = action;
    if (irq < 0) {
      return;
    }
    const InterruptName name = names_.interrupt(irq);
    detail_.irq = irq;
    detail_.device = name.device;
    detail_.affinity = name.affinity;
    detail_.rdma_device = name.rdma_device;
    const std::vector<std::string>& used = account_.session().rdma_devices;
    detail_.target_uses_adapter =
        !name.rdma_device.empty() &&
        std::find(used.begin(), used.end(), name.rdma_device) != used.end();
    if (const auto adapter = adapter_interrupt(action)) {
      detail_.vector = printable(adapter->vector);
      if (detail_.device.empty()) {
        detail_.device = printable(adapter->device);
      }
    }
  }

  // The stack, else the one frame that is known.
  std::vector<Frame> user_stack_of(const StackIds& stacks, uint64_t user_ip) const {
    std::vector<Frame> frames = user_stack(account_, stacks.user);
    if (frames.empty() && user_ip != 0) {
      frames.push_back(names_.user_frame(user_ip));
    }
    return frames;
  }

  // The softirq's record has no task: the one that ran on the CPU at that time.
  TaskRef ksoftirqd(const ev_softirq& softirq) const {
    TaskRef task{.tid = 0, .pid = 0, .comm = fmt::format("ksoftirqd/{}", softirq.header.cpu)};
    const CpuTimeline* cpu = account_.timeline().cpu(softirq.header.cpu);
    cpu->runs.for_each_overlapping(softirq.header.start_ns, softirq.header.end_ns,
                                   [&](const ev_run& run) {
                                     if (printable(run.task.comm) == task.comm) {
                                       task.tid = run.task.tid;
                                       task.pid = run.task.pid;
                                     }
                                   });
    return task;
  }

  // The action name of the interrupt that raised the softirq: of its latest record before it.
  std::string action_of(const ev_softirq& softirq) const {
    const History<ev_irq>& irqs = account_.timeline().cpu(softirq.header.cpu)->irqs;
    constexpr size_t kLookedAt = 64;
    const size_t end = irqs.first_ending_after(softirq.header.start_ns);
    for (size_t i = end; i > 0 && end - i < kLookedAt; --i) {
      if (irqs[i - 1].irq == softirq.after_irq && irqs[i - 1].vector == EV_VECTOR_DEVICE) {
        return printable(irqs[i - 1].action);
      }
    }
    return {};
  }

  const Account& account_;
  const Dictionary& names_;
  const Origin& origin_;
  Detail& detail_;
};

std::string interrupt_name(const Detail& detail) {
  if (!detail.irq.has_value()) {
    return detail.callback.empty() ? detail.kind : detail.kind + " " + detail.callback;
  }
  return fmt::format("irq {}{}{}", *detail.irq, detail.action.empty() ? "" : " ", detail.action);
}

std::string user_code_name(const Detail& detail, const char* otherwise) {
  if (detail.user_stack.empty()) {
    return otherwise;
  }
  const Frame& frame = detail.user_stack.front();
  return frame.function.empty() ? hex(frame.address) : frame.function;
}

std::string self_kernel_name(const Detail& detail) {
  if (detail.kind != "page_fault") {
    return detail.syscall;
  }
  return detail.fault.empty() ? "page fault" : detail.fault + " page fault";
}

std::string throttled_name(const Detail& detail) {
  return detail.cgroup.empty() ? detail.throttle : detail.throttle + " " + detail.cgroup;
}

std::string stopped_name(const Detail& detail) {
  if (detail.signal.empty()) {
    return detail.kind;
  }
  return detail.task ? detail.signal + " from " + task_name(*detail.task) : detail.signal;
}

}  // namespace

const char* interrupt_kind(uint32_t vector) {
  static constexpr const char* kNames[] = {
      "device",     "local_timer",  "reschedule", "call_function", "call_function_single",
      "irq_work",   "platform_ipi", "thermal",    "threshold",     "deferred_error",
      "error_apic", "spurious_apic"};
  static_assert(std::size(kNames) == EV_VECTOR_COUNT);
  return vector < std::size(kNames) ? kNames[vector] : "unknown";
}

std::vector<Frame> user_stack(const Account& account, uint64_t stack_id) {
  return account.thread() == nullptr
             ? std::vector<Frame>()
             : frames_of(account.thread()->stacks.find(stack_id), account.names());
}

Detail make_detail(const Account& account, const Origin& origin) {
  Detail detail;
  std::visit(DetailMaker(account, origin, detail), origin.source);
  detail.samples = origin.samples;
  detail.count = origin.count;
  if (origin.note != 0) {
    detail.note = account.text(origin.note);
  }
  const GapRecord& gap = account.gap();
  if (origin.key.cause == Cause::late_completion) {
    const bool unwritten = origin.key.a == static_cast<uint64_t>(Lateness::cqe_write);
    detail.reason = unwritten ? "cqe_write" : "undetermined";
    detail.outstanding = gap.outstanding;
    detail.polls = gap.polls;
  } else if (origin.key.cause == Cause::poll_function) {
    detail.error_completions = gap.error_completions;
  }
  return detail;
}

std::string task_name(const TaskRef& task) { return fmt::format("{}/{}", task.comm, task.tid); }

std::string culprit_name(Cause cause, const Detail& detail) {
  switch (cause) {
    case Cause::preemption:
      return detail.task ? task_name(*detail.task) : "other tasks";
    case Cause::throttled:
      return throttled_name(detail);
    case Cause::stopped:
      return stopped_name(detail);
    case Cause::blocked:
      return detail.syscall.empty() ? "sleep" : detail.syscall;
    case Cause::hard_irq:
      return interrupt_name(detail);
    case Cause::soft_irq:
      return "softirq " + detail.kind;
    case Cause::self_kernel:
      return self_kernel_name(detail);
    case Cause::control_verb:
      return detail.verb;
    case Cause::application:
      return user_code_name(detail, "user code");
    case Cause::poll_function:
      return user_code_name(detail, "poll function");
    case Cause::agent:
      return detail.task ? task_name(*detail.task) : interrupt_name(detail);
    case Cause::unexplained:
      return detail.note.empty() ? "unexplained" : detail.note;
    case Cause::stolen:
      return detail.kind == "smi" ? "SMI" : detail.kind;
    case Cause::late_completion:
      return detail.reason == "cqe_write" ? "write of the CQE" : to_string(cause);
    case Cause::nmi:
      break;
  }
  return to_string(cause);
}

}  // namespace pollgap
