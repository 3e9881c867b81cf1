// SPDX-License-Identifier: Apache-2.0
// The ends of a thread's page faults: software perf events on that thread alone (period 1), which
// run a BPF program and interrupt nobody.
#pragma once

#include <bpf/libbpf.h>
#include <sys/types.h>

#include <memory>
#include <set>
#include <vector>

#include "probes/result.h"

namespace pollgap {

class FaultEvents {
 public:
  FaultEvents(const bpf_program* minor, const bpf_program* major) : minor_(minor), major_(major) {}

  // Follows the thread from now on; nothing happens for one already followed or gone.
  Status follow(pid_t tid);

 private:
  Status attach(const bpf_program* program, uint64_t event, pid_t tid);

  const bpf_program* minor_;
  const bpf_program* major_;
  std::set<pid_t> followed_;
  std::vector<std::unique_ptr<bpf_link, int (*)(bpf_link*)>> links_;
};

}  // namespace pollgap
