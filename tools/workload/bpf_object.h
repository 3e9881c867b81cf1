// SPDX-License-Identifier: Apache-2.0
// A loaded BPF skeleton, and its program run without an event.
#pragma once

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "probes/result.h"
#include "tools/workload/truth_log.h"

namespace pollgap::workload {

// Unloads it when it goes. Skeleton: a struct made by bpftool.
template <typename Skeleton>
class BpfObject {
 public:
  // needs: what the kernel must have, for the error.
  Status load(const std::string& needs) {
    libbpf_set_print(nullptr);  // its log is for a developer; the user gets one line
    skeleton_.reset(open());
    if (skeleton_ && Skeleton::load(skeleton_.get()) == 0) return std::nullopt;
    const int error = errno;
    skeleton_.reset();
    return Error{error == EPERM ? ExitCode::no_privilege : ExitCode::kernel_lacks,
                 fmt::format("the kernel refuses the BPF program: {} (needs CAP_BPF and "
                             "CAP_PERFMON, and {})",
                             std::strerror(error), needs)};
  }
  Status attach() {
    if (Skeleton::attach(skeleton_.get()) == 0) return std::nullopt;
    return Error{ExitCode::kernel_lacks,
                 fmt::format("cannot attach the BPF program: {}", std::strerror(errno))};
  }
  void unload() { skeleton_.reset(); }

  explicit operator bool() const { return skeleton_ != nullptr; }
  Skeleton* operator->() const { return skeleton_.get(); }

  // What bpf/spin.bpf.h has recorded, oldest first.
  std::vector<Occurrence> occurrences() const {
    std::vector<Occurrence> all;
    const auto* const bss = skeleton_->bss;
    constexpr uint64_t slots = std::extent_v<decltype(bss->occurrence_start_ns)>;
    const uint64_t count = bss->occurrence_count;
    for (uint64_t i = count > slots ? count - slots : 0; i < count; ++i) {
      all.push_back({bss->occurrence_start_ns[i % slots], bss->occurrence_end_ns[i % slots]});
    }
    return all;
  }

 private:
  static Skeleton* open() {
#ifdef __clang_analyzer__
    return nullptr;  // the analyzer sees a leak in what bpftool generates, where there is none
#else
    return Skeleton::open();
#endif
  }

  struct Destroy {
    void operator()(Skeleton* skeleton) const { Skeleton::destroy(skeleton); }
  };
  std::unique_ptr<Skeleton, Destroy> skeleton_;
};

// Runs a raw tracepoint program on that CPU, in the interrupt that reaches it; args[0] is the
// argument. Returns when it has run.
Status run_on_cpu(const bpf_program* program, int cpu, uint64_t argument);

// Runs a tc program once, on the calling thread's CPU.
Status run_here(const bpf_program* program);

}  // namespace pollgap::workload
