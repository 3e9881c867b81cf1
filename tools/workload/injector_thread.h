// SPDX-License-Identifier: Apache-2.0
// A thread on the other CPU that does something at each occurrence of a schedule, as close to its
// time as a SCHED_FIFO thread can.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <thread>

#include "tools/workload/disturbance_spec.h"

namespace pollgap::workload {

class InjectorThread {
 public:
  // Called on the thread with the time that was set, and whether the thread is to stop.
  using Body = std::function<void(uint64_t time_ns)>;

  // lead_ns: the body is called that much earlier than the scheduled time.
  void start(const std::string& name, int cpu, const Schedule& schedule, Body body,
             uint64_t lead_ns = 0);
  // Waits for a body that is under way.
  void stop();
  bool running() const { return thread_.joinable(); }
  pid_t tid() const { return tid_; }

 private:
  pid_t tid_ = 0;
  std::jthread thread_;
};

// Returns at that CLOCK_MONOTONIC time, or early when asked to stop: then false.
bool sleep_until(uint64_t mono_ns, const std::stop_token& stop);

}  // namespace pollgap::workload
