// SPDX-License-Identifier: Apache-2.0
// Rules 2 and 5: interrupts on the CPU where the thread ran or waited for its turn.
#include <map>

#include "agent/ledger/rules.h"

namespace pollgap {
namespace {

Origin irq_origin(Account& account, const ev_irq& irq) {
  const bool by_agent = caused_by_agent(irq, account.session());
  Origin origin{.key = {by_agent ? Cause::agent : Cause::hard_irq}, .source = &irq};
  origin.key.a = (static_cast<uint64_t>(irq.vector) << 32) | static_cast<uint32_t>(irq.irq);
  if (irq.vector == EV_VECTOR_DEVICE) {
    origin.key.b = account.text_id(printable(irq.action));  // a line may be shared
  } else {
    origin.key.b = irq.sender_tid != 0 ? irq.sender_tid : irq.callback;
  }
  return origin;
}

Origin softirq_origin(const ev_softirq& softirq) {
  return {
      .key = {Cause::soft_irq, (static_cast<uint64_t>(softirq.in_ksoftirqd) << 32) | softirq.vector,
              (static_cast<uint64_t>(softirq.after_vector) << 32) |
                  static_cast<uint32_t>(softirq.after_irq)},
      .source = &softirq};
}

// The interrupts of one kind on a CPU in the gap's window: innermost of nested ones, origins set.
template <typename T, typename MakeOrigin>
std::vector<Claim> interrupts_on(Account& account, const History<T>& history,
                                 MakeOrigin make_origin) {
  std::vector<Claim> found;
  history.for_each_overlapping(account.start_ns(), account.end_ns(), [&](const T& record) {
    found.push_back(
        {record.header.start_ns, record.header.end_ns, account.add_origin(make_origin(record))});
  });
  return innermost(std::move(found));
}

// Claims, per stint, what `find` returns for the stint's CPU.
template <typename Find>
void claim_on_cpus(Account& account, Find find) {
  std::map<uint32_t, std::vector<Claim>> by_cpu;
  std::vector<Claim> wanted;
  for (const Stint& stint : account.activity()) {
    const CpuTimeline* cpu = account.timeline().cpu(stint.cpu);
    if (cpu == nullptr || stint.activity == Activity::not_runnable) {
      continue;
    }
    const auto [place, is_new] = by_cpu.try_emplace(stint.cpu);
    if (is_new) {
      place->second = find(*cpu);
    }
    for_each_part(place->second, stint.start_ns, stint.end_ns,
                  [&](const Claim& part) { wanted.push_back(part); });
  }
  account.claim(wanted);
}

// What lies between two hard interrupts of one kind that follow each other closely in one of the
// windows, on that CPU.
void add_between(Account& account, uint32_t cpu, const std::vector<Claim>& windows,
                 std::vector<Claim>& wanted) {
  const CpuTimeline* timeline = account.timeline().cpu(cpu);
  if (timeline == nullptr) {
    return;
  }
  const uint64_t limit_ns = 2 * account.session().interrupt_cost_ns;
  for (const Claim& window : windows) {
    const ev_irq* previous = nullptr;
    timeline->irqs.for_each_overlapping(window.start_ns, window.end_ns, [&](const ev_irq& irq) {
      if (previous != nullptr && irq.header.start_ns > previous->header.end_ns &&
          irq.header.start_ns - previous->header.end_ns <= limit_ns) {
        Origin origin = irq_origin(account, *previous);
        if (origin.key == irq_origin(account, irq).key) {
          origin.grade = Grade::indirect;
          wanted.push_back(
              {previous->header.end_ns, irq.header.start_ns, account.add_origin(origin)});
        }
      }
      previous = &irq;
    });
  }
}

// While the thread waited, and one and the same task ran.
void claim_between_interrupts_of_others(Account& account) {
  std::vector<Claim> wanted;
  for (const Stint& stint : account.activity()) {
    if (stint.activity == Activity::runnable) {
      std::vector<Claim> windows;
      for_each_part(account.occupation(stint.cpu).run_stretches, stint.start_ns, stint.end_ns,
                    [&](const Claim& part) { windows.push_back(part); });
      add_between(account, stint.cpu, windows, wanted);
    }
  }
  account.claim(innermost(std::move(wanted)));
}

}  // namespace

void claim_interrupts(Account& account) {
  claim_on_cpus(account, [&](const CpuTimeline& cpu) {
    return interrupts_on(account, cpu.irqs,
                         [&](const ev_irq& irq) { return irq_origin(account, irq); });
  });
  claim_on_cpus(account, [&](const CpuTimeline& cpu) {
    return interrupts_on(account, cpu.softirqs, softirq_origin);
  });
  claim_between_interrupts_of_others(account);
}

void claim_between_interrupts(Account& account) {
  std::vector<Claim> wanted;
  for (const Stint& stint : account.activity()) {
    if (stint.activity == Activity::on_cpu) {
      add_between(account, stint.cpu, {{stint.start_ns, stint.end_ns, 0}}, wanted);
    }
  }
  account.claim(innermost(std::move(wanted)));
}

}  // namespace pollgap
