/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who had the CPU: the scheduler's switches, wakeups, migrations, and kworkers' work items. */
#ifndef POLLGAP_SCHED_BPF_H
#define POLLGAP_SCHED_BPF_H

#include "state.h"

/* include/linux/sched.h */
#define TASK_STATE_STOPPED 0x4
#define TASK_STATE_TRACED 0x8
#define TASK_STATE_DEAD 0x90
#define TASK_STATE_FROZEN 0x8000
/* include/linux/sched/jobctl.h: JOBCTL_TRAP_FREEZE_BIT */
#define JOBCTL_TRAP_FREEZE (1ul << 23)

/*
 * Who woke a task last. Direct-mapped by thread id and not locked: a writer clears the id first and
 * sets it last, and a reader that finds another id, or finds it changed, knows nothing.
 */
#define WAKER_SLOTS 16384

struct waker_slot {
  u32 tid, reserved;
  struct ev_waker waker;
};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, WAKER_SLOTS);
  __type(key, u32);
  __type(value, struct waker_slot);
} wakers SEC(".maps");

/* The work item a kworker is in; same discipline, written only by that kworker. */
#define WORK_SLOTS 4096

struct work_slot {
  u32 tid, reserved;
  u64 function, start_ns;
};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, WORK_SLOTS);
  __type(key, u32);
  __type(value, struct work_slot);
} works SEC(".maps");

static __always_inline u32 state_of(struct task_struct *task) {
  if (bpf_core_field_exists(task->__state)) return BPF_CORE_READ(task, __state);
  return BPF_CORE_READ((struct task_struct___before_5_14 *)task, state);
}

static __always_inline u32 cpu_of(struct task_struct *task) {
  if (bpf_core_field_exists(task->thread_info.cpu)) return BPF_CORE_READ(task, thread_info.cpu);
  return BPF_CORE_READ((struct task_struct___before_5_16 *)task, cpu);
}

/*
 * Is the task, runnable and leaving the CPU, kept off by its group's CFS quota? Until 6.17 the
 * whole group's runqueue is taken off (cfs_rq.throttle_count, kernel/sched/fair.c:
 * throttle_cfs_rq); since 6.18 each task takes itself off on its way to user mode
 * (task_struct.throttled).
 */
static __always_inline bool cfs_throttled(struct task_struct *task) {
  struct task_struct___since_6_18 *newer = (void *)task;
  if (bpf_core_field_exists(newer->throttled)) return BPF_CORE_READ(newer, throttled);
  if (!bpf_core_field_exists(((struct cfs_rq *)0)->throttle_count)) return false;
  return BPF_CORE_READ(task, se.cfs_rq, throttle_count) > 0;
}

static __always_inline bool rt_throttled(struct task_struct *task) {
  if (!bpf_core_field_exists(task->rt.rt_rq)) return false;
  return BPF_CORE_READ(task, rt.rt_rq, rt_throttled) != 0;
}

/* The nearest group, from the task's upwards, that has a quota. */
static __always_inline void note_quota(struct thread_state *thread, struct task_struct *task) {
  struct task_group *group = BPF_CORE_READ(task, sched_task_group);
  thread->throttle_cgroup_id = 0;
  if (!bpf_core_field_exists(group->cfs_bandwidth)) return;
  for (int level = 0; level < 8; level++) {
    u64 quota;
    if (!group) return;
    quota = BPF_CORE_READ(group, cfs_bandwidth.quota);
    if (quota != ~0ull) {
      thread->quota_ns = quota;
      thread->period_ns = BPF_CORE_READ(group, cfs_bandwidth.period);
      thread->throttle_cgroup_id = BPF_CORE_READ(group, css.cgroup, kn, id);
      return;
    }
    group = BPF_CORE_READ(group, parent);
  }
}

/* The nearest group that has a real-time limit of its own; the root group's is the machine's. */
static __always_inline void note_rt_runtime(struct thread_state *thread, struct task_struct *task) {
  struct task_group *group = BPF_CORE_READ(task, sched_task_group);
  thread->throttle_cgroup_id = 0;
  thread->quota_ns = thread->period_ns = 0;
  if (!group || !bpf_core_field_exists(group->rt_bandwidth)) return;
  thread->quota_ns = BPF_CORE_READ(group, rt_bandwidth.rt_runtime);
  thread->period_ns = BPF_CORE_READ(group, rt_bandwidth.rt_period);
  thread->throttle_cgroup_id = BPF_CORE_READ(group, css.cgroup, kn, id);
}

