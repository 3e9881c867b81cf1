// SPDX-License-Identifier: Apache-2.0
// A CPU cgroup of its own for some threads, below the cgroup that this process is in.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "probes/result.h"

namespace pollgap::workload {

// In the v1 hierarchy that has the cpu controller, else in the v2 one, as a threaded group. Gone
// when the object goes, and the threads back in its parent.
class CpuCgroup {
 public:
  static Result<std::unique_ptr<CpuCgroup>> create(const std::string& name);
  ~CpuCgroup();
  CpuCgroup(const CpuCgroup&) = delete;
  CpuCgroup& operator=(const CpuCgroup&) = delete;

  // Of this process, or of one that is in the same group as this.
  Status add_thread(pid_t tid);
  void remove_threads();

  // The largest that there is: what else wants the CPU gets next to nothing of it.
  Status set_largest_weight();

  // Lets its threads run quota_ns in each period_ns.
  Status set_quota(uint64_t quota_ns, uint64_t period_ns);
  // The same for real-time threads: v1 with RT_GROUP_SCHED only.
  Status set_real_time_quota(uint64_t runtime_ns, uint64_t period_ns);

  struct Throttling {
    uint64_t count = 0;
    uint64_t total_ns = 0;
  };
  Throttling throttling() const;  // by the quota, so far (cpu.stat)

  const std::string& path() const { return path_; }  // below the mount, as /proc/PID/cgroup has it

 private:
  CpuCgroup() = default;
  Status make(const std::string& mount, const std::string& parent, const std::string& name);
  Status make_threaded();
  Status write(const std::string& file, const std::string& text) const;

  bool v2_ = false;
  bool enabled_controller_ = false;  // v2: in the parent, for us
  bool made_ = false;
  std::string parent_directory_;
  std::string directory_;
  std::string path_;
  std::vector<pid_t> tids_;
};

}  // namespace pollgap::workload
