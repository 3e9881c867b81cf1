// SPDX-License-Identifier: Apache-2.0
// Sees to it that the target does not pay for an agent that is stuck: whose loop does not come
// around, as nobody reads its output, or a disk hangs.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace pollgap {

class StuckGuard {
 public:
  // `shed` is called, by a thread of the guard's own, when turn() has not been for twenty seconds;
  // once, until turn() has been again.
  explicit StuckGuard(std::function<void()> shed);
  ~StuckGuard();
  StuckGuard(const StuckGuard&) = delete;
  StuckGuard& operator=(const StuckGuard&) = delete;

  // The loop has come around.
  void turn() { ++turns_; }

 private:
  void watch();

  const std::function<void()> shed_;
  std::atomic<uint64_t> turns_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace pollgap