static __always_inline bool waits_for_event(const struct thread_state *thread) {
  return thread->event_enter_ns && !thread->event_return_ns;
}

static __always_inline u32 off_flags(struct thread_state *thread, struct task_struct *task,
                                     u32 state) {
  u32 flags = 0;
  if (thread->syscall_ns) flags |= EV_OFF_IN_SYSCALL;
  if (thread->fault_ns) flags |= EV_OFF_IN_FAULT;
  if (waits_for_event(thread)) flags |= EV_OFF_WAITS_EVENT;
  if (state == 0) {
    flags |= EV_OFF_PREEMPTED;
    if (cfs_throttled(task)) {
      flags |= EV_OFF_CFS_THROTTLED;
      note_quota(thread, task);
    }
    if (rt_throttled(task)) {
      flags |= EV_OFF_RT_THROTTLED;
      note_rt_runtime(thread, task);
    }
    return flags;
  }
  if (state & TASK_STATE_FROZEN || BPF_CORE_READ(task, jobctl) & JOBCTL_TRAP_FREEZE)
    return flags | EV_OFF_FROZEN;
  if (state & TASK_STATE_STOPPED) return flags | EV_OFF_STOPPED;
  if (state & TASK_STATE_TRACED) return flags | EV_OFF_TRACED;
  return flags;
}

/* A target thread leaves the CPU. It is still the current task, with its own address space. */
static __always_inline void thread_out(void *ctx, struct thread_state *thread, bool preempt,
                                       struct task_struct *task, u32 cpu, u64 now) {
  u32 state = preempt ? 0 : state_of(task);
  struct pt_regs *regs;
  regs = (struct pt_regs *)bpf_task_pt_regs(task);
  thread->out_user_ip = regs ? BPF_CORE_READ(regs, ip) : 0;
  /* It has gone on since that fault, whose end nothing showed; no poll tells of it here. */
  if (observing && thread->out_user_ip != thread->fault_ip) thread->fault_ns = 0;
  thread->out_ns = now;
  thread->out_cpu = cpu;
  thread->out_state = state;
  thread->out_flags = off_flags(thread, task, state);
  thread->out_priority = BPF_CORE_READ(task, prio);
  thread->out_policy = BPF_CORE_READ(task, policy);
  thread->wakeup_ns = 0;
  thread->waker.at_ns = 0;
  thread->out_stack_frames = 0;
  if (now - thread->last_stack_ns >= 1000000) {
    long bytes = bpf_get_stack(ctx, thread->out_stack, sizeof(thread->out_stack), BPF_F_USER_STACK);
    if (bytes > 0) thread->out_stack_frames = bytes / sizeof(u64);
    thread->last_stack_ns = now;
  }
  set_activity(thread, PG_OFF_CPU);
}

static __always_inline void emit_kernel_stack(struct thread_state *thread, struct task_struct *task,
                                              u32 cpu, u64 now) {
  long bytes;
  struct ev_stack *record = reserve_record(struct ev_stack, EV_STACK, cpu, thread->out_ns, now);
  if (!record) return;
  record->tid = thread->tid;
  record->role = EV_STACK_KERNEL;
  bytes = bpf_get_task_stack(task, record->ip, sizeof(record->ip), 0);
  if (bytes <= 0) {
    bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);
    return;
  }
  record->frames = bytes / sizeof(u64);
  submit(record);
}

/* Tells where the thread was from out_ns until `end`. `task`: its own, for the stack it slept in.
 */
