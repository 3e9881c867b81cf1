/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A BPF timer that occurs on a schedule, on the CPU where it was first armed. It runs in the
 * HRTIMER softirq. The including program defines on_time(), and runs arm_timer once on the polling
 * core.
 */
#ifndef POLLGAP_WORKLOAD_TIMER_BPF_H
#define POLLGAP_WORKLOAD_TIMER_BPF_H

#include "tools/workload/bpf/spin.bpf.h"

#define CLOCK_MONOTONIC 1
#define TIMER_PINNED (1U << 1) /* BPF_F_TIMER_CPU_PIN, since 6.7 */

struct timer_slot {
  struct bpf_timer timer;
};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct timer_slot);
} timer_slots SEC(".maps");

/* CLOCK_MONOTONIC; set by user space before it runs arm_timer. */
__u64 next_ns;
__u64 period_ns;
__u64 length_ns;
__u64 remaining; /* occurrences; all ones: without end */
int arm_result;

static __always_inline void on_time(void);

static __always_inline int start_timer(struct timer_slot *slot) {
  __u64 now_ns = bpf_ktime_get_ns();
  __u64 delay_ns = next_ns > now_ns ? next_ns - now_ns : 0;
  int error = bpf_timer_start(&slot->timer, delay_ns, TIMER_PINNED);

  /* Older kernels know no flag; there a timer armed on a busy CPU stays on it. */
  return error ? bpf_timer_start(&slot->timer, delay_ns, 0) : 0;
}

static int on_timer(void *map, __u32 *key, struct timer_slot *slot) {
  if (remaining == 0) return 0;
  on_time();
  if (remaining != ~0ULL) --remaining;
  next_ns += period_ns;
  if (remaining != 0) start_timer(slot);
  return 0;
}

SEC("tc")
int arm_timer(struct __sk_buff *context) {
  __u32 key = 0;
  struct timer_slot *slot = bpf_map_lookup_elem(&timer_slots, &key);

  arm_result = -1;
  if (!slot) return 0;
  arm_result = bpf_timer_init(&slot->timer, &timer_slots, CLOCK_MONOTONIC);
  if (arm_result) return 0;
  arm_result = bpf_timer_set_callback(&slot->timer, on_timer);
  if (arm_result) return 0;
  arm_result = start_timer(slot);
  return 0;
}

#endif /* POLLGAP_WORKLOAD_TIMER_BPF_H */
