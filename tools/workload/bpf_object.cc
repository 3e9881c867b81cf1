// SPDX-License-Identifier: Apache-2.0
#include "tools/workload/bpf_object.h"

#include <linux/bpf.h>

#include <array>

namespace pollgap::workload {
namespace {

Status run(const bpf_program* program, bpf_test_run_opts& options) {
  const int error = bpf_prog_test_run_opts(bpf_program__fd(program), &options);
  if (error == 0) return std::nullopt;
  return Error{ExitCode::kernel_lacks,
               fmt::format("BPF_PROG_TEST_RUN of {}: {} (running a raw tracepoint program on "
                           "another CPU needs kernel 5.10)",
                           bpf_program__name(program), std::strerror(-error))};
}

}  // namespace

Status run_on_cpu(const bpf_program* program, int cpu, uint64_t argument) {
  std::array<uint64_t, 12> arguments{argument};  // MAX_BPF_FUNC_ARGS
  LIBBPF_OPTS(bpf_test_run_opts, options);
  options.ctx_in = arguments.data();
  options.ctx_size_in = sizeof arguments;
  options.flags = BPF_F_TEST_RUN_ON_CPU;
  options.cpu = static_cast<uint32_t>(cpu);
  return run(program, options);
}

Status run_here(const bpf_program* program) {
  std::array<char, 64> packet{};  // more than an Ethernet header, which the kernel asks for
  LIBBPF_OPTS(bpf_test_run_opts, options);
  options.data_in = packet.data();
  options.data_size_in = packet.size();
  options.repeat = 1;
  return run(program, options);
}

}  // namespace pollgap::workload
