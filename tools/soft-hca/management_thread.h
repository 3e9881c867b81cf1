// SPDX-License-Identifier: Apache-2.0
// The thread that does for the adapter whatever may block: links to other processes, control
// commands, the files of the counters, the log of faults. It sleeps unless there is some of it.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "tools/soft-hca/control_server.h"
#include "tools/soft-hca/device.h"
#include "tools/soft-hca/device_thread.h"
#include "tools/soft-hca/fabric.h"
#include "tools/soft-hca/sysfs_tree.h"

namespace pollgap::soft_hca {

class ManagementThread : public Connector {
 public:
  ManagementThread(DeviceThread* device, SysfsTree* tree)
      : device_(device), tree_(tree), fabric_(device), control_(device) {}

  // Joins `fabric`, and writes what faults do to the end of the file `log` unless that is empty.
  // Call it before the device thread is started; process() is good from then on. Returns an empty
  // string or what failed.
  std::string join(const std::string& fabric, const std::string& log);
  uint32_t process() const { return fabric_.process(); }

  // Starts the thread, once the device thread runs. Returns an empty string or what failed.
  std::string start();
  // Ends it; the device thread has stopped.
  void stop();

  // In a child of fork(), where the thread is not.
  void close_in_child();

  void request_link(uint32_t process) override;
  void notify() override;

 private:
  static void* entry(void* self);
  void loop();
  void wake();
  void make_links();
  void write_log();

  DeviceThread* device_;
  SysfsTree* tree_;
  Fabric fabric_;
  ControlServer control_;
  pthread_t thread_{};
  bool started_ = false;
  int wake_fd_ = -1;
  int log_fd_ = -1;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> wanted_{0};  // a bit for each process to which a link is wanted
};

}  // namespace pollgap::soft_hca
