// SPDX-License-Identifier: Apache-2.0
// The files under which libibverbs looks for devices when SYSFS_PATH is set
// (rdma-core, libibverbs/init.c and libibverbs/sysfs.c).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tools/soft-hca/counters.h"

namespace pollgap::soft_hca {

// The tree of this process. It lies in a file system of its own that is mounted nowhere and
// vanishes with the process, however that ends; SYSFS_PATH leads to it through a descriptor. Where
// mounting is not permitted there are no files: the calls that libibverbs makes are answered by
// interpose.cc with what content() and has() say of paths in SYSFS_PATH.
class SysfsTree {
 public:
  SysfsTree() = default;
  ~SysfsTree() { remove(); }
  SysfsTree(const SysfsTree&) = delete;
  SysfsTree& operator=(const SysfsTree&) = delete;

  // Returns an empty string or what failed.
  std::string create();

  // Removes the tree. Does nothing when there is none, or in a child of the process that made it.
  void remove();

  // For this process; empty: there is none.
  const std::string& path() const { return path_; }
  // For any process while this one lives; empty: no other can see it.
  std::string public_path() const;

  // Tells of what has moved since the last time.
  void write_counters(const Counters& counters);

  // What a file of the tree contains, by its path in the tree; none: there is no such file.
  std::optional<std::string> content(std::string_view file) const;
  // Whether there is such a file or directory.
  static bool has(std::string_view path);

 private:
  std::string path_;
  int fd_ = -1;  // of the mount
  int owner_pid_ = 0;
  std::array<uint64_t, kCounters> written_{};
  std::atomic<const Counters*> counters_{nullptr};
};

// What SYSFS_PATH is where there are no files. Nothing can be there.
inline constexpr std::string_view kUnmountedPath = "/proc/self/soft-hca-sysfs";

}  // namespace pollgap::soft_hca
