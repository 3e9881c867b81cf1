// SPDX-License-Identifier: Apache-2.0
// The files under which libibverbs looks for devices when SYSFS_PATH is set
// (rdma-core, libibverbs/init.c and libibverbs/sysfs.c).
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "tools/soft-hca/counters.h"

namespace pollgap::soft_hca {

// The tree of this process. It lies in a file system of its own that is mounted nowhere and
// vanishes with the process, however that ends; SYSFS_PATH leads to it through a descriptor. Where
// mounting is not permitted it is a directory under /dev/shm (or $TMPDIR, /tmp), locked (flock)
// while its owner lives, which tells a tree in use from one that a killed process left behind.
class SysfsTree {
 public:
  SysfsTree() = default;
  ~SysfsTree() { remove(); }
  SysfsTree(const SysfsTree&) = delete;
  SysfsTree& operator=(const SysfsTree&) = delete;

  // Writes the tree; under `parent` if that is not empty. Returns an empty string or what failed.
  std::string create(const std::string& parent);

  // Removes the tree. Does nothing when there is none, or in a child of the process that made it.
  void remove();

  // For this process, and for any process while this one lives.
  const std::string& path() const { return path_; }
  std::string public_path() const;

  // Writes what has moved since the last time to the files of the counters.
  void write_counters(const Counters& counters);

 private:
  std::string create_directory(const std::string& base);

  std::string path_;
  int fd_ = -1;  // of the directory, locked, or of the mount
  bool mounted_ = false;
  int owner_pid_ = 0;
  std::array<uint64_t, kCounters> written_{};
};

}  // namespace pollgap::soft_hca
