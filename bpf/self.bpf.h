/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A target thread's own kernel work: system calls, page faults, control-path verbs, its exit.
 *
 * Short stretches stay in the thread's `pending` list, which its next poll empties unless it was
 * silent for the threshold: nothing leaves the kernel for them while nothing is wrong. Where polls
 * are not timed, the agent takes what there is at the end of a silence (on_tell_pending).
 */
#ifndef POLLGAP_SELF_BPF_H
#define POLLGAP_SELF_BPF_H

#include "cq.bpf.h"
#include "irq.bpf.h"

static __always_inline bool is_fault(u32 type) { return type != EV_SELF_SYSCALL; }

static __always_inline void extend_pending(struct pending_self *last,
                                           const struct pending_self *add) {
  u64 length = add->end_ns - add->start_ns;
  last->end_ns = add->end_ns;
  last->count += add->count;
  last->major_faults += add->major_faults;
  last->flags |= add->flags;
  if (length > last->longest_ns) {
    last->longest_ns = length;
    last->type = add->type;
    last->syscall_nr = add->syscall_nr;
    last->address = add->address;
    last->user_ip = add->user_ip;
  }
}

static __always_inline void emit_self(struct thread_state *thread, u32 cpu,
                                      const struct pending_self *one) {
  struct ev_self *record = reserve_record(struct ev_self, EV_SELF, cpu, one->start_ns, one->end_ns);
  if (!record) return;
  record->tid = thread->tid;
  record->type = one->type;
  record->syscall_nr = one->syscall_nr;
  record->count = one->count;
  record->sum_ns = one->end_ns - one->start_ns < one->sum_ns ? one->end_ns - one->start_ns
                                                             : one->sum_ns; /* read while it grew */
  record->address = one->address;
  record->user_ip = one->user_ip;
  record->flags = one->flags;
  record->major_faults = one->major_faults;
  submit(record);
}

struct flush_context {
  struct thread_state *thread;
  u32 cpu;
};

static long flush_one(u64 index, struct flush_context *context) {
  emit_self(context->thread, context->cpu, &context->thread->pending[index & (PG_PENDING - 1)]);
  return 0;
}

static __always_inline void flush_pending(struct thread_state *thread, u32 cpu) {
  struct flush_context context = {.thread = thread, .cpu = cpu};
  if (thread->pending_count == 0) return;
  bpf_loop(thread->pending_count, flush_one, &context, 0);
  thread->pending_count = 0;
}

/* Until when no completion waited for the thread, as far as the agent has told. */
static __always_inline u64 served_until(const struct thread_state *thread) {
  const struct pg_thread_clock *clock = clock_of(thread);
  return clock ? *(volatile u64 *)&clock->last_poll_ns : 0;
}

/* Where polls are not timed: makes room for one more, by forgetting what no gap can need. */
static __always_inline void make_room(struct thread_state *thread) {
  u32 count = thread->pending_count;
  if (count == 0 || count > PG_PENDING) return;
  if (thread->pending[(count - 1) & (PG_PENDING - 1)].end_ns < served_until(thread)) {
    thread->pending_count = 0;
  } else if (count == PG_PENDING) {
    flush_pending(thread, bpf_get_smp_processor_id());
  }
}

/*
 * Adds one stretch. Stretches of a kind that follow each other closer than `run_ns` become one run,
 * the time between them included: that is the kernel's entry and exit, which no tracepoint shows,
 * and at most the few instructions that led to the next; so the run's sum is an upper bound. When
 * the list is full the last entry takes what comes, its sum exact, the places in it unknown.
 */
static __always_inline void add_pending(struct thread_state *thread, const struct pending_self *add,
                                        u64 run_ns) {
  struct pending_self *last;
  u32 count;
  if (observing) make_room(thread);
  count = thread->pending_count;
  if (count > PG_PENDING) return;
  if (count) {
    u32 index = (count - 1) & (PG_PENDING - 1);
    last = &thread->pending[index];
    if (is_fault(last->type) == is_fault(add->type) && add->start_ns - last->end_ns < run_ns) {
      last->sum_ns += add->end_ns - last->end_ns;
      last->flags |= EV_SELF_BOUND;
      extend_pending(last, add);
      return;
    }
    if (count == PG_PENDING) {
      last->sum_ns += add->sum_ns;
      extend_pending(last, add);
      return;
    }
  }
  thread->pending[count & (PG_PENDING - 1)] = *add;
  thread->pending_count = count + 1;
}

static __always_inline void add_self(void *ctx, struct thread_state *thread,
                                     struct pending_self *one, u64 run_ns) {
  u32 cpu = bpf_get_smp_processor_id();
  one->sum_ns = one->longest_ns = one->end_ns - one->start_ns;
  one->count = 1;
  one->reserved = 0;
  if (one->sum_ns >= config.stack_ns) {
    flush_pending(thread, cpu);
    emit_user_stack(ctx, thread->tid, cpu, one->start_ns, one->end_ns);
    emit_self(thread, cpu, one);
    return;
  }
  add_pending(thread, one, run_ns);
}

/* raw_syscalls puts every task of the machine on the slow path while attached; others leave at
 * once. */