static __always_inline void emit_off_cpu(struct thread_state *thread, struct task_struct *task,
                                         u32 cpu, u64 end) {
  struct ev_off_cpu *record;
  if (end - thread->out_ns >= config.stack_ns) {
    emit_stack(thread, cpu, thread->out_ns, end, EV_STACK_USER, thread->out_stack,
               thread->out_stack_frames);
    if (task && !(thread->out_flags & EV_OFF_PREEMPTED)) emit_kernel_stack(thread, task, cpu, end);
  }
  record = reserve_record(struct ev_off_cpu, EV_OFF_CPU, cpu, thread->out_ns, end);
  if (!record) return;
  record->tid = thread->tid;
  record->out_cpu = thread->out_cpu;
  record->state = thread->out_state;
  record->flags = thread->out_flags;
  record->syscall_nr = thread->syscall_ns ? thread->syscall_nr : -1;
  record->priority = thread->out_priority;
  record->policy = thread->out_policy;
  record->reserved = 0;
  record->fault_address = thread->fault_ns ? thread->fault_address : 0;
  record->user_ip = thread->out_user_ip;
  record->wakeup_ns = thread->wakeup_ns;
  record->waker = thread->waker;
  record->throttle_cgroup_id = thread->throttle_cgroup_id;
  record->quota_ns = thread->quota_ns;
  record->period_ns = thread->period_ns;
  submit(record);
}

/* A target thread gets the CPU back. */
static __always_inline void thread_in(struct thread_state *thread, struct task_struct *task,
                                      u32 cpu, u64 now) {
  struct pg_thread_clock *clock;
  if (thread->out_ns) {
    emit_off_cpu(thread, task, cpu, now);
    thread->out_ns = 0;
    if (waits_for_event(thread) && !thread->event_run_ns) thread->event_run_ns = now;
  }
  watch_cpu(thread, cpu, now);
  clock = clock_of(thread);
  if (clock) {
    clock->cpu = cpu;
    clock->activity = thread->fault_ns ? PG_IN_FAULT : thread->syscall_ns ? PG_IN_SYSCALL : PG_USER;
  }
}

#define BACK_AT_ONCE_NS 10000

/*
 * The thread runs, but the switch that brought it back went unseen (a kernel may switch from some
 * tasks without a trace). It was off the CPU until it was woken, and until the last switch that was
 * seen there, at least; when after that it came back is not known.
 */
static __noinline void back_unseen(struct thread_state *thread) {
  struct pg_cpu *state = cpu_state_of(thread->out_cpu);
  u64 now = bpf_ktime_get_ns();
  u64 until = thread->wakeup_ns;
  if (state && state->slice_ns > until) until = state->slice_ns;
  if (until > thread->out_ns) {
    emit_off_cpu(thread, 0, thread->out_cpu, until);
    thread->out_ns = until;
  }
  if (now - thread->out_ns >= BACK_AT_ONCE_NS) {
    thread->out_state = 0;
    thread->out_flags = EV_OFF_UNSEEN;
    thread->wakeup_ns = 0;
    thread->waker.at_ns = 0;
    emit_off_cpu(thread, 0, thread->out_cpu, now);
  }
  thread->out_ns = 0;
  set_activity(thread, PG_USER);
}

/*
 * Takes who woke `tid` for the stretch that began at `slice_ns`: a wakeup later than that belongs
 * to another stretch, and each is told once.
 */
static __always_inline void take_waker(u32 tid, u64 slice_ns, struct ev_waker *to) {
  u32 key = tid & (WAKER_SLOTS - 1);
  struct waker_slot *slot = bpf_map_lookup_elem(&wakers, &key);
  if (!slot || *(volatile u32 *)&slot->tid != tid || slot->waker.at_ns > slice_ns) return;
  *to = slot->waker;
  if (*(volatile u32 *)&slot->tid != tid) to->at_ns = 0;
  *(volatile u32 *)&slot->tid = 0;
}

static __always_inline u64 work_in_progress(u32 tid) {
  u32 key = tid & (WORK_SLOTS - 1);
  struct work_slot *slot = bpf_map_lookup_elem(&works, &key);
  return slot && slot->tid == tid ? slot->function : 0;
}

/* A task that ran on a watched CPU while a target thread was off it. */
static __always_inline void emit_run(struct pg_cpu *state, struct task_struct *task, u32 cpu,
                                     u64 now) {
  struct ev_run *record;
  /* After a switch that went unseen, whose stretch this was is not known. */
  if (!state->slice_ns || state->slice_ns > now) return;
  if (state->running_tid && state->running_tid != (u32)task->pid) return;
  record = reserve_record(struct ev_run, EV_RUN, cpu, state->slice_ns, now);
  if (!record) return;
  describe_task(&record->task, task);
  __builtin_memset(&record->waker, 0, sizeof(record->waker));
  take_waker(record->task.tid, state->slice_ns, &record->waker);
  record->work_function =
      record->task.flags & EV_TASK_WQ_WORKER ? work_in_progress(record->task.tid) : 0;
  record->fair_server = state->running_lent;
  record->reserved = 0;
  submit(record);
}

