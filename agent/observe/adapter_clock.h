// SPDX-License-Identifier: Apache-2.0
// An adapter's clock, by which it stamps the completions it makes, on the host's clock. Pure.
//
// Neither its rate nor its offset is known, and the adapter is not asked. But a completion that one
// look did not find and the next did was written between the two, and made before it was written.
// The clock is the line from stamps to host time that lies below all those ends, as close to them
// as can be; what was written long after it was made lies above it. It is believed only while half
// of the completions and more lie as close to it as looks are apart.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "agent/observe/silence.h"

namespace pollgap {

class AdapterClock {
 public:
  // A completion of that stamp (ticks) was written in that window of host time.
  void add(uint64_t stamp, const Window& written);

  // When the adapter made a completion of that stamp; nullopt: its clock is not known, not steady,
  // or was last seen too long before.
  std::optional<Window> host_time(uint64_t stamp);

 private:
  struct Sample {
    uint64_t stamp = 0;
    Window written;
  };
  // From ticks since `origin` to host time.
  struct Line {
    uint64_t origin = 0;
    double at_origin_ns = 0;
    double ns_per_tick = 0;
    double from_ticks = 0, to_ticks = 0;
    double uncertainty_ns = 0;  // either way, between those two
  };

  void fit();

  std::deque<Sample> samples_;  // as they came
  std::optional<Line> line_;
  bool stale_ = true;  // samples came since the line was drawn
};

}  // namespace pollgap
