// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/soft_hca.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "tools/soft-hca/clock.h"
#include "tools/soft-hca/device_thread.h"
#include "tools/soft-hca/interpose.h"
#include "tools/soft-hca/sysfs_tree.h"
#include "tools/soft-hca/uverbs.h"

namespace pollgap::soft_hca {
namespace {

constexpr char kSysfsVariable[] = "SYSFS_PATH";

// One adapter a process, never destroyed: libraries may still close their device while the process
// exits. `uverbs` then answers EIO, as the kernel does for a device that was unplugged.
struct Adapter {
  explicit Adapter(const Options& options)
      : thread({options.cpu, options.spin, options.nice, options.completion_delay_ns}),
        uverbs(&thread, 0, options.registration_ns_per_page) {}
  DeviceThread thread;
  Uverbs uverbs;
  SysfsTree sysfs;
};

std::mutex lifecycle;
std::atomic<Adapter*> adapter{nullptr};

// A child has no device thread, and what is on disk is its parent's.
void disable_in_child() {
  answer_device_calls(nullptr);
  adapter.store(nullptr);
}

}  // namespace

std::string start(const Options& options) {
  const std::lock_guard lock(lifecycle);
  if (adapter.load() != nullptr) return "the soft adapter can be started only once a process";
  std::string problem = interposition_problem();
  if (!problem.empty()) return problem;

  auto started = std::make_unique<Adapter>(options);
  problem = started->sysfs.create();
  if (!problem.empty()) return problem;
  problem = started->thread.start();
  if (!problem.empty()) return problem;
  setenv(kSysfsVariable, started->sysfs.path().c_str(), 1);
  answer_device_calls(&started->uverbs);
  adapter.store(started.release());
  pthread_atfork(nullptr, nullptr, disable_in_child);
  std::atexit(stop);
  return "";
}

void stop() {
  const std::lock_guard lock(lifecycle);
  Adapter* running = adapter.load();
  if (running == nullptr) return;
  running->thread.stop();
  running->sysfs.remove();
  unsetenv(kSysfsVariable);
}

void set_completion_delay(uint64_t delay_ns) {
  Adapter* running = adapter.load();
  if (running != nullptr) running->thread.set_completion_delay(delay_ns);
}

uint64_t hold_completions(uint64_t duration_ns) {
  uint64_t until = now_ns() + duration_ns;
  Adapter* running = adapter.load();
  if (running != nullptr) {
    running->thread.run([&](Device* device) { until = device->hold_until(until, now_ns()); });
  }
  return until;
}

int64_t fail_qp(uint32_t qp_num, uint8_t first_syndrome, uint8_t vendor_err) {
  int64_t written = -1;
  Adapter* running = adapter.load();
  if (running != nullptr) {
    running->thread.run(
        [&](Device* device) { written = device->fail(qp_num, first_syndrome, vendor_err); });
  }
  return written;
}

}  // namespace pollgap::soft_hca