/*
 * Whether the fair server lends `next` the CPU. The task has its server from when it is picked
 * until another is, which is before sched_switch is traced (put_prev_set_next_task(), sched.h): so
 * it is asked when it gets the CPU.
 */
static __always_inline u32 lent(struct task_struct *next) {
  struct task_struct___since_6_8 *newer = (void *)next;
  if (!bpf_core_field_exists(newer->dl_server)) return 0;
  return BPF_CORE_READ(newer, dl_server) != 0 && BPF_CORE_READ(next, prio) >= 100;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next) {
  u32 cpu = bpf_get_smp_processor_id();
  struct pg_cpu *state = cpu_state_of(cpu);
  struct thread_state *out, *in;
  u32 leaving;
  u64 now;
  if (!state) return 0;
  out = target_thread_of(prev);
  in = target_thread_of(next);
  if (!state->watched && !out && !in) return 0;
  now = bpf_ktime_get_ns();
  read_steal_clock(state, cpu, now);
  if (!out || state->watched > 1) emit_run(state, prev, cpu, now);
  if (out) {
    end_quick_polls();
    if (out->out_ns) back_unseen(out);
    thread_out(ctx, out, preempt, prev, cpu, now);
  }
  if (in) thread_in(in, next, cpu, now);
  state->slice_ns = now;
  state->running_tid = next->pid;
  state->running_lent = lent(next);
  leaving = state->leaving;
  if (leaving) {
    __sync_fetch_and_add(&state->leaving, -leaving);
    __sync_fetch_and_add(&state->watched, -leaving);
  }
  return 0;
}

#define SOFTIRQ_MASK 0x0000ff00
#define HARDIRQ_MASK 0x000f0000

/* A softirq that begins so soon after a hard interrupt on its CPU was raised by that. */
#define SOFTIRQ_AFTER_IRQ_NS 100000

static __always_inline bool follows_irq(const struct pg_cpu *state, u64 softirq_ns) {
  return state->last_irq_ns <= softirq_ns && softirq_ns - state->last_irq_ns < SOFTIRQ_AFTER_IRQ_NS;
}

static __always_inline u32 wake_context(u32 cpu) {
  struct pg_cpu *state = cpu_state_of(cpu);
  if (!state) return EV_WAKE_UNKNOWN;
  if (!state->watched) return EV_WAKE_UNKNOWN; /* interrupts are followed on watched CPUs only */
  if (state->hardirq_ns) return EV_WAKE_HARDIRQ;
  if (state->softirq_ns) return EV_WAKE_SOFTIRQ;
  return EV_WAKE_TASK;
}

static __always_inline void describe_waker(struct ev_waker *to) {
  u64 id = bpf_get_current_pid_tgid();
  to->tid = (u32)id;
  to->pid = id >> 32;
  to->cpu = bpf_get_smp_processor_id();
  to->context = wake_context(to->cpu);
  to->at_ns = bpf_ktime_get_ns();
  bpf_get_current_comm(to->comm, sizeof(to->comm));
}

/* Start of the hard interrupt that led to what happens now on this CPU; 0: none was seen. */
static __always_inline u64 interrupt_behind(u32 cpu) {
  struct pg_cpu *state = cpu_state_of(cpu);
  if (!state || !state->watched) return 0;
  if (state->hardirq_ns) return state->hardirq_ns;
  return state->softirq_ns && follows_irq(state, state->softirq_ns) ? state->last_irq_start_ns : 0;
}

