// SPDX-License-Identifier: Apache-2.0
// Timers that cost the same however many are running: a hashed wheel whose slots are lists. One
// turn takes longer than most retransmission timers; a timer further away stays in its slot for
// several turns.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

namespace pollgap::soft_hca {

// Embedded in what waits; it must be stopped before that is freed.
class Timer {
 public:
  bool running() const { return deadline_ns_ != kStopped; }
  uint64_t deadline_ns() const { return deadline_ns_; }

 private:
  friend class TimerWheel;
  static constexpr uint64_t kStopped = std::numeric_limits<uint64_t>::max();
  uint64_t deadline_ns_ = kStopped;
  Timer* next_ = nullptr;
  Timer* previous_ = nullptr;
};

class TimerWheel {
 public:
  static constexpr uint64_t kSlotNs = 1 << 15;  // 33 us
  static constexpr uint32_t kSlots = 4096;      // a turn: 134 ms

  explicit TimerWheel(uint64_t now_ns) : swept_(now_ns / kSlotNs) {}

  // (Re)starts `timer`, which then ends at `deadline_ns`, to the nanosecond.
  void start(Timer* timer, uint64_t deadline_ns);
  void stop(Timer* timer);

  // Takes out a timer that has ended by `now_ns`; null when there is none. To be called until then:
  // a timer that is started in between may be returned as well.
  Timer* take_ended(uint64_t now_ns);

  // When to look again: at or before the earliest deadline. Only right once take_ended() has
  // returned null.
  uint64_t next_look_ns() const;

 private:
  void link(Timer* timer);
  void unlink(Timer* timer);
  static uint32_t slot_of(uint64_t tick) { return static_cast<uint32_t>(tick % kSlots); }

  std::array<Timer*, kSlots> slots_{};
  std::array<uint64_t, kSlots / 64> occupied_{};
  uint64_t swept_;  // the tick that is being swept: earlier ones hold no timer that has ended
  uint32_t running_ = 0;
};

}  // namespace pollgap::soft_hca
