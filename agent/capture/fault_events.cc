// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/fault_events.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace pollgap {

Status FaultEvents::follow(pid_t tid) {
  if (!followed_.insert(tid).second) return std::nullopt;
  if (Status failed = attach(minor_, PERF_COUNT_SW_PAGE_FAULTS_MIN, tid)) return failed;
  return attach(major_, PERF_COUNT_SW_PAGE_FAULTS_MAJ, tid);
}

Status FaultEvents::attach(const bpf_program* program, uint64_t event, pid_t tid) {
  perf_event_attr attributes{};
  attributes.type = PERF_TYPE_SOFTWARE;
  attributes.size = sizeof(attributes);
  attributes.config = event;
  attributes.sample_period = 1;
  const long fd = syscall(SYS_perf_event_open, &attributes, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
  if (fd < 0 && errno == ESRCH) return std::nullopt;
  bpf_link* link = fd < 0 ? nullptr : bpf_program__attach_perf_event(program, static_cast<int>(fd));
  if (link == nullptr) {
    Error error{ExitCode::other, "cannot follow the page faults of thread " + std::to_string(tid) +
                                     ": " + std::strerror(errno)};
    if (fd >= 0) close(static_cast<int>(fd));
    return error;
  }
  links_.emplace_back(link, bpf_link__destroy);
  return std::nullopt;
}

}  // namespace pollgap
