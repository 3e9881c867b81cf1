// SPDX-License-Identifier: Apache-2.0
// Rule 4: control verbs, then the thread's own system calls and page faults.
#include <algorithm>

#include "agent/ledger/rules.h"

namespace pollgap {
namespace {

bool is_run(const SelfKernel& self) { return self.count > 1; }

// A run's sum may include the moments between its parts; of a single one without an end, anything
// up to the bound may have been user code.
Grade grade_of(const SelfKernel& self) {
  if (is_run(self)) {
    return Grade::indirect;
  }
  return (self.flags & EV_SELF_BOUND) != 0 ? Grade::weak : Grade::exact;
}

Origin self_origin(const SelfKernel& self) {
  const bool is_syscall = self.type == EV_SELF_SYSCALL;
  return {.key = {Cause::self_kernel, self.type,
                  is_syscall ? static_cast<uint32_t>(self.syscall_nr) : 0},
          .source = &self,
          .grade = grade_of(self),
          .count = std::max<uint64_t>(self.count, 1)};
}

// Where an interval whose end is only a bound must have ended: at the first sign that the thread
// was back in its user code.
uint64_t bounded_end_ns(const ThreadTimeline& thread, const SelfKernel& self) {
  uint64_t end_ns = self.header.end_ns;
  if ((self.flags & EV_SELF_BOUND) == 0) {
    return end_ns;
  }
  const uint64_t start_ns = self.header.start_ns;
  thread.samples.for_each_overlapping(start_ns + 1, end_ns, [&](const Sample& sample) {
    if (sample.mode == EV_SAMPLE_USER && sample.on_cpu == 1) {
      end_ns = std::min<uint64_t>(end_ns, sample.header.start_ns);
    }
  });
  // System calls and faults of one thread do not nest: a later one began in user code.
  thread.self.for_each_overlapping(start_ns + 1, end_ns, [&](const SelfKernel& other) {
    if (other.header.start_ns > start_ns) {
      end_ns = std::min<uint64_t>(end_ns, other.header.start_ns);
    }
  });
  return std::max(end_ns, start_ns);
}

// Time within the run that the thread was off the CPU inside a system call or fault: part of the
// run's sum, and already taken.
uint64_t off_cpu_in_run_ns(const Account& account, const SelfKernel& run) {
  uint64_t sum_ns = 0;
  for (const Stint& stint : account.activity()) {
    if (stint.off == nullptr || (stint.off->flags & (EV_OFF_IN_SYSCALL | EV_OFF_IN_FAULT)) == 0) {
      continue;
    }
    const Claim inside =
        clipped({stint.start_ns, stint.end_ns, 0}, run.header.start_ns, run.header.end_ns);
    sum_ns += inside.end_ns > inside.start_ns ? inside.length_ns() : 0;
  }
  return sum_ns;
}

// The run's sum, as far as it belongs to the gap: where in the run its parts lay is not known, so
// a run that reaches over an edge gives in proportion.
uint64_t run_budget_ns(const Account& account, const SelfKernel& run, const Claim& inside) {
  const uint64_t length_ns = run.header.end_ns - run.header.start_ns;
  const uint64_t sum_ns = std::min<uint64_t>(run.sum_ns, length_ns);
  uint64_t budget_ns = sum_ns;
  if (inside.length_ns() < length_ns) {
    budget_ns = static_cast<uint64_t>(static_cast<unsigned __int128>(sum_ns) * inside.length_ns() /
                                      length_ns);
  }
  const uint64_t off_ns = off_cpu_in_run_ns(account, run);
  return budget_ns > off_ns ? budget_ns - off_ns : 0;
}

void claim_single_events(Account& account) {
  std::vector<Claim> wanted;
  account.thread()->self.for_each_overlapping(
      account.start_ns(), account.end_ns(), [&](const SelfKernel& self) {
        if (is_run(self)) {
          return;
        }
        const uint64_t end_ns = bounded_end_ns(*account.thread(), self);
        wanted.push_back({self.header.start_ns, end_ns, account.add_origin(self_origin(self))});
        account.add_kernel_event(self.header.start_ns, end_ns);
      });
  account.claim(innermost(std::move(wanted)));
}

void claim_runs(Account& account) {
  std::vector<const SelfKernel*> runs;
  account.thread()->self.for_each_overlapping(account.start_ns(), account.end_ns(),
                                              [&](const SelfKernel& self) {
                                                if (is_run(self)) {
                                                  runs.push_back(&self);
                                                }
                                              });
  std::stable_sort(runs.begin(), runs.end(), [](const SelfKernel* left, const SelfKernel* right) {
    return left->header.start_ns < right->header.start_ns;
  });
  std::vector<Claim> wanted;
  uint64_t cursor_ns = account.start_ns();
  for (const SelfKernel* run : runs) {
    const Claim inside = clipped({run->header.start_ns, run->header.end_ns, 0}, account.start_ns(),
                                 account.end_ns());
    if (inside.end_ns <= inside.start_ns) {
      continue;
    }
    uint64_t budget_ns = run_budget_ns(account, *run, inside);
    const uint32_t index = account.add_origin(self_origin(*run));
    for_each_part(account.free_intervals(), std::max(inside.start_ns, cursor_ns), inside.end_ns,
                  [&](Claim part) {
                    part.end_ns = part.start_ns + std::min(part.length_ns(), budget_ns);
                    part.origin = index;
                    if (part.end_ns > part.start_ns) {
                      wanted.push_back(part);
                      account.add_kernel_event(part.start_ns, part.end_ns);
                      cursor_ns = part.end_ns;
                      budget_ns -= part.length_ns();
                    }
                  });
    account.add_kernel_event(inside.start_ns, inside.start_ns);
    account.add_kernel_event(inside.end_ns, inside.end_ns);
  }
  account.claim(wanted);
}

}  // namespace

void claim_own_kernel_time(Account& account) {
  account.claim(account.verbs());
  for (const Claim& verb : account.verbs()) {
    account.add_kernel_event(verb.start_ns, verb.end_ns);
  }
  if (account.thread() == nullptr) {
    return;
  }
  claim_single_events(account);
  claim_runs(account);
}

}  // namespace pollgap
