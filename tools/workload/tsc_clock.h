// SPDX-License-Identifier: Apache-2.0
// Turns stamps of the cycle counter into CLOCK_MONOTONIC nanoseconds.
//
// Each anchor is a counter value and the clock read at the same moment. A stamp that lies between
// two anchors is interpolated, so the slewing of the clock (adjtimex) and an imprecise frequency
// cost nothing as long as anchors are added every few ten milliseconds. The polling threads only
// read the counter; everything here happens elsewhere.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

namespace pollgap::workload {

class TscClock {
 public:
  // Measures the frequency: takes about 20 ms.
  TscClock();

  // Adds an anchor. Thread-safe.
  void anchor();

  // The time of a stamp: interpolated, or, after the last anchor, extrapolated from that by the
  // frequency measured at construction. Thread-safe.
  uint64_t to_mono_ns(uint64_t ticks) const;

  // The stamp that the counter will show at a time, extrapolated from the newest anchor.
  uint64_t to_ticks(uint64_t mono_ns) const;

  // Lengths, by the frequency measured at construction.
  uint64_t ticks_in(uint64_t ns) const;
  uint64_t ns_in(uint64_t ticks) const;
  double ticks_per_ns() const { return ticks_per_ns_; }

  // The widest bracket of any anchor: the clock was read somewhere inside it, so a converted stamp
  // is off by no more than half of it (plus what interpolation loses, which is less).
  uint64_t worst_anchor_ns() const;

 private:
  struct Anchor {
    uint64_t ticks;
    uint64_t mono_ns;
    uint64_t width_ticks;
  };
  static Anchor take_anchor();
  uint64_t along(const Anchor& a, const Anchor& b, uint64_t ticks) const;

  double ticks_per_ns_ = 0;
  mutable std::mutex mutex_;
  std::vector<Anchor> anchors_;  // guarded by mutex_, ascending
};

// Adds an anchor every 10 ms from a thread of its own, from construction to destruction.
class TscAnchorer {
 public:
  explicit TscAnchorer(TscClock& clock);
  void stop();

 private:
  std::jthread thread_;
};

}  // namespace pollgap::workload
