// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/soft_hca.h"

#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>

#include "tools/soft-hca/clock.h"
#include "tools/soft-hca/control.h"
#include "tools/soft-hca/device_thread.h"
#include "tools/soft-hca/interpose.h"
#include "tools/soft-hca/management_thread.h"
#include "tools/soft-hca/sysfs_tree.h"
#include "tools/soft-hca/uverbs.h"

namespace pollgap::soft_hca {
namespace {

constexpr char kSysfsVariable[] = "SYSFS_PATH";

// One adapter a process, never destroyed: libraries may still close their device while the process
// exits. `uverbs` then answers EIO, as the kernel does for a device that was unplugged.
struct Adapter {
  Adapter(const Options& options, SysfsTree* tree)
      : thread({options.cpu, options.spin, options.sleep_ns, options.real_time, options.nice,
                options.completion_delay_ns}),
        management(&thread, tree) {}
  DeviceThread thread;
  ManagementThread management;
  std::optional<Uverbs> uverbs;
};

struct Process {
  std::mutex lifecycle;
  bool started = false;
  Options options;
  SysfsTree tree;
};

// Never destroyed, for the same reason.
Process& process() {
  static auto* const only = new Process;
  return *only;
}

std::atomic<Adapter*> adapter{nullptr};

// A child has neither thread.
void disable_in_child() {
  answer_device_calls(nullptr);
  Adapter* parents = adapter.exchange(nullptr);
  if (parents != nullptr) parents->management.close_in_child();
}

std::string launch(const Options& options) {
  auto started = std::make_unique<Adapter>(options, &process().tree);
  const bool shared = !options.fabric.empty();
  std::string problem;
  if (shared) {
    problem = started->management.join(options.fabric, options.log);
    if (!problem.empty()) return problem;
    started->thread.join(started->management.process(), &started->management);
  }
  problem = started->thread.start();
  if (problem.empty() && shared) problem = started->management.start();
  if (!problem.empty()) return problem;
  started->uverbs.emplace(&started->thread, started->management.process(), options.cqe_version != 0,
                          options.registration_ns_per_page);
  answer_device_calls(&*started->uverbs);
  adapter.store(started.release());
  return "";
}

Uverbs* launch_at_first_open() {
  const std::lock_guard lock(process().lifecycle);
  if (adapter.load() == nullptr) {
    const std::string problem = launch(process().options);
    if (!problem.empty()) {
      std::fprintf(stderr, "soft-hca: %s\n", problem.c_str());
      return nullptr;
    }
  }
  return &*adapter.load()->uverbs;
}

std::string start(const Options& options, bool now) {
  const std::lock_guard lock(process().lifecycle);
  if (options.cqe_version != 0 && options.cqe_version != 1) return "there are CQE versions 0 and 1";
  if (process().started) return "the soft adapter can be started only once a process";
  std::string problem = interposition_problem();
  if (problem.empty()) problem = process().tree.create();
  if (problem.empty() && now) problem = launch(options);
  if (!problem.empty()) return problem;
  process().started = true;
  process().options = options;
  if (process().tree.path() == kUnmountedPath) answer_sysfs_calls(&process().tree);
  setenv(kSysfsVariable, process().tree.path().c_str(), 1);
  if (!now) answer_device_calls_from_first_open(&launch_at_first_open);
  pthread_atfork(nullptr, nullptr, disable_in_child);
  std::atexit(stop);
  return "";
}

}  // namespace

std::string start(const Options& options) { return start(options, /*now=*/true); }

std::string start_at_first_open(const Options& options) { return start(options, /*now=*/false); }

void stop() {
  const std::lock_guard lock(process().lifecycle);
  Adapter* running = adapter.load();
  if (running != nullptr) {
    running->thread.stop();  // first: it reads the links
    running->management.stop();
  }
  if (!process().started) return;
  answer_sysfs_calls(nullptr);
  process().tree.remove();
  unsetenv(kSysfsVariable);
}

std::string sysfs_path() {
  const std::lock_guard lock(process().lifecycle);
  return process().tree.public_path();
}

std::string control(const std::string& command) {
  Adapter* running = adapter.load();
  return running == nullptr ? "error: the adapter has not been started"
                            : execute_control(&running->thread, command);
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

const std::atomic<uint64_t>* ready_since_ns(const ibv_cq* cq) {
  Adapter* running = adapter.load();
  const CompletionQueue* queue =
      running == nullptr ? nullptr : running->uverbs->find_cq(reinterpret_cast<uintptr_t>(cq));
  return queue == nullptr ? nullptr : &queue->ready_since_ns();
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
