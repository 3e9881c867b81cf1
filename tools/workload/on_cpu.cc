// SPDX-License-Identifier: Apache-2.0
#include "tools/workload/on_cpu.h"

#include <thread>

#include "tools/workload/thread_setup.h"

namespace pollgap::workload {

Status run_on_polling_core(int cpu, const std::function<Status()>& action) {
  Status error;
  std::thread([&error, &action, cpu] {
    (void)set_thread_policy(Policy::fifo, 99);
    error = pin_thread(cpu);
    if (!error) error = action();
  }).join();
  return error;
}

}  // namespace pollgap::workload
