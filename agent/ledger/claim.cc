// SPDX-License-Identifier: Apache-2.0
#include "agent/ledger/claim.h"

#include <algorithm>

namespace pollgap {
namespace {

bool contains_first(const Claim& left, const Claim& right) {
  return left.start_ns != right.start_ns ? left.start_ns < right.start_ns
                                         : left.end_ns > right.end_ns;
}

// Appends [cursor, until) of `owner` and moves the cursor there.
void emit(const Claim& owner, uint64_t until_ns, uint64_t& cursor_ns, std::vector<Claim>& out) {
  const uint64_t end_ns = std::min(owner.end_ns, until_ns);
  const uint64_t start_ns = std::max(owner.start_ns, cursor_ns);
  if (start_ns < end_ns) {
    out.push_back({start_ns, end_ns, owner.origin});
    cursor_ns = end_ns;
  }
}

}  // namespace

std::vector<Claim> innermost(std::vector<Claim> intervals) {
  std::sort(intervals.begin(), intervals.end(), contains_first);
  std::vector<Claim> out;
  std::vector<Claim> running;  // begun and not ended, the innermost last
  uint64_t cursor_ns = 0;
  for (const Claim& interval : intervals) {
    while (!running.empty() && running.back().end_ns <= interval.start_ns) {
      emit(running.back(), running.back().end_ns, cursor_ns, out);
      running.pop_back();
    }
    if (!running.empty()) {
      emit(running.back(), interval.start_ns, cursor_ns, out);
    }
    cursor_ns = std::max(cursor_ns, interval.start_ns);
    running.push_back(interval);
  }
  for (; !running.empty(); running.pop_back()) {
    emit(running.back(), running.back().end_ns, cursor_ns, out);
  }
  return out;
}

std::vector<Claim> outermost(std::vector<Claim> intervals) {
  std::sort(intervals.begin(), intervals.end(), contains_first);
  std::vector<Claim> out;
  uint64_t cursor_ns = 0;
  for (const Claim& interval : intervals) {
    emit(interval, interval.end_ns, cursor_ns, out);
  }
  return out;
}

FreeTime::FreeTime(uint64_t start_ns, uint64_t end_ns) {
  if (start_ns < end_ns) {
    free_.push_back({start_ns, end_ns, 0});
  }
}

void FreeTime::claim(std::span<const Claim> wanted, std::vector<Claim>& taken) {
  if (wanted.empty()) {
    return;
  }
  std::vector<Claim> left;
  left.reserve(free_.size() + wanted.size());
  auto next = wanted.begin();
  for (const Claim& interval : free_) {
    while (next != wanted.end() && next->end_ns <= interval.start_ns) {
      ++next;
    }
    uint64_t cursor_ns = interval.start_ns;
    // The last one may reach into the next free interval: `next` stays on it.
    for (auto want = next; want != wanted.end() && want->start_ns < interval.end_ns; ++want) {
      const Claim part = clipped(*want, cursor_ns, interval.end_ns);
      next = want;
      if (part.start_ns >= part.end_ns) {
        continue;
      }
      if (cursor_ns < part.start_ns) {
        left.push_back({cursor_ns, part.start_ns, 0});
      }
      taken.push_back(part);
      cursor_ns = part.end_ns;
    }
    if (cursor_ns < interval.end_ns) {
      left.push_back({cursor_ns, interval.end_ns, 0});
    }
  }
  free_.swap(left);
}

}  // namespace pollgap