SEC("tp_btf/sys_enter")
int BPF_PROG(on_sys_enter, struct pt_regs *regs, long number) {
  struct thread_state *thread;
  if (is_probe_call(number)) return 0;
  thread = current_target_thread();
  if (!thread) return 0;
  if (thread->out_ns) back_unseen(thread);
  thread->syscall_nr = number;
  thread->syscall_ip = BPF_CORE_READ(regs, ip);
  end_quick_polls();
  thread->syscall_ns = bpf_ktime_get_ns();
  set_activity(thread, PG_IN_SYSCALL);
  return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_sys_exit, struct pt_regs *regs, long result) {
  struct thread_state *thread;
  struct pending_self one = {.type = EV_SELF_SYSCALL};
  if (in_probe_call(regs)) return 0;
  thread = current_target_thread();
  if (!thread || !thread->syscall_ns) return 0;
  if (thread->out_ns) back_unseen(thread);
  one.start_ns = thread->syscall_ns;
  one.end_ns = bpf_ktime_get_ns();
  one.syscall_nr = thread->syscall_nr;
  one.user_ip = thread->syscall_ip;
  thread->syscall_ns = 0;
  set_activity(thread, PG_USER);
  add_self(ctx, thread, &one, config.syscall_run_ns);
  return 0;
}

static __always_inline void end_fault(void *ctx, struct thread_state *thread, u32 type, u64 end_ns,
                                      u32 flags) {
  struct pending_self one = {.type = type, .syscall_nr = -1, .flags = flags};
  if (!thread->fault_ns) return;
  one.start_ns = thread->fault_ns;
  one.end_ns = end_ns;
  one.address = thread->fault_address;
  one.user_ip = thread->fault_ip;
  one.major_faults = type == EV_SELF_FAULT_MAJOR;
  thread->fault_ns = 0;
  set_activity(thread, PG_USER);
  add_self(ctx, thread, &one, config.fault_run_ns);
}

/*
 * A fault's end shows as the software page-fault event that handle_mm_fault raises as it returns
 * (mm/memory.c: mm_account_fault). A retried fault that raises none ends, at the latest, at the
 * next.
 */
SEC("tp_btf/page_fault_user")
int BPF_PROG(on_page_fault_user, unsigned long address, struct pt_regs *regs, unsigned long code) {
  struct thread_state *thread = current_target_thread();
  u64 now;
  if (!thread) return 0;
  if (thread->out_ns) back_unseen(thread);
  now = bpf_ktime_get_ns();
  if (observing && thread->fault_ns < served_until(thread)) thread->fault_ns = 0;
  end_fault(ctx, thread, EV_SELF_FAULT, now, EV_SELF_BOUND);
  thread->fault_address = address;
  thread->fault_ip = BPF_CORE_READ(regs, ip);
  end_quick_polls();
  thread->fault_ns = now;
  set_activity(thread, PG_IN_FAULT);
  return 0;
}

SEC("perf_event")
int on_fault_minor(struct bpf_perf_event_data *ctx) {
  struct thread_state *thread = current_target_thread();
  if (thread) end_fault(ctx, thread, EV_SELF_FAULT_MINOR, bpf_ktime_get_ns(), 0);
  return 0;
}

SEC("perf_event")
int on_fault_major(struct bpf_perf_event_data *ctx) {
  struct thread_state *thread = current_target_thread();
  if (thread) end_fault(ctx, thread, EV_SELF_FAULT_MAJOR, bpf_ktime_get_ns(), 0);
  return 0;
}

/*
 * User code runs, so the fault or system call is over, and nothing showed when it ended: a fault
 * before the thread's fault events were on, say.
 */
static __always_inline void entry_ended_unseen(struct thread_state *thread) {
  thread->fault_ns = 0;
  thread->syscall_ns = 0;
  set_activity(thread, PG_USER);
}

/* Cookie: PG_VERB_COOKIE. */
SEC("uprobe")
int BPF_KPROBE(on_verb_enter, u64 first, u64 second, u64 third) {
  struct thread_state *thread = current_target_thread();
  u64 cookie;
  u32 depth;
  if (!thread) return 0;
  end_quick_polls();
  take_completions_of(thread->tid, first);
  depth = thread->verb_depth;
  thread->verb_depth = depth + 1;
  if (depth >= PG_VERB_DEPTH) return 0;
  cookie = bpf_get_attach_cookie(ctx);
  thread->verbs[depth].cookie = cookie;
  thread->verbs[depth].bytes = cookie >> 32 == 3 ? third : cookie >> 32 == 2 ? second : 0;
  thread->verbs[depth].start_ns = bpf_ktime_get_ns();
  return 0;
}

SEC("uretprobe")
int BPF_KRETPROBE(on_verb_return, u64 result) {
  struct thread_state *thread = current_target_thread();
  struct ev_verb *record;
  u32 depth;
  if (!thread || thread->verb_depth == 0) return 0;
  depth = --thread->verb_depth;
  if (depth >= PG_VERB_DEPTH) return 0;
  record = reserve_record(struct ev_verb, EV_VERB, bpf_get_smp_processor_id(),
                          thread->verbs[depth].start_ns, bpf_ktime_get_ns());
  if (!record) return 0;
  record->tid = thread->tid;
  record->verb = (u32)thread->verbs[depth].cookie;
  record->bytes = thread->verbs[depth].bytes;
  record->result = result;
  record->depth = depth;
  submit(record);
  return 0;
}

#endif /* POLLGAP_SELF_BPF_H */
