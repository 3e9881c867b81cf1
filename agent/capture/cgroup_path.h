// SPDX-License-Identifier: Apache-2.0
// From a cgroup's id, as the kernel's kernfs node has it, to its path.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "probes/file_descriptor.h"

namespace pollgap {

// The cgroup file systems of this host, the cpu controller's first.
class CgroupMounts {
 public:
  CgroupMounts();

  // Below the mount: "/", "/system.slice/x.service". Empty where no mount knows the id.
  std::string path(uint64_t id) const;
  // Of the cpu controller: 1, 2, or 0 where there is none.
  int cpu_version() const { return cpu_version_; }

 private:
  struct Mount {
    std::string where;
    FileDescriptor directory;
  };
  std::vector<Mount> mounts_;
  int cpu_version_ = 0;
};

}  // namespace pollgap
