/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the programs remember between events: per CPU, per target thread, and the ring that carries
 * evidence out. Nothing here wakes anybody: the agent drains the ring by itself.
 */
#ifndef POLLGAP_STATE_H
#define POLLGAP_STATE_H

#include "core_types.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "config.h"
#include "evidence.h"
#include "map_types.h"

const volatile struct pg_config config = {};

/* Records that found no room, by CPU that wrote them; the agent sums them up. */
/* Globals that user space reads have the types that its headers know. */
__u64 lost_records = 0;

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 16 << 20);
} evidence SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, PG_MAX_CPUS);
  __type(key, u32);
  __type(value, struct pg_cpu);
} cpus SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, PG_MAX_THREADS);
  __type(key, u32);
  __type(value, struct thread_state);
} threads SEC(".maps");

/* Threads named with --tid. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, PG_MAX_THREADS);
  __type(key, u32);
  __type(value, u8);
} chosen SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, PG_MAX_THREADS);
  __type(key, u32);
  __type(value, struct pg_thread_clock);
} thread_clocks SEC(".maps");

/* Polls from then on are judged; none while probes come and go, one kind after the other. */
__u64 judged_from_ns = 0;

/*
 * 1: polls are not timed. The agent looks at the CQs, and tells in pg_thread_clock.last_poll_ns
 * until when no completion waited for the thread.
 */
__u32 observing = 0;

__u64 others_probed = 0; /* pg_thread_clock.probed of threads that have none */
__u32 threads_seen = 0;
__u32 threads_refused = 0; /* more than PG_MAX_THREADS polling threads */

/* CPUs that were ever watched, a bit each. */
__u64 watched_words[PG_MAX_CPUS / 64] = {};

/* Adds this CPU's quick polls to their thread's state (poll.bpf.h). */
__noinline int end_quick_polls(void);

static __always_inline struct pg_cpu *cpu_state_of(u32 cpu) {
  return bpf_map_lookup_elem(&cpus, &cpu);
}

static __always_inline struct pg_thread_clock *clock_of(const struct thread_state *thread) {
  u32 slot = thread->slot;
  return bpf_map_lookup_elem(&thread_clocks, &slot);
}

static __always_inline void set_activity(const struct thread_state *thread, u32 activity) {
  struct pg_thread_clock *clock = clock_of(thread);
  if (clock) clock->activity = activity;
}

/* The state of the current thread if it is a target thread that polls, else NULL. */
static __always_inline struct thread_state *current_target_thread(void) {
  u64 id = bpf_get_current_pid_tgid();
  u32 tid = (u32)id;
  if (id >> 32 != config.target_pid) return 0;
  return bpf_map_lookup_elem(&threads, &tid);
}

static __always_inline struct thread_state *target_thread_of(struct task_struct *task) {
  u32 tid = task->pid;
  if ((u32)task->tgid != config.target_pid) return 0;
  return bpf_map_lookup_elem(&threads, &tid);
}

/* Since 6.11 a return probe, and since 6.18 some entry probes, come as system calls of their own.
 */
static __always_inline bool is_probe_call(long number) {
#if defined(__TARGET_ARCH_x86)
  return number == 335 || number == 336; /* uretprobe, uprobe */
#else
  return false;
#endif
}

static __always_inline bool in_probe_call(const struct pt_regs *regs) {
#if defined(__TARGET_ARCH_x86)
  return is_probe_call(BPF_CORE_READ(regs, orig_ax));
#else
  return false;
#endif
}

static __always_inline void count_lost(void) { __sync_fetch_and_add(&lost_records, 1); }

/* A record of the ring with its header filled in, or NULL (and counted as lost). */
#define reserve_record(type, kind_, cpu_, start_, end_)               \
  ({                                                                  \
    type *record__ = bpf_ringbuf_reserve(&evidence, sizeof(type), 0); \
    if (record__) {                                                   \
      struct ev_header header__ = {.kind = (kind_),                   \
                                   .bytes = sizeof(type),             \
                                   .cpu = (cpu_),                     \
                                   .start_ns = (start_),              \
                                   .end_ns = (end_)};                 \
      record__->header = header__;                                    \
    } else {                                                          \
      count_lost();                                                   \
    }                                                                 \
    record__;                                                         \
  })

static __always_inline void submit(void *record) { bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP); }

/*
 * This CPU's runqueue. It holds the steal clock as of the scheduler's last look at the time, which
 * it takes before each switch and in each tick (kernel/sched/core.c: update_rq_clock_task).
 */
static __always_inline struct rq *this_rq(void) {
  return BPF_CORE_READ(bpf_get_current_task_btf(), se.cfs_rq, rq);
}

