// SPDX-License-Identifier: Apache-2.0
// Rule 3: the thread waited for the CPU; who had it.
#include <fmt/format.h>

#include <map>

#include "agent/ledger/rules.h"

namespace pollgap {
namespace {

// A context switch takes a moment between the end of one task's stretch and the start of the
// next; it belongs to the stretch before it.
constexpr uint64_t kSwitchNs = 10'000;

// The stretches on the CPU within the stint, with the moments of switching closed.
std::vector<Claim> stretches_in(const CpuOccupation& occupation, const Stint& stint) {
  std::vector<Claim> parts;
  for_each_part(occupation.run_stretches, stint.start_ns, stint.end_ns,
                [&](const Claim& part) { parts.push_back(part); });
  for (size_t i = 0; i < parts.size(); ++i) {
    const uint64_t next_ns = i + 1 < parts.size() ? parts[i + 1].start_ns : stint.end_ns;
    if (next_ns - parts[i].end_ns <= kSwitchNs) {
      parts[i].end_ns = next_ns;
    }
  }
  if (!parts.empty() && parts[0].start_ns - stint.start_ns <= kSwitchNs) {
    parts[0].start_ns = stint.start_ns;
  }
  return parts;
}

// The work function in which a kworker spent most of the stretch; 0: not known.
uint64_t main_work_function(const CpuOccupation& occupation, const ev_run& run,
                            const Claim& stretch) {
  std::map<uint64_t, uint64_t> ns_by_function;
  for_each_part(occupation.work_stretches, stretch.start_ns, stretch.end_ns,
                [&](const Claim& part) {
                  const ev_work& work = *occupation.works[part.origin];
                  if (work.tid == run.task.tid) {
                    ns_by_function[work.function] += part.length_ns();
                  }
                });
  uint64_t longest_ns = 0;
  uint64_t function = run.work_function;
  for (const auto& [candidate, ns] : ns_by_function) {
    if (ns > longest_ns) {
      longest_ns = ns;
      function = candidate;
    }
  }
  return function;
}

// A core that slept takes its time to wake: the deepest idle states have exit latencies below this
// (drivers/idle/intel_idle.c). It is the price of the sleep, and so part of it.
constexpr uint64_t kIdleExitNs = 1'000'000;

uint32_t waited_for(Account& account, const CpuOccupation& occupation, const Stint& stint,
                    const Claim& stretch) {
  const ev_run& run = *occupation.runs[stretch.origin];
  if (run.task.tid == 0) {
    const bool was_asleep = stint.off->wakeup_ns != 0 && stretch.start_ns == stint.start_ns;
    if (was_asleep && stretch.length_ns() <= kIdleExitNs) {
      return not_runnable_origin(account, *stint.off, stretch.start_ns, stretch.end_ns);
    }
    return account.unexplained("the core was idle while the thread was runnable");
  }
  const uint32_t agent_pid = account.session().agent_pid;
  Origin origin{.key = {Cause::preemption, run.task.tid}, .source = &run};
  if (agent_pid != 0 && run.task.pid == agent_pid) {
    origin.key.cause = Cause::agent;
  }
  if ((run.task.flags & EV_TASK_WQ_WORKER) != 0) {
    origin.work_function = main_work_function(occupation, run, stretch);
    origin.key.b = origin.work_function;
  }
  return account.add_origin(origin);
}

uint32_t uncovered_origin(Account& account, const Stint& stint) {
  const uint32_t cpu = stint.cpu;
  if ((stint.off->flags & EV_OFF_UNSEEN) != 0) {
    return account.unexplained(
        fmt::format("the switch that brought the thread back to CPU {} left no trace", cpu));
  }
  return account.unexplained(
      account.evidence_complete()
          ? fmt::format("no record of what ran on CPU {} while the thread waited for it", cpu)
          : fmt::format("the thread waited for CPU {}; records of what ran there were lost", cpu));
}

}  // namespace

void claim_waiting(Account& account) {
  std::vector<Claim> ran;
  std::vector<Claim> waited;
  for (const Stint& stint : account.activity()) {
    if (stint.activity != Activity::runnable) {
      continue;
    }
    const CpuOccupation& occupation = account.occupation(stint.cpu);
    for (Claim stretch : stretches_in(occupation, stint)) {
      stretch.origin = waited_for(account, occupation, stint, stretch);
      ran.push_back(stretch);
    }
    waited.push_back({stint.start_ns, stint.end_ns, uncovered_origin(account, stint)});
  }
  account.claim(ran);
  account.claim(waited);
}

}  // namespace pollgap
