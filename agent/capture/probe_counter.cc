// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/probe_counter.h"

#include <algorithm>
#include <map>
#include <utility>

namespace pollgap {

uint64_t ProbeCounter::most_on_a_core() {
  const auto& clocks = programs_.clocks();
  std::map<uint32_t, uint64_t> by_core;
  const uint64_t others = programs_.others_probed();
  uint64_t most = others - std::exchange(others_counted_, others);
  for (size_t slot = 0; slot < clocks.size() && clocks[slot].tid != 0; ++slot) {
    const uint64_t probed = clocks[slot].probed;
    if (slot == counted_.size()) counted_.push_back(0);
    const uint32_t cpu = clocks[slot].cpu;
    uint64_t& core = by_core[cpu];
    core += probed - counted_[slot];
    most = std::max(most, core);
    counted_[slot] = probed;
  }
  return most;
}

uint64_t ProbeCounter::closest_ns() const {
  const auto& clocks = programs_.clocks();
  uint64_t closest_ns = UINT64_MAX;
  for (size_t slot = 0; slot < clocks.size() && clocks[slot].tid != 0; ++slot)
    if (const uint64_t ns = clocks[slot].closest_ns; ns != 0) closest_ns = std::min(closest_ns, ns);
  return closest_ns == UINT64_MAX ? 0 : closest_ns;
}

}  // namespace pollgap
