// SPDX-License-Identifier: Apache-2.0
// A claim: evidence that takes a part of a gap's time. The rules make claims one layer after the
// other; FreeTime sees to it that each instant is given away once.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <span>
#include <type_traits>
#include <variant>
#include <vector>

#include "agent/ledger/gap.h"
#include "agent/timeline/timeline.h"

namespace pollgap {

// How well the evidence behind a claim proves it.
enum class Grade {
  exact,     // the kernel timed it, or nothing else is possible
  indirect,  // amounts are exact, places are not; or samples say so
  weak,      // rests on an upper bound or on the absence of other evidence
};

// Who had the CPU: CulpritKey::a of Cause::stolen.
enum class Thief : uint64_t { hypervisor, firmware };

// What of a late completion took so long, as far as its stamp tells: CulpritKey::a of
// Cause::late_completion.
enum class Lateness : uint64_t { undetermined, cqe_write };

// Two claims with the same key have the same culprit. a and b identify it within its cause.
struct CulpritKey {
  Cause cause = Cause::unexplained;
  uint64_t a = 0;
  uint64_t b = 0;
  // clang-tidy 14 takes the generated comparison with 0 for a null pointer.
  auto operator<=>(const CulpritKey&) const = default;  // NOLINT(modernize-use-nullptr)
};

// The record a claim rests on.
using Source = std::variant<std::monostate, const ev_run*, const ev_irq*, const ev_softirq*,
                            const OffCpu*, const SelfKernel*, const ev_verb*, const Sample*>;

// Where a claim comes from.
struct Origin {
  CulpritKey key;
  Source source;
  Grade grade = Grade::exact;
  uint32_t note = 0;   // index into the gap's texts
  uint64_t count = 1;  // events it stands for
  uint64_t samples = 0;
  uint64_t work_function = 0;  // of a kworker's stretch
};

// The CPU that the record behind it speaks of; `otherwise` if there is none.
inline uint32_t cpu_of(const Origin& origin, uint32_t otherwise) {
  return std::visit(
      [otherwise](auto source) {
        if constexpr (std::is_pointer_v<decltype(source)>) {
          return static_cast<uint32_t>(source->header.cpu);
        } else {
          return otherwise;
        }
      },
      origin.source);
}

struct Claim {
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  uint32_t origin = 0;  // index into the gap's origins

  uint64_t length_ns() const { return end_ns - start_ns; }
};

// Cuts an interval to [start_ns, end_ns); empty intervals come out with end <= start.
inline Claim clipped(Claim claim, uint64_t start_ns, uint64_t end_ns) {
  claim.start_ns = claim.start_ns < start_ns ? start_ns : claim.start_ns;
  claim.end_ns = claim.end_ns > end_ns ? end_ns : claim.end_ns;
  return claim;
}

// Resolves nesting and overlap: each instant goes to the interval that began last (the innermost).
// The result is sorted and disjoint.
std::vector<Claim> innermost(std::vector<Claim> intervals);

// Likewise, but each instant goes to the interval that began first.
std::vector<Claim> outermost(std::vector<Claim> intervals);

// The part of a gap that no claim has taken yet.
class FreeTime {
 public:
  FreeTime(uint64_t start_ns, uint64_t end_ns);

  // Takes what is still free of `wanted` (sorted, disjoint) and appends it to `taken`.
  void claim(std::span<const Claim> wanted, std::vector<Claim>& taken);

  // The free intervals, sorted and disjoint; their origin has no meaning.
  const std::vector<Claim>& intervals() const { return free_; }

 private:
  std::vector<Claim> free_;
};

// Calls visit(part) for the parts of `intervals` (sorted, disjoint) inside [start_ns, end_ns).
template <typename Visit>
void for_each_part(std::span<const Claim> intervals, uint64_t start_ns, uint64_t end_ns,
                   Visit visit) {
  auto next = std::partition_point(
      intervals.begin(), intervals.end(),
      [start_ns](const Claim& interval) { return interval.end_ns <= start_ns; });
  for (; next != intervals.end() && next->start_ns < end_ns; ++next) {
    const Claim part = clipped(*next, start_ns, end_ns);
    if (part.start_ns < part.end_ns) {
      visit(part);
    }
  }
}

}  // namespace pollgap
