// SPDX-License-Identifier: Apache-2.0
#include "agent/ledger/standstill.h"

#include <algorithm>

#include "agent/ledger/rules.h"

namespace pollgap {
namespace {

// The cores enter and leave an SMI one after the other, and the timer's interrupt is not the first
// thing that each does. At most so much of a standstill may show signs of life.
constexpr uint64_t kSkewNs = 400'000;
constexpr uint64_t kSkewPart = 4;  // nor more than a fourth of it

// Instants in a window at which the CPU was seen to run the system.
class SignsOfLife {
 public:
  SignsOfLife(const Account& account, const Claim& window) : window_(window) {
    add(account.start_ns());
    add(account.end_ns());
    if (const CpuTimeline* cpu = account.timeline().cpu(account.gap().header.cpu)) {
      add_edges(cpu->runs);
      add_edges(cpu->works);
      add_edges(cpu->irqs);
      add_edges(cpu->softirqs);
    }
    if (const ThreadTimeline* thread = account.thread()) {
      add_edges(thread->off_cpu);
      add_edges(thread->verbs);
      add_edges(thread->samples);
      add_edges(thread->self);
      // It is not known where in it the parts of a run lay.
      thread->self.for_each_overlapping(
          window.start_ns, window.end_ns,
          [this](const SelfKernel& self) { in_run_ = in_run_ || self.count > 1; });
    }
  }

  // The longest part of the window without any; empty if that is not nearly all of it.
  Claim longest_quiet() {
    std::sort(at_ns_.begin(), at_ns_.end());
    at_ns_.push_back(window_.end_ns);
    Claim longest{window_.start_ns, window_.start_ns, 0};
    uint64_t from_ns = window_.start_ns;
    for (const uint64_t at_ns : at_ns_) {
      if (at_ns - from_ns > longest.length_ns()) {
        longest = {from_ns, at_ns, 0};
      }
      from_ns = at_ns;
    }
    const uint64_t others_ns = window_.length_ns() - longest.length_ns();
    const bool nearly_all = others_ns <= std::min(kSkewNs, window_.length_ns() / kSkewPart);
    return nearly_all && !in_run_ ? longest : Claim{};
  }

 private:
  void add(uint64_t at_ns) {
    if (at_ns > window_.start_ns && at_ns < window_.end_ns) {
      at_ns_.push_back(at_ns);
    }
  }
  template <typename T>
  void add_edges(const History<T>& history) {
    history.for_each_overlapping(window_.start_ns, window_.end_ns, [this](const T& record) {
      add(record.header.start_ns);
      add(record.header.end_ns);
    });
  }

  Claim window_;
  std::vector<uint64_t> at_ns_;
  bool in_run_ = false;
};

}  // namespace

std::vector<Claim> standstills_in(const Account& account) {
  std::vector<Claim> found;
  // Of a thread that goes on polling there are no records, nor of what was lost.
  if (!account.stayed() || account.surely_late() || !account.evidence_complete()) {
    return found;
  }
  account.timeline().standstills().for_each_overlapping(
      account.start_ns(), account.end_ns(), [&](const ev_standstill& still) {
        if (still.header.cpu == account.gap().header.cpu) {
          return;
        }
        const Claim window{still.header.start_ns, still.header.end_ns, 0};
        const Claim quiet = clipped(SignsOfLife(account, window).longest_quiet(),
                                    account.start_ns(), account.end_ns());
        if (quiet.start_ns < quiet.end_ns) {
          found.push_back(quiet);
        }
      });
  return innermost(std::move(found));
}

bool standstill_matters(const Account& account) {
  const bool nothing_steals = account.session().nothing_steals;
  return nothing_steals ? !account.smis().known : !account.steal().known;
}

void claim_standstills(Account& account) {
  if (!account.smis().tell) {
    return;
  }
  std::vector<Claim> wanted = standstills_in(account);
  if (wanted.empty()) {
    return;
  }
  for (Claim& part : wanted) {
    part.origin = account.stolen_by_smis();
  }
  account.claim(wanted);
}

}  // namespace pollgap
