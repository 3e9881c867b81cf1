// SPDX-License-Identifier: Apache-2.0
// The files under which libibverbs looks for devices when SYSFS_PATH is set
// (rdma-core, libibverbs/init.c and libibverbs/sysfs.c).
#pragma once

#include <string>

namespace pollgap::soft_hca {

// The tree of this process, in a directory of its own under /dev/shm (or $TMPDIR, /tmp). The
// directory is locked (flock) while its owner lives, which tells a tree in use from one that a
// crashed process left behind.
class SysfsTree {
 public:
  SysfsTree() = default;
  ~SysfsTree() { remove(); }
  SysfsTree(const SysfsTree&) = delete;
  SysfsTree& operator=(const SysfsTree&) = delete;

  // Removes stale trees, then writes this one. Returns an empty string or what failed.
  std::string create();

  // Removes the tree. Does nothing when there is none, or in a child of the process that made it.
  void remove();

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int lock_fd_ = -1;
  int owner_pid_ = 0;
};

}  // namespace pollgap::soft_hca
