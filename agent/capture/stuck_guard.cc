// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/stuck_guard.h"

#include <chrono>
#include <utility>

namespace pollgap {
namespace {

constexpr std::chrono::milliseconds kPause{500};
// Twenty seconds: one turn may have to read a large file's symbols, on a slow machine. Counted, not
// measured: while the whole agent is stopped, its loop is not stuck.
constexpr int kPatience = 40;

}  // namespace

StuckGuard::StuckGuard(std::function<void()> shed)
    : shed_(std::move(shed)), thread_([this] { watch(); }) {}

StuckGuard::~StuckGuard() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void StuckGuard::watch() {
  uint64_t seen = 0;
  int patience = kPatience;
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kPause, [this] { return stop_; })) {
    const uint64_t turns = turns_;
    patience = turns == seen ? patience - 1 : kPatience;
    seen = turns;
    if (patience == 0) shed_();
  }
}

}  // namespace pollgap
