// SPDX-License-Identifier: Apache-2.0
#include "agent/report/advice.h"

#include <algorithm>
#include <map>

#include "agent/report/advice_rules.h"

namespace pollgap {
namespace {

using Rule = void (*)(const Detail&, const advice::Context&, advice::Sentences&);

// No rule: `agent` passes by itself.
Rule rule_of(Cause cause) {
  switch (cause) {
    case Cause::preemption:
      return advice::preemption;
    case Cause::throttled:
      return advice::throttled;
    case Cause::stopped:
      return advice::stopped;
    case Cause::blocked:
      return advice::blocked;
    case Cause::hard_irq:
      return advice::hard_irq;
    case Cause::soft_irq:
      return advice::soft_irq;
    case Cause::nmi:
      return advice::nmi;
    case Cause::self_kernel:
      return advice::self_kernel;
    case Cause::control_verb:
      return advice::control_verb;
    case Cause::application:
      return advice::application;
    case Cause::poll_function:
      return advice::poll_function;
    case Cause::stolen:
      return advice::stolen;
    case Cause::late_completion:
      return advice::late_completion;
    case Cause::unexplained:
      return advice::unexplained;
    case Cause::agent:
      return nullptr;
  }
  return nullptr;
}

struct CauseShare {
  Cause cause = Cause::unexplained;
  uint64_t total_ns = 0;
  const Segment* largest = nullptr;
};

// Causes by their time in the gap, largest first.
std::vector<CauseShare> shares_of(const Gap& gap) {
  std::map<Cause, CauseShare> by_cause;
  for (const Segment& segment : gap.segments) {
    CauseShare& share = by_cause[segment.cause];
    share.cause = segment.cause;
    share.total_ns += segment.duration_ns;
    if (share.largest == nullptr || segment.duration_ns > share.largest->duration_ns)
      share.largest = &segment;
  }
  std::vector<CauseShare> shares;
  shares.reserve(by_cause.size());
  for (const auto& [cause, share] : by_cause) shares.push_back(share);
  std::ranges::stable_sort(shares, std::greater{}, &CauseShare::total_ns);
  return shares;
}

void keep_first_of_equals(std::vector<std::string>& sentences) {
  std::vector<std::string> kept;
  for (std::string& sentence : sentences)
    if (std::ranges::find(kept, sentence) == kept.end()) kept.push_back(std::move(sentence));
  sentences = std::move(kept);
}

}  // namespace

std::vector<std::string> advise(const Gap& gap, const HostFacts& host) {
  const advice::Context context{gap, host};
  std::vector<std::string> sentences;
  if (const Rule rule = rule_of(gap.verdict.cause)) rule(gap.verdict.detail, context, sentences);
  for (const CauseShare& share : shares_of(gap)) {
    if (share.cause == gap.verdict.cause || share.total_ns < gap.duration_ns / 10) continue;
    if (const Rule rule = rule_of(share.cause)) rule(share.largest->detail, context, sentences);
  }
  if (gap.evidence.errors) advice::error_completions(*gap.evidence.errors, sentences);
  keep_first_of_equals(sentences);
  return sentences;
}

}  // namespace pollgap
