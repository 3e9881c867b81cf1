// SPDX-License-Identifier: Apache-2.0
// The thread that plays the adapter, and how other threads have it do something.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <type_traits>

#include "tools/soft-hca/device.h"

namespace pollgap::soft_hca {

class DeviceThread {
 public:
  struct Options {
    int cpu = -1;
    bool spin = true;
    uint64_t sleep_ns = 20'000;  // between two rounds, when it does not spin; more when idle
    bool real_time = false;      // SCHED_FIFO, where that is permitted
    int nice = 0;
    uint64_t completion_delay_ns = 0;
  };

  explicit DeviceThread(const Options& options)
      : options_(options), device_(options.completion_delay_ns) {}

  // Returns an empty string or what failed.
  std::string start();

  // Before start(): see Device::join().
  void join(uint32_t process, Connector* connector) { device_.join(process, connector); }

  // Ends the thread; run() fails from then on.
  void stop();

  // Calls `work(device)` on the device thread, between two rounds, and returns once it is done.
  // Returns false, with `work` not called, when the thread is not running.
  template <typename Work>
  bool run(Work&& work) {
    using Callable = std::remove_reference_t<Work>;
    Request request;
    request.work = &work;
    request.call = [](void* callable, Device* device) {
      (*static_cast<Callable*>(callable))(device);
    };
    return submit(&request);
  }

  // For what needs no place between two rounds.
  const Counters& counters() { return device_.counters(); }
  FaultLog& fault_log() { return device_.faults().log(); }
  void set_completion_delay(uint64_t delay_ns) { device_.set_completion_delay(delay_ns); }

 private:
  struct Request {
    void* work = nullptr;
    void (*call)(void* work, Device* device) = nullptr;
    Request* next = nullptr;
    std::atomic<uint32_t> done{0};
  };

  static constexpr int kSettingUp = -1;

  static void* entry(void* self);
  void loop();
  bool submit(Request* request);
  bool serve(Request* newest);
  void pause(uint64_t now_ns, bool worked);
  Request* closed() { return &closed_marker_; }

  const Options options_;
  Device device_;
  pthread_t thread_{};
  bool started_ = false;
  uint64_t last_work_ns_ = 0;
  std::atomic<int> setup_{kSettingUp};  // or 0, or an errno value
  std::atomic<bool> stopping_{false};
  Request closed_marker_;
  // The newest request first; closed() once no more are taken (and before the thread runs).
  std::atomic<Request*> requests_{&closed_marker_};
  std::atomic<uint32_t> wakeups_{0};
};

}  // namespace pollgap::soft_hca
