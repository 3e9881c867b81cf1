/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Tracepoints that are not known when this is compiled: drivers' and modules', whose records only
 * the running kernel can describe. One program, attached to each with its number as the cookie; the
 * record leaves as it is. They tell of the whole machine: firmware works for every process.
 */
#ifndef POLLGAP_TRACE_BPF_H
#define POLLGAP_TRACE_BPF_H

#include "state.h"

__u64 trace_dropped = 0; /* fired more often than PG_TRACE_WINDOW_RECORDS allows */

static __always_inline bool trace_has_room(struct pg_cpu *state, u64 now) {
  if (now - state->trace_window_ns >= PG_TRACE_WINDOW_NS) {
    state->trace_window_ns = now;
    state->trace_records = 0;
  }
  return ++state->trace_records <= PG_TRACE_WINDOW_RECORDS;
}

SEC("tracepoint")
int on_trace_event(void *ctx) {
  u32 cpu = bpf_get_smp_processor_id();
  struct pg_cpu *state = cpu_state_of(cpu);
  u64 now = bpf_ktime_get_ns(), id = bpf_get_current_pid_tgid();
  struct ev_trace *record;
  if (!state) return 0;
  if (!trace_has_room(state, now)) {
    __sync_fetch_and_add(&trace_dropped, 1);
    return 0;
  }
  record = reserve_record(struct ev_trace, EV_TRACE, cpu, now, now);
  if (!record) return 0;
  record->tid = (u32)id;
  record->pid = id >> 32;
  bpf_get_current_comm(record->comm, sizeof(record->comm));
  record->event = bpf_get_attach_cookie(ctx);
  record->reserved = 0;
  /* The record's length is not told, and need not be: it lies in a buffer of at least 2 KiB
     (PERF_MAX_TRACE_SIZE in include/linux/trace_events.h). */
  bpf_probe_read_kernel(record->data, sizeof(record->data), ctx);
  submit(record);
  return 0;
}

#endif /* POLLGAP_TRACE_BPF_H */
