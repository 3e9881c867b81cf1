/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the workload's BPF programs share: holding the CPU for a while, and remembering when.
 */
#ifndef POLLGAP_WORKLOAD_SPIN_BPF_H
#define POLLGAP_WORKLOAD_SPIN_BPF_H

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

/* bpf_loop's own limit (BPF_MAX_LOOPS); at 10 ns a step and more it is not reached in 80 ms. */
#define SPIN_MOST_STEPS (1U << 23)
#define OCCURRENCES 4096 /* a power of two, so that an index can be masked */

/* Read by user space through the memory-mapped .bss. The newest overwrite the oldest. */
__u64 occurrence_start_ns[OCCURRENCES];
__u64 occurrence_end_ns[OCCURRENCES];
__u64 occurrence_count;
__u32 busy; /* 1: an occurrence is under way, and not among them yet */

static long spin_step(__u32 step, void *until_ns) {
  return bpf_ktime_get_ns() >= *(__u64 *)until_ns;
}

static __always_inline void record_occurrence(__u64 start_ns, __u64 end_ns) {
  __u64 slot = occurrence_count & (OCCURRENCES - 1);

  occurrence_start_ns[slot] = start_ns;
  occurrence_end_ns[slot] = end_ns;
  ++occurrence_count;
  busy = 0;
}

/* Holds the CPU for length_ns from now, in whatever context it is called. */
static __always_inline void spin(__u64 length_ns) {
  __u64 start_ns = bpf_ktime_get_ns();
  __u64 until_ns = start_ns + length_ns;

  busy = 1;
  bpf_loop(SPIN_MOST_STEPS, spin_step, &until_ns, 0);
  record_occurrence(start_ns, bpf_ktime_get_ns());
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#endif /* POLLGAP_WORKLOAD_SPIN_BPF_H */
