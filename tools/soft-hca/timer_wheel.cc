// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/timer_wheel.h"

#include <algorithm>
#include <bit>

namespace pollgap::soft_hca {

void TimerWheel::link(Timer* timer) {
  const uint32_t slot = slot_of(timer->deadline_ns_ / kSlotNs);
  timer->previous_ = nullptr;
  timer->next_ = slots_[slot];
  if (timer->next_ != nullptr) timer->next_->previous_ = timer;
  slots_[slot] = timer;
  occupied_[slot / 64] |= uint64_t{1} << (slot % 64);
  ++running_;
}

void TimerWheel::unlink(Timer* timer) {
  const uint32_t slot = slot_of(timer->deadline_ns_ / kSlotNs);
  if (timer->previous_ != nullptr) {
    timer->previous_->next_ = timer->next_;
  } else {
    slots_[slot] = timer->next_;
  }
  if (timer->next_ != nullptr) timer->next_->previous_ = timer->previous_;
  if (slots_[slot] == nullptr) occupied_[slot / 64] &= ~(uint64_t{1} << (slot % 64));
  --running_;
}

// A deadline in the past goes where the sweep will come next.
void TimerWheel::start(Timer* timer, uint64_t deadline_ns) {
  stop(timer);
  timer->deadline_ns_ = std::max(deadline_ns, swept_ * kSlotNs);
  if (timer->running()) link(timer);
}

void TimerWheel::stop(Timer* timer) {
  if (!timer->running()) return;
  unlink(timer);
  timer->deadline_ns_ = Timer::kStopped;
}

Timer* TimerWheel::take_ended(uint64_t now_ns) {
  const uint64_t tick = now_ns / kSlotNs;
  if (running_ == 0) {
    swept_ = std::max(swept_, tick);
    return nullptr;
  }
  // After a long pause one turn sees every slot.
  if (tick - std::min(swept_, tick) >= kSlots) swept_ = tick - (kSlots - 1);
  for (;; ++swept_) {
    for (Timer* timer = slots_[slot_of(swept_)]; timer != nullptr; timer = timer->next_) {
      if (timer->deadline_ns_ > now_ns) continue;
      stop(timer);
      return timer;
    }
    if (swept_ >= tick) return nullptr;
  }
}

uint64_t TimerWheel::next_look_ns() const {
  if (running_ == 0) return std::numeric_limits<uint64_t>::max();
  uint64_t earliest = std::numeric_limits<uint64_t>::max();
  // The first occupied slot from here on; its timers may be turns away, then their own slot's time
  // in this turn is as good as any.
  for (uint32_t step = 0; step <= kSlots / 64; ++step) {
    const uint32_t first = slot_of(swept_);
    const uint32_t word = (first / 64 + step) % (kSlots / 64);
    uint64_t bits = occupied_[word];
    if (step == 0) bits &= ~uint64_t{0} << (first % 64);
    if (bits == 0) continue;
    const uint32_t slot = word * 64 + static_cast<uint32_t>(std::countr_zero(bits));
    for (const Timer* timer = slots_[slot]; timer != nullptr; timer = timer->next_) {
      earliest = std::min(earliest, timer->deadline_ns_);
    }
    const uint64_t slot_time = (swept_ + (slot + kSlots - first) % kSlots + 1) * kSlotNs;
    return std::min(earliest, slot_time);
  }
  return earliest;
}

}  // namespace pollgap::soft_hca