static __always_inline void emit_steal(u32 cpu, u64 start_ns, u64 end_ns, u64 steal_ns) {
  struct ev_steal *record = reserve_record(struct ev_steal, EV_STEAL, cpu, start_ns, end_ns);
  if (!record) return;
  record->steal_ns = steal_ns;
  submit(record);
}

/* To be called right after the scheduler has looked at the time. */
static __always_inline void read_steal_clock(struct pg_cpu *state, u32 cpu, u64 now) {
  u64 steal, before = state->steal_ns, since = state->steal_read_ns, same_since;
  bool wanted = state->steal_wanted;
  if (!config.steal_at_ticks || !bpf_core_field_exists(((struct rq *)0)->prev_steal_time_rq))
    return;
  steal = BPF_CORE_READ(this_rq(), prev_steal_time_rq);
  state->steal_ns = steal;
  state->steal_read_ns = now;
  same_since = since ? state->steal_same_ns : now;
  state->steal_same_ns = steal == before && since ? same_since : now;
  if (!since || (steal == before && !wanted)) return;
  state->steal_wanted = 0;
  if (steal == before) {
    emit_steal(cpu, same_since, now, 0);
  } else {
    if (wanted && same_since < since) emit_steal(cpu, same_since, since, 0);
    emit_steal(cpu, since, now, steal - before);
  }
}

static __always_inline void watch(struct pg_cpu *state, u32 cpu, u64 now) {
  if (__sync_fetch_and_add(&state->watched, 1) == 0) {
    state->slice_ns = now;
    state->running_tid = 0;
    state->running_lent = 0;
    state->steal_read_ns = 0;
  }
  watched_words[(cpu / 64) & (PG_MAX_CPUS / 64 - 1)] |= 1ull << (cpu & 63);
}

/* Makes `cpu` the one where the thread runs or waits, so that what runs there is followed. */
static __always_inline void watch_cpu(struct thread_state *thread, u32 cpu, u64 now) {
  struct pg_cpu *from, *to;
  if (thread->cpu == cpu) return;
  from = cpu_state_of(thread->cpu);
  to = cpu_state_of(cpu);
  if (!to) return;
  /* Whom it waited for there is told when that task gives up the CPU. */
  if (from) {
    if (thread->out_ns) {
      __sync_fetch_and_add(&from->leaving, 1);
    } else {
      __sync_fetch_and_add(&from->watched, -1);
    }
  }
  watch(to, cpu, now);
  thread->cpu = cpu;
}

static __always_inline u64 cgroup_id_of(struct task_struct *task) {
  return BPF_CORE_READ(task, sched_task_group, css.cgroup, kn, id);
}

#define PF_WQ_WORKER 0x00000020
#define PF_KTHREAD 0x00200000

static __always_inline void describe_task(struct ev_task *to, struct task_struct *task) {
  u32 flags = BPF_CORE_READ(task, flags);
  to->tid = BPF_CORE_READ(task, pid);
  to->pid = BPF_CORE_READ(task, tgid);
  to->priority = BPF_CORE_READ(task, prio);
  to->policy = BPF_CORE_READ(task, policy);
  to->flags =
      (flags & PF_KTHREAD ? EV_TASK_KTHREAD : 0) | (flags & PF_WQ_WORKER ? EV_TASK_WQ_WORKER : 0);
  to->reserved = 0;
  to->cgroup_id = cgroup_id_of(task);
  bpf_core_read_str(to->comm, sizeof(to->comm), &task->comm);
}

static __always_inline void emit_stack(struct thread_state *thread, u32 cpu, u64 start_ns,
                                       u64 end_ns, u16 role, const u64 *frames, u32 count) {
  struct ev_stack *record;
  if (count == 0 || count > EV_STACK_FRAMES) return;
  record = reserve_record(struct ev_stack, EV_STACK, cpu, start_ns, end_ns);
  if (!record) return;
  record->tid = thread->tid;
  record->role = role;
  record->frames = count;
  __builtin_memcpy(record->ip, frames, sizeof(record->ip));
  submit(record);
}

/* The current task's user stack, as a record of its own before the one it belongs to. */
static __always_inline void emit_user_stack(void *ctx, u32 tid, u32 cpu, u64 start_ns, u64 end_ns) {
  long bytes;
  struct ev_stack *record = reserve_record(struct ev_stack, EV_STACK, cpu, start_ns, end_ns);
  if (!record) return;
  record->tid = tid;
  record->role = EV_STACK_USER;
  bytes = bpf_get_stack(ctx, record->ip, sizeof(record->ip), BPF_F_USER_STACK);
  if (bytes <= 0) {
    bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);
    return;
  }
  record->frames = bytes / sizeof(u64);
  submit(record);
}

#endif /* POLLGAP_STATE_H */
