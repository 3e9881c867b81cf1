/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Makes the handler of a device's interrupt long, once each time that it is armed. It runs between
 * the handler's return and the kernel's own account of it, on the interrupted core.
 */
#include "tools/workload/bpf/spin.bpf.h"

#include <bpf/bpf_tracing.h>

int irq_number;
__u32 irq_cpu;
__u64 armed_length_ns; /* 0: not armed */

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(after_handler, int irq) {
  __u64 length_ns = armed_length_ns;

  if (irq != irq_number || length_ns == 0 || bpf_get_smp_processor_id() != irq_cpu) return 0;
  armed_length_ns = 0;
  spin(length_ns);
  return 0;
}
