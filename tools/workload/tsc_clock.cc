// SPDX-License-Identifier: Apache-2.0
#include "tools/workload/tsc_clock.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>

#include "tools/workload/cycle_counter.h"
#include "tools/workload/monotonic.h"

namespace pollgap::workload {
namespace {

constexpr auto calibration_time = std::chrono::milliseconds(20);
constexpr auto anchor_interval = std::chrono::milliseconds(10);
constexpr int tries_per_anchor = 8;

}  // namespace

TscClock::Anchor TscClock::take_anchor() {
  // An interrupt between the reads widens the bracket: keep the narrowest of a few.
  Anchor best{0, 0, UINT64_MAX};
  for (int i = 0; i < tries_per_anchor; ++i) {
    const uint64_t before = read_cycles();
    const uint64_t mono_ns = monotonic_ns();
    const uint64_t width = read_cycles() - before;
    if (width < best.width_ticks) best = {before + width / 2, mono_ns, width};
  }
  return best;
}

TscClock::TscClock() {
  const Anchor first = take_anchor();
  std::this_thread::sleep_for(calibration_time);
  const Anchor second = take_anchor();
  ticks_per_ns_ = static_cast<double>(second.ticks - first.ticks) /
                  static_cast<double>(second.mono_ns - first.mono_ns);
  anchors_ = {first, second};
}

void TscClock::anchor() {
  const std::lock_guard lock(mutex_);
  const Anchor next = take_anchor();
  if (next.ticks > anchors_.back().ticks && next.mono_ns > anchors_.back().mono_ns) {
    anchors_.push_back(next);
  }
}

uint64_t TscClock::along(const Anchor& a, const Anchor& b, uint64_t ticks) const {
  const double slope =
      static_cast<double>(b.mono_ns - a.mono_ns) / static_cast<double>(b.ticks - a.ticks);
  const auto offset_ticks = static_cast<double>(static_cast<int64_t>(ticks - a.ticks));
  return a.mono_ns + static_cast<uint64_t>(static_cast<int64_t>(offset_ticks * slope));
}

uint64_t TscClock::to_mono_ns(uint64_t ticks) const {
  const std::lock_guard lock(mutex_);
  const Anchor& last = anchors_.back();
  // Not along the last two anchors: they may be a microsecond apart.
  if (ticks > last.ticks) return last.mono_ns + ns_in(ticks - last.ticks);
  auto after = std::upper_bound(anchors_.begin(), anchors_.end(), ticks,
                                [](uint64_t t, const Anchor& a) { return t < a.ticks; });
  after = std::clamp(after, anchors_.begin() + 1, anchors_.end() - 1);
  return along(*(after - 1), *after, ticks);
}

uint64_t TscClock::to_ticks(uint64_t mono_ns) const {
  const std::lock_guard lock(mutex_);
  const Anchor& last = anchors_.back();
  const auto offset_ns = static_cast<double>(static_cast<int64_t>(mono_ns - last.mono_ns));
  return last.ticks + static_cast<uint64_t>(static_cast<int64_t>(offset_ns * ticks_per_ns_));
}

uint64_t TscClock::ticks_in(uint64_t ns) const {
  return static_cast<uint64_t>(static_cast<double>(ns) * ticks_per_ns_);
}

uint64_t TscClock::ns_in(uint64_t ticks) const {
  return static_cast<uint64_t>(static_cast<double>(ticks) / ticks_per_ns_);
}

uint64_t TscClock::worst_anchor_ns() const {
  const std::lock_guard lock(mutex_);
  uint64_t worst = 0;
  for (const Anchor& a : anchors_) worst = std::max(worst, a.width_ticks);
  return ns_in(worst);
}

TscAnchorer::TscAnchorer(TscClock& clock)
    : thread_([&clock](const std::stop_token& stop) {
        pthread_setname_np(pthread_self(), "pg-clock");
        std::mutex mutex;
        std::condition_variable_any wakeup;
        std::unique_lock lock(mutex);
        while (!stop.stop_requested()) {
          clock.anchor();
          wakeup.wait_for(lock, stop, anchor_interval, [] { return false; });
        }
        clock.anchor();
      }) {}

void TscAnchorer::stop() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

}  // namespace pollgap::workload
