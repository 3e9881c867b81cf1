// SPDX-License-Identifier: Apache-2.0
// Uprobes in one process. Through one link for many sites where the kernel can
// (BPF_TRACE_UPROBE_MULTI, used here since 6.11), else one perf event a site. The breakpoints go
// when the object is destroyed.
#pragma once

#include <bpf/libbpf.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "probes/file_descriptor.h"
#include "probes/result.h"

namespace pollgap {

struct UprobePlace {
  std::string path;     // through which the kernel finds the file
  uint64_t offset = 0;  // in it
  uint64_t cookie = 0;
};

class UprobeLinks {
 public:
  UprobeLinks(pid_t pid, bool multi) : pid_(pid), multi_(multi) {}
  UprobeLinks(const UprobeLinks&) = delete;
  UprobeLinks& operator=(const UprobeLinks&) = delete;
  ~UprobeLinks() { detach(); }

  // Puts `program` at every place; at returns of the functions that begin there with `at_return`.
  Status attach(const bpf_program* program, bool at_return, const std::vector<UprobePlace>& places);
  // Takes all of them off, also if the process is killed meanwhile. Forks.
  void detach();
  size_t count() const { return count_; }

 private:
  Status attach_multi(const bpf_program* program, bool at_return, const std::string& path,
                      const std::vector<UprobePlace>& places);
  Status attach_one(const bpf_program* program, bool at_return, const UprobePlace& place);

  pid_t pid_;
  bool multi_;
  size_t count_ = 0;
  std::vector<FileDescriptor> links_;
};

}  // namespace pollgap
