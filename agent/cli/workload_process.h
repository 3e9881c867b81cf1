// SPDX-License-Identifier: Apache-2.0
// A child process that runs pollgap-workload.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "probes/result.h"

namespace pollgap {

class WorkloadProcess {
 public:
  // Starts it and waits until it polls. Its files are in `directory`, which must be empty of those
  // of an earlier one. An Error of code kernel_lacks: it refuses a disturbance;
  // refused_disturbance() says which.
  static Result<std::unique_ptr<WorkloadProcess>> start(const std::filesystem::path& program,
                                                        const std::filesystem::path& directory,
                                                        const std::vector<std::string>& options);
  ~WorkloadProcess();
  WorkloadProcess(const WorkloadProcess&) = delete;
  WorkloadProcess& operator=(const WorkloadProcess&) = delete;

  pid_t pid() const { return pid_; }
  // The disturbances begin.
  Status go() const;
  // Ends it and waits until its log is written.
  Status end();
  std::filesystem::path log() const { return directory_ / "truth.jsonl"; }

 private:
  WorkloadProcess(pid_t pid, std::filesystem::path directory)
      : pid_(pid), directory_(std::move(directory)) {}
  int wait();  // its wait status

  pid_t pid_;  // 0: it has ended
  std::filesystem::path directory_;
};

// The NAME in a workload's "--disturb NAME: why"; "" if the message is another.
std::string refused_disturbance(const std::string& message);

}  // namespace pollgap
