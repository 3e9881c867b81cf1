/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Holds the polling core with a chain of short interrupts: at the end of each irq_work interrupt
 * the next one is raised, which the CPU takes as soon as it returns from this one. A ring buffer's
 * wakeup is what raises irq_work.
 */
#include "tools/workload/bpf/spin.bpf.h"

#include <bpf/bpf_tracing.h>

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 4 << 20); /* drained by user space between two storms */
} ring SEC(".maps");

__u32 storm_cpu;
__u64 storm_start_ns;
__u64 storm_until_ns;            /* 0: no storm */
__u64 storm_interrupts;          /* of the present storm */
__u64 storm_counts[OCCURRENCES]; /* interrupts, by occurrence */

/*
 * From the end of one interrupt to that of the next, where that was about as long as the shortest:
 * in between something else had the core.
 */
#define LONGEST_OF_LEAST 8
__u64 last_end_ns;
__u64 least_ns;
__u64 ran_ns;
__u64 storm_ran_ns[OCCURRENCES]; /* by occurrence */

static __always_inline int raise_next(void) {
  __u64 nothing = 0;

  return bpf_ringbuf_output(&ring, &nothing, sizeof(nothing), BPF_RB_FORCE_WAKEUP);
}

SEC("raw_tp")
int begin_storm(struct bpf_raw_tracepoint_args *context) {
  storm_start_ns = bpf_ktime_get_ns();
  storm_until_ns = storm_start_ns + context->args[0];
  storm_interrupts = 0;
  last_end_ns = storm_start_ns;
  least_ns = ~0ULL;
  ran_ns = 0;
  busy = 1;
  raise_next();
  return 0;
}

SEC("tp_btf/irq_work_exit")
int BPF_PROG(after_irq_work, int vector) {
  __u64 now_ns, took_ns;

  if (storm_until_ns == 0 || bpf_get_smp_processor_id() != storm_cpu) return 0;
  now_ns = bpf_ktime_get_ns();
  ++storm_interrupts;
  took_ns = now_ns - last_end_ns;
  last_end_ns = now_ns;
  if (took_ns < least_ns) least_ns = took_ns;
  if (took_ns < LONGEST_OF_LEAST * least_ns) ran_ns += took_ns;
  if (now_ns < storm_until_ns && raise_next() == 0) return 0;
  storm_until_ns = 0;
  storm_counts[occurrence_count & (OCCURRENCES - 1)] = storm_interrupts;
  storm_ran_ns[occurrence_count & (OCCURRENCES - 1)] = ran_ns;
  record_occurrence(storm_start_ns, now_ns);
  return 0;
}