/* The completion event has come, unless the thread goes back to sleep: then the next is it. */
static __always_inline void event_comes(struct thread_state *thread) {
  thread->event_woken_ns = thread->waker.at_ns;
  thread->event_irq_ns = interrupt_behind(thread->waker.cpu);
  thread->event_run_ns = 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_sched_waking, struct task_struct *task) {
  u32 tid = task->pid;
  u32 key = tid & (WAKER_SLOTS - 1);
  struct thread_state *thread = target_thread_of(task);
  struct waker_slot *slot;
  if (thread && thread->out_ns) {
    describe_waker(&thread->waker);
    if (waits_for_event(thread)) event_comes(thread);
    return 0;
  }
  slot = bpf_map_lookup_elem(&wakers, &key);
  if (!slot) return 0;
  *(volatile u32 *)&slot->tid = 0;
  describe_waker(&slot->waker);
  *(volatile u32 *)&slot->tid = tid;
  return 0;
}

static __always_inline int woken(struct task_struct *task) {
  struct thread_state *thread = target_thread_of(task);
  u64 now;
  if (!thread || !thread->out_ns) return 0;
  now = bpf_ktime_get_ns();
  thread->wakeup_ns = now;
  watch_cpu(thread, cpu_of(task), now);
  return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_sched_wakeup, struct task_struct *task) { return woken(task); }

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(on_sched_migrate_task, struct task_struct *task, int dest_cpu) {
  struct thread_state *thread = target_thread_of(task);
  struct ev_migrate *record;
  u64 now;
  if (!thread) return 0;
  now = bpf_ktime_get_ns();
  record = reserve_record(struct ev_migrate, EV_MIGRATE, dest_cpu, now, now);
  if (record) {
    record->tid = thread->tid;
    record->from_cpu = thread->cpu;
    record->to_cpu = dest_cpu;
    record->by_tid = (u32)bpf_get_current_pid_tgid();
    submit(record);
  }
  if (thread->out_ns) watch_cpu(thread, dest_cpu, now);
  return 0;
}

SEC("tp_btf/workqueue_execute_start")
int BPF_PROG(on_work_start, struct work_struct *work) {
  u32 tid = (u32)bpf_get_current_pid_tgid();
  u32 key = tid & (WORK_SLOTS - 1);
  struct work_slot *slot = bpf_map_lookup_elem(&works, &key);
  if (!slot) return 0;
  slot->function = (u64)BPF_CORE_READ(work, func);
  slot->start_ns = bpf_ktime_get_ns();
  slot->tid = tid;
  return 0;
}

SEC("tp_btf/workqueue_execute_end")
int BPF_PROG(on_work_end, struct work_struct *work) {
  u32 tid = (u32)bpf_get_current_pid_tgid();
  u32 key = tid & (WORK_SLOTS - 1);
  u32 cpu = bpf_get_smp_processor_id();
  struct work_slot *slot = bpf_map_lookup_elem(&works, &key);
  struct pg_cpu *state = cpu_state_of(cpu);
  struct ev_work *record;
  if (!slot || slot->tid != tid) return 0;
  slot->tid = 0;
  if (!state || !state->watched) return 0;
  record = reserve_record(struct ev_work, EV_WORK, cpu, slot->start_ns, bpf_ktime_get_ns());
  if (!record) return 0;
  record->tid = tid;
  record->reserved = 0;
  record->function = slot->function;
  submit(record);
  return 0;
}

SEC("tp_btf/signal_generate")
int BPF_PROG(on_signal_generate, int sig, struct kernel_siginfo *info, struct task_struct *task) {
  struct ev_signal *record;
  u64 now, id;
  if ((u32)task->tgid != config.target_pid) return 0;
  now = bpf_ktime_get_ns();
  record = reserve_record(struct ev_signal, EV_SIGNAL, bpf_get_smp_processor_id(), now, now);
  if (!record) return 0;
  id = bpf_get_current_pid_tgid();
  record->tid = task->pid;
  record->pid = task->tgid;
  record->signal = sig;
  /* SEND_SIG_NOINFO and SEND_SIG_PRIV (include/linux/sched/signal.h) are 0 and 1, not pointers. */
  record->code = (u64)info > 1 ? BPF_CORE_READ(info, si_code) : 0;
  record->sender_tid = (u32)id;
  record->sender_pid = id >> 32;
  bpf_get_current_comm(record->sender_comm, sizeof(record->sender_comm));
  submit(record);
  return 0;
}

#endif /* POLLGAP_SCHED_BPF_H */
