/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Holds the polling core in a work item of its kworker, queued by a timer there. Since 6.10. */
#include "tools/workload/bpf/timer.bpf.h"

struct bpf_wq {
  __u64 opaque[2];
} __attribute__((aligned(8)));

extern int bpf_wq_init(struct bpf_wq *wq, void *map, unsigned int flags) __ksym;
extern int bpf_wq_start(struct bpf_wq *wq, unsigned int flags) __ksym;
extern int bpf_wq_set_callback_impl(struct bpf_wq *wq,
                                    int(callback)(void *map, int *key, void *value),
                                    unsigned int flags, void *unused) __ksym;

struct work_slot {
  struct bpf_wq work;
};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, int);
  __type(value, struct work_slot);
} work_slots SEC(".maps");

int work_result;

static int on_work(void *map, int *key, void *value) {
  spin(length_ns);
  return 0;
}

static __always_inline void on_time(void) {
  int key = 0;
  struct work_slot *slot = bpf_map_lookup_elem(&work_slots, &key);

  if (!slot) return;
  busy = 1;
  work_result = bpf_wq_start(&slot->work, 0);
}

SEC("tc")
int prepare_work(struct __sk_buff *context) {
  int key = 0;
  struct work_slot *slot = bpf_map_lookup_elem(&work_slots, &key);

  if (!slot) return 0;
  work_result = bpf_wq_init(&slot->work, &work_slots, 0);
  if (!work_result) work_result = bpf_wq_set_callback_impl(&slot->work, on_work, 0, 0);
  return 0;
}
