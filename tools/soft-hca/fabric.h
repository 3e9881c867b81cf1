// SPDX-License-Identifier: Apache-2.0
// How processes that share the adapter find each other. Each takes a number by binding an abstract
// socket (unix(7)) whose name holds it: the kernel keeps numbers apart, and takes one back when its
// process ends in whatever way. A process that wants a link makes the shared memory for it, a
// memfd, and sends it over a connection, whose end tells the other that it is gone. So nothing is
// left anywhere.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "tools/soft-hca/device_thread.h"
#include "tools/soft-hca/link.h"

namespace pollgap::soft_hca {

// The prefix of the adapter's abstract socket names: processes of one user that name the same
// fabric see each other.
std::string socket_prefix(const std::string& fabric);

// All functions but process() are for the management thread, once start() was called.
class Fabric {
 public:
  explicit Fabric(DeviceThread* device) : device_(device) {}
  ~Fabric();
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  // Takes a number. Returns an empty string or what failed.
  std::string start(const std::string& fabric);
  uint32_t process() const { return process_; }

  // Makes a link to `process`, or tells the device that there is none to be had.
  void connect(uint32_t process);

  // What to wait for, and what to do when some of it has come.
  void add_descriptors(std::vector<pollfd>* descriptors) const;
  void serve(const std::vector<pollfd>& descriptors);

  // In a child of fork(), which is not to keep its parent's connections open.
  void close_all();

 private:
  // One with its socket; the link is null while a newcomer has not sent its memory.
  struct Connection {
    int fd = -1;
    std::unique_ptr<Link> link;
  };

  void accept_newcomers();
  // False: the connection is to be closed.
  bool serve(Connection* connection);
  bool take_link(Connection* connection);
  void drop(Connection* connection);

  DeviceThread* device_;
  std::string prefix_;
  uint32_t process_ = 0;
  int listener_ = -1;
  std::list<Connection> connections_;
};

}  // namespace pollgap::soft_hca
