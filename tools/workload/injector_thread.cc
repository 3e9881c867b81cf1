// SPDX-License-Identifier: Apache-2.0
#include "tools/workload/injector_thread.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>

#include "tools/workload/monotonic.h"
#include "tools/workload/thread_setup.h"

namespace pollgap::workload {
namespace {

constexpr int injector_priority = 20;

}  // namespace

bool sleep_until(uint64_t mono_ns, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any wakeup;
  std::unique_lock lock(mutex);
  // steady_clock is CLOCK_MONOTONIC in libstdc++.
  const std::chrono::steady_clock::time_point time{
      std::chrono::nanoseconds(static_cast<int64_t>(mono_ns))};
  wakeup.wait_until(lock, stop, time, [] { return false; });
  return !stop.stop_requested();
}

void InjectorThread::start(const std::string& name, int cpu, const Schedule& schedule, Body body,
                           uint64_t lead_ns) {
  std::promise<pid_t> tid;
  std::future<pid_t> tid_known = tid.get_future();
  thread_ = std::jthread([&tid, name, cpu, schedule = Schedule(schedule), body = std::move(body),
                          lead_ns](const std::stop_token& stop) mutable {
    name_thread(name);
    // Without the right to either it is only less punctual: what is logged is measured.
    (void)pin_thread(cpu);
    (void)set_thread_policy(Policy::fifo, injector_priority);
    tid.set_value(gettid());
    while (const std::optional<uint64_t> time_ns = schedule.next(monotonic_ns() + lead_ns)) {
      if (!sleep_until(*time_ns - lead_ns, stop)) return;
      body(*time_ns);
    }
  });
  tid_ = tid_known.get();
}

void InjectorThread::stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

}  // namespace pollgap::workload
