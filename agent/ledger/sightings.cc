// SPDX-License-Identifier: Apache-2.0
#include "agent/ledger/sightings.h"

#include <fmt/format.h>

#include <algorithm>

namespace pollgap {
namespace {

// So close to an edge of a stretch, a sample may have met the way into or out of the kernel, and a
// timer interrupt the switch to or from another task.
constexpr uint64_t kEdgeNs = 50'000;

bool near_edge(uint64_t at_ns, const Stretch& stretch) {
  return at_ns < stretch.start_ns + kEdgeNs || at_ns + kEdgeNs > stretch.end_ns;
}

// A sample in the kernel that says nothing of the rest of the stretch: it met a softirq, the way
// into or out of the kernel, a run of system calls or faults, or the probe on a poll.
bool explained(const Account& account, const Sample& sample, const Stretch& stretch) {
  const uint64_t at_ns = sample.header.start_ns;
  if (near_edge(at_ns, stretch) || account.surely_late()) {
    return true;
  }
  bool found = false;
  if (const CpuTimeline* cpu = account.timeline().cpu(sample.header.cpu)) {
    cpu->softirqs.for_each_overlapping(at_ns, at_ns + 1, [&](const ev_softirq&) { found = true; });
  }
  account.thread()->self.for_each_overlapping(
      at_ns, at_ns + 1, [&](const SelfKernel& self) { found = found || self.count > 1; });
  return found;
}

Found found_by(const Sample& sample) {
  switch (sample.mode) {
    case EV_SAMPLE_KERNEL:
      return Found::kernel;
    case EV_SAMPLE_USER:
      return Found::user;
    case EV_SAMPLE_UPROBE:
      return Found::uprobe;
    default:
      return Found::untold;
  }
}

void add_samples(const Account& account, const Stretch& stretch, std::vector<Sighting>& out) {
  account.thread()->samples.for_each_overlapping(
      stretch.start_ns, stretch.end_ns, [&](const Sample& sample) {
        if (sample.on_cpu != 1 || sample.header.start_ns < stretch.start_ns) {
          return;
        }
        const bool in_kernel = sample.mode == EV_SAMPLE_KERNEL;
        if (in_kernel && explained(account, sample, stretch)) {
          return;
        }
        out.push_back(
            {.at_ns = sample.header.start_ns, .found = found_by(sample), .sample = &sample});
      });
}

bool brought_a_sample(const Account& account, const ev_irq& tick) {
  bool found = false;
  account.thread()->samples.for_each_overlapping(tick.header.start_ns, tick.header.end_ns + 1,
                                                 [&](const Sample&) { found = true; });
  return found;
}

// The local timer's interrupts sample a thread that has been silent for a quarter of the threshold,
// which is no more than a quarter of the gap. Where the agent observes, the kernel learns only
// later that it is silent.
void add_absences(const Account& account, const Stretch& stretch, std::vector<Sighting>& out) {
  const uint64_t silent_from_ns = account.start_ns() + account.duration_ns() / 4;
  const auto stint =
      std::find_if(account.activity().begin(), account.activity().end(),
                   [&](const Stint& candidate) { return candidate.end_ns > stretch.start_ns; });
  const CpuTimeline* cpu =
      stint == account.activity().end() ? nullptr : account.timeline().cpu(stint->cpu);
  if (cpu == nullptr || account.surely_late() || (account.gap().flags & EV_GAP_OBSERVED) != 0) {
    return;
  }
  cpu->irqs.for_each_overlapping(stretch.start_ns, stretch.end_ns, [&](const ev_irq& tick) {
    const uint64_t at_ns = tick.header.start_ns;
    if (tick.vector == EV_VECTOR_LOCAL_TIMER && at_ns > silent_from_ns &&
        !near_edge(at_ns, stretch) && !brought_a_sample(account, tick)) {
      out.push_back({.at_ns = at_ns, .found = Found::absent, .sample = nullptr});
    }
  });
}

bool contradicts(const Sighting& sighting) {
  return sighting.found == Found::kernel || sighting.found == Found::absent;
}

std::string doubt(const Account& account, const Sighting& sighting) {
  if (sighting.found == Found::absent) {
    return account.gap().gap_kind == EV_GAP_IN_POLL
               ? "the timer interrupts in it did not find the thread running: it was off the CPU "
                 "without a record of it"
               : "the timer interrupts in it did not find the thread silent: it polled another CQ, "
                 "or was off the CPU without a record of it";
  }
  const ev_stack* stack = account.thread()->stacks.find(sighting.sample->stacks.kernel);
  if (stack == nullptr || stack->frames == 0) {
    return "in the kernel, but not for a system call or page fault that was seen";
  }
  return fmt::format("in the kernel at {}, but not for a system call or page fault that was seen",
                     account.names().kernel_function(stack->ip[0]));
}

}  // namespace

std::vector<Sighting> sightings_in(const Account& account, const Stretch& stretch) {
  std::vector<Sighting> sightings;
  if (account.thread() == nullptr) {
    return sightings;
  }
  add_samples(account, stretch, sightings);
  add_absences(account, stretch, sightings);
  std::stable_sort(
      sightings.begin(), sightings.end(),
      [](const Sighting& left, const Sighting& right) { return left.at_ns < right.at_ns; });
  return sightings;
}

std::vector<Claim> doubtful_parts(Account& account, const Stretch& stretch,
                                  const std::vector<Sighting>& sightings) {
  const auto in_user = [](const Sighting& sighting) { return sighting.found == Found::user; };
  std::vector<Claim> parts;
  uint64_t from_ns = stretch.start_ns;
  for (auto next = sightings.begin(); next != sightings.end();) {
    const auto until = std::find_if(next, sightings.end(), in_user);
    const auto doubtful = std::find_if(next, until, contradicts);
    const uint64_t until_ns = until == sightings.end() ? stretch.end_ns : until->at_ns;
    if (doubtful != until) {
      parts.push_back({from_ns, until_ns, account.unexplained(doubt(account, *doubtful))});
    }
    from_ns = until_ns;
    next = until == sightings.end() ? until : until + 1;
  }
  return parts;
}

}  // namespace pollgap
