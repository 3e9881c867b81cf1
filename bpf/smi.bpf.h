/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * System management interrupts, in which the firmware has the CPU and of which the kernel knows
 * nothing: no tracepoint, only a count that the CPU itself keeps (x86: MSR_SMI_COUNT). It is read
 * on the polled CPU at the end of a gap, and now and then before, so that the reading before a
 * gap is not much older than the gap.
 */
#ifndef POLLGAP_SMI_BPF_H
#define POLLGAP_SMI_BPF_H

#include "state.h"

/* A reading takes some 100 ns, in a virtual machine some microseconds. */
#define SMI_READ_NS 10000000

/* Perf events of the PMU "msr", one a CPU, which count and interrupt nobody. */
struct {
  __uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
  __uint(max_entries, PG_MAX_CPUS);
  __type(key, u32);
  __type(value, u32);
} smi_counters SEC(".maps");

static __always_inline void emit_smi(u32 cpu, u64 start_ns, u64 end_ns, u64 count) {
  struct ev_smi *record = reserve_record(struct ev_smi, EV_SMI, cpu, start_ns, end_ns);
  if (!record) return;
  record->count = count;
  submit(record);
}

/* Of this CPU, whose state that is. Not inlined: it has the stack to itself. */
static __noinline void read_smi_count(struct pg_cpu *state) {
  struct bpf_perf_event_value value = {};
  u32 cpu = bpf_get_smp_processor_id();
  u64 now, since = *(volatile u64 *)&state->smi_read_ns, before = state->smi_count;
  u64 same_since = state->smi_same_ns;
  bool wanted = state->smi_wanted;
  if (bpf_perf_event_read_value(&smi_counters, BPF_F_CURRENT_CPU, &value, sizeof(value))) return;
  now = bpf_ktime_get_ns();
  /* An interrupt that came in between has read it, too. */
  if (__sync_val_compare_and_swap(&state->smi_read_ns, since, now) != since) return;
  state->smi_wanted = 0;
  state->smi_count = value.counter;
  if (since && value.counter == before) {
    if (wanted) emit_smi(cpu, same_since, now, 0);
    return;
  }
  state->smi_same_ns = now;
  if (!since) return;
  if (same_since < since) emit_smi(cpu, same_since, since, 0);
  emit_smi(cpu, since, now, value.counter - before);
}

static __always_inline void note_smis(struct pg_cpu *state, u64 now) {
  if (config.smi_counted && (state->smi_wanted || now - state->smi_read_ns >= SMI_READ_NS))
    read_smi_count(state);
}

#endif /* POLLGAP_SMI_BPF_H */
