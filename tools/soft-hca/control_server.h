// SPDX-License-Identifier: Apache-2.0
// Takes control commands from other processes, over an abstract socket that is named after this
// process: one command a message, one message in answer.
#pragma once

#include <poll.h>

#include <string>
#include <vector>

#include "tools/soft-hca/device_thread.h"

namespace pollgap::soft_hca {

// For the management thread, once start() was called.
class ControlServer {
 public:
  explicit ControlServer(DeviceThread* device) : device_(device) {}
  ~ControlServer() { close_all(); }
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  // Returns an empty string or what failed.
  std::string start(const std::string& fabric);

  void add_descriptors(std::vector<pollfd>* descriptors) const;
  void serve(const std::vector<pollfd>& descriptors);

  // In a child of fork().
  void close_all();

 private:
  bool serve(int client);

  DeviceThread* device_;
  int listener_ = -1;
  std::vector<int> clients_;
};

}  // namespace pollgap::soft_hca
