/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Holds the polling core in the interrupt by which BPF_PROG_TEST_RUN reaches another CPU. */
#include "tools/workload/bpf/spin.bpf.h"

SEC("raw_tp")
int hold(struct bpf_raw_tracepoint_args *context) {
  spin(context->args[0]);
  return 0;
}
