// SPDX-License-Identifier: Apache-2.0
// Rule 1: the thread could not have used the CPU.
#include <sched.h>

#include <algorithm>
#include <csignal>

#include "agent/ledger/rules.h"

#ifndef SCHED_DEADLINE
#define SCHED_DEADLINE 6  // include/uapi/linux/sched.h; not in every libc's sched.h
#endif

namespace pollgap {
namespace {

// The rest of the interrupt that woke the thread, if no longer than this, is part of what it slept
// for; a longer one keeps the core from it.
constexpr uint64_t kWakingInterruptNs = 200'000;
// Real-time priorities are below this one (kernel/sched: MAX_RT_PRIO).
constexpr int kFirstFairPriority = 100;
// A signal is sent on one CPU and stops the thread on another.
constexpr uint64_t kSignalSlackNs = 1'000'000;
// The switch that takes the CPU from the thread gives it to the next task, but the two times are
// read by two programs.
constexpr uint64_t kSwitchSlackNs = 10'000;

bool is_stop_signal(int signal) {
  return signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
}

Origin stopped_by(const Account& account, const OffCpu& off) {
  Origin origin{.key = {Cause::stopped}, .source = &off};
  if ((off.flags & EV_OFF_FROZEN) != 0) {
    origin.key.a = static_cast<uint64_t>(Stop::freezer);
  } else if ((off.flags & EV_OFF_TRACED) != 0) {
    origin.key.a = static_cast<uint64_t>(Stop::ptrace);
  } else {
    origin.key.a = static_cast<uint64_t>(Stop::signal);
    if (const ev_signal* signal = find_stop_signal(account.timeline(), off, account.gap().pid)) {
      origin.key.b = (static_cast<uint64_t>(signal->signal) << 32) | signal->sender_tid;
    }
  }
  return origin;
}

// The kernel's own count of the fault in which the thread slept, if its record is there.
ev_self_type fault_type(const Account& account, const OffCpu& off) {
  ev_self_type type = EV_SELF_FAULT_MAJOR;  // it slept in the fault: for I/O, unless counted so
  account.thread()->self.for_each_overlapping(
      off.header.start_ns, off.header.end_ns, [&](const SelfKernel& self) {
        if (self.type == EV_SELF_FAULT_MINOR && self.count <= 1 &&
            self.header.start_ns <= off.header.start_ns &&
            self.header.end_ns >= off.header.end_ns) {
          type = EV_SELF_FAULT_MINOR;
        }
      });
  return type;
}

Origin blocked_by(Account& account, const OffCpu& off) {
  // Without a wakeup record, waiting for the CPU afterwards cannot be told from the sleep.
  const bool wakeup_known = off.wakeup_ns != 0 || (off.flags & EV_OFF_OPEN) != 0;
  const bool in_syscall = (off.flags & EV_OFF_IN_SYSCALL) != 0;
  Origin origin{.key = {Cause::blocked, in_syscall ? static_cast<uint64_t>(off.syscall_nr) + 1 : 0},
                .source = &off,
                .grade = wakeup_known ? Grade::exact : Grade::indirect};
  // A fault taken in user code never lies inside a system call: with both, the fault is over and
  // its end was not seen.
  if (!in_syscall && (off.flags & EV_OFF_IN_FAULT) != 0) {
    origin.key = {Cause::self_kernel, fault_type(account, off)};
  }
  return origin;
}

void claim_cfs_throttled(Account& account, const Stint& stint, std::vector<Claim>& wanted) {
  const Origin origin{.key = {Cause::throttled, static_cast<uint64_t>(Throttle::cfs_quota),
                              stint.off->throttle_cgroup_id},
                      .source = stint.off};
  wanted.push_back({stint.start_ns, stint.end_ns, account.add_origin(origin)});
}

bool has_runtime_limit(uint32_t policy) {
  return policy == SCHED_FIFO || policy == SCHED_RR || policy == SCHED_DEADLINE;
}

// Since 6.12 only a group's real-time runqueue is ever throttled (RT group scheduling); the core's
// own has the fair server instead (kernel/sched/rt.c, fair.c).
Throttle runtime_throttle(const Account& account, const OffCpu& off, const ev_run* run) {
  if (off.policy == SCHED_DEADLINE) {
    return Throttle::dl_runtime;
  }
  if ((off.flags & EV_OFF_RT_THROTTLED) != 0) {
    return Throttle::rt_runtime;
  }
  const bool by_fair_server =
      (run != nullptr && run->fair_server != 0) || account.session().throttles_by_fair_server;
  return by_fair_server ? Throttle::fair_server : Throttle::rt_runtime;
}

// A runnable real-time thread loses the core to an ordinary or the idle task only when it is
// throttled. One that had just been woken may have to wait for an ordinary task that is in a
// part of the kernel that cannot be interrupted: that is not throttling.
bool ran_for_throttling(const Stint& stint, const ev_run& run) {
  if (run.task.tid != 0 && run.task.priority < kFirstFairPriority) {
    return false;
  }
  if ((stint.off->flags & EV_OFF_RT_THROTTLED) != 0 || run.fair_server != 0) {
    return true;
  }
  const OffCpu& off = *stint.off;
  const bool lost_this_core =
      (off.state == 0 || (off.flags & EV_OFF_PREEMPTED) != 0) && stint.cpu == off.out_cpu;
  if (!lost_this_core) {
    // A run that was under way when the CPU came under watch begins at that very instant.
    return run.header.start_ns > stint.start_ns;
  }
  return run.header.start_ns >= off.header.start_ns ||
         off.header.start_ns - run.header.start_ns < kSwitchSlackNs;
}

// The kernel said itself that the thread's real-time runqueue was throttled: all of the wait, but
// for what other real-time tasks ran.
void claim_said_throttled(Account& account, const Stint& stint, const std::vector<Claim>& others,
                          std::vector<Claim>& wanted) {
  FreeTime rest(stint.start_ns, stint.end_ns);
  std::vector<Claim> taken;
  rest.claim(others, taken);
  const Origin origin{.key = {Cause::throttled,
                              static_cast<uint64_t>(runtime_throttle(account, *stint.off, nullptr)),
                              stint.off->throttle_cgroup_id},
                      .source = stint.off};
  const uint32_t index = account.add_origin(origin);
  for (const Claim& part : rest.intervals()) {
    wanted.push_back({part.start_ns, part.end_ns, index});
  }
}

void claim_runtime_throttled(Account& account, const Stint& stint, std::vector<Claim>& wanted) {
  const CpuOccupation& occupation = account.occupation(stint.cpu);
  std::vector<Claim> others;  // stretches of real-time tasks: preemption, left to the later rule
  std::vector<Claim> throttled;
  for_each_part(occupation.run_stretches, stint.start_ns, stint.end_ns, [&](const Claim& part) {
    const ev_run& run = *occupation.runs[part.origin];
    if (!ran_for_throttling(stint, run)) {
      others.push_back(part);
      return;
    }
    const Origin origin{
        .key = {Cause::throttled,
                static_cast<uint64_t>(runtime_throttle(account, *stint.off, &run)), run.task.tid},
        .source = &run};
    throttled.push_back({part.start_ns, part.end_ns, account.add_origin(origin)});
  });
  if ((stint.off->flags & EV_OFF_RT_THROTTLED) != 0) {
    claim_said_throttled(account, stint, others, wanted);
  } else {
    wanted.insert(wanted.end(), throttled.begin(), throttled.end());
  }
}

// When the interrupt (or its softirq) ended that woke the thread on this CPU at wakeup_ns.
template <typename T>
uint64_t end_of_waking(const History<T>& history, uint64_t wakeup_ns, uint64_t latest_ns) {
  uint64_t end_ns = wakeup_ns;
  history.for_each_overlapping(wakeup_ns, wakeup_ns + 1, [&](const T& interrupt) {
    if (interrupt.header.end_ns - wakeup_ns <= kWakingInterruptNs) {
      end_ns = std::max<uint64_t>(end_ns, interrupt.header.end_ns);
    }
  });
  return std::min(end_ns, latest_ns);
}

// A sleep reaches to the end of the interrupt that ended it.
uint64_t end_of_sleep(const Account& account, const Stint& stint) {
  const OffCpu& off = *stint.off;
  const CpuTimeline* cpu = account.timeline().cpu(off.header.cpu);
  const bool by_interrupt =
      off.waker.context == EV_WAKE_HARDIRQ || off.waker.context == EV_WAKE_SOFTIRQ;
  if (!by_interrupt || cpu == nullptr || off.waker.cpu != off.header.cpu ||
      stint.end_ns != off.wakeup_ns) {
    return stint.end_ns;
  }
  const uint64_t latest_ns = std::min<uint64_t>(off.header.end_ns, account.end_ns());
  return std::max(end_of_waking(cpu->irqs, stint.end_ns, latest_ns),
                  end_of_waking(cpu->softirqs, stint.end_ns, latest_ns));
}

}  // namespace

uint32_t not_runnable_origin(Account& account, const OffCpu& off, uint64_t start_ns,
                             uint64_t end_ns) {
  if ((off.flags & (EV_OFF_FROZEN | EV_OFF_STOPPED | EV_OFF_TRACED)) != 0) {
    return account.add_origin(stopped_by(account, off));
  }
  uint32_t verb_origin = 0;
  bool in_verb = false;
  for_each_part(account.verbs(), start_ns, end_ns, [&](const Claim& verb) {
    verb_origin = verb.origin;
    in_verb = true;
  });
  return in_verb ? verb_origin : account.add_origin(blocked_by(account, off));
}

const ev_signal* find_stop_signal(const Timeline& timeline, const OffCpu& off, uint32_t pid) {
  const History<ev_signal>& signals = timeline.signals();
  const uint64_t latest_ns = off.header.start_ns + kSignalSlackNs;
  for (size_t i = signals.first_ending_after(latest_ns); i > 0; --i) {
    const ev_signal& signal = signals[i - 1];
    if (is_stop_signal(signal.signal) && (signal.pid == pid || signal.tid == off.tid)) {
      return &signal;
    }
  }
  return nullptr;
}

void claim_unable_to_run(Account& account) {
  std::vector<Claim> wanted;
  for (const Stint& stint : account.activity()) {
    if (stint.activity == Activity::not_runnable) {
      wanted.push_back({stint.start_ns, end_of_sleep(account, stint),
                        not_runnable_origin(account, *stint.off, stint.start_ns, stint.end_ns)});
    } else if (stint.activity == Activity::runnable) {
      if ((stint.off->flags & EV_OFF_CFS_THROTTLED) != 0) {
        claim_cfs_throttled(account, stint, wanted);
      } else if (has_runtime_limit(stint.off->policy)) {
        claim_runtime_throttled(account, stint, wanted);
      }
    }
  }
  account.claim(wanted);
}

}  // namespace pollgap
