/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Interrupts on watched CPUs: device interrupts, the APIC's vectors, softirqs, and who sent an IPI.
 * Entry only notes the time; one record leaves at the exit. Hard interrupts do not nest (they run
 * with interrupts off); a softirq may be interrupted by one.
 */
#ifndef POLLGAP_IRQ_BPF_H
#define POLLGAP_IRQ_BPF_H

#include "sched.bpf.h"
#include "smi.bpf.h"

/* An IPI sent longer ago than this has been taken already, unless interrupts were off for so long.
 */
#define IPI_FLIGHT_NS 100000000

static __always_inline struct pg_cpu *watched_cpu(void) {
  struct pg_cpu *state = cpu_state_of(bpf_get_smp_processor_id());
  return state && state->watched ? state : 0;
}

/* The latest IPI that was sent to several CPUs at once, by word of the CPU mask. */
struct mask_ipi {
  u64 bits;
  struct pg_ipi_sender sender;
};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, PG_MAX_CPUS / 64);
  __type(key, u32);
  __type(value, struct mask_ipi);
} mask_ipis SEC(".maps");

const volatile __u32 possible_cpus = 1;

/* Names who sent the IPI that was taken at `start`: the latest sent to this CPU before it. */
static __always_inline void describe_sender(struct ev_irq *record, const struct pg_cpu *state,
                                            u64 start) {
  const struct pg_ipi_sender *sender = &state->ipi;
  u32 cpu = bpf_get_smp_processor_id();
  u32 word = cpu / 64;
  struct mask_ipi *ipi = bpf_map_lookup_elem(&mask_ipis, &word);
  if (ipi && ipi->bits & (1ull << (cpu & 63)) && ipi->sender.at_ns <= start &&
      (sender->at_ns > start || ipi->sender.at_ns > sender->at_ns))
    sender = &ipi->sender;
  if (sender->at_ns == 0 || sender->at_ns > start || start - sender->at_ns > IPI_FLIGHT_NS) return;
  record->sender_cpu = sender->cpu;
  record->callback = sender->callback;
  record->sender_tid = sender->tid;
  record->sender_pid = sender->pid;
  __builtin_memcpy(record->sender_comm, sender->comm, sizeof(record->sender_comm));
}

static __always_inline int hardirq_enter(u32 vector) {
  struct pg_cpu *state = watched_cpu();
  if (!state) return 0;
  state->hardirq_vector = vector;
  state->sampled = 0;
  state->hardirq_ns = bpf_ktime_get_ns();
  return 0;
}

/* The record of the interrupt that ends now, or NULL where its beginning was not seen. */
static __always_inline struct ev_irq *hardirq_leave(u32 vector, s32 irq) {
  struct pg_cpu *state = cpu_state_of(bpf_get_smp_processor_id());
  struct ev_irq *record;
  u64 start, now;
  if (!state || !state->hardirq_ns) return 0;
  start = state->hardirq_ns;
  state->hardirq_ns = 0;
  if (!state->watched || state->hardirq_vector != vector) return 0;
  now = bpf_ktime_get_ns();
  state->last_irq = irq;
  state->last_irq_vector = vector;
  state->last_irq_start_ns = start;
  state->last_irq_ns = now;
  record = reserve_record(struct ev_irq, EV_IRQ, bpf_get_smp_processor_id(), start, now);
  if (!record) return 0;
  record->vector = vector;
  record->irq = irq;
  record->flags = state->sampled ? EV_IRQ_FROM_AGENT : 0;
  record->sender_cpu = 0;
  record->callback = 0;
  record->sender_tid = 0;
  record->sender_pid = 0;
  record->sender_comm[0] = 0;
  record->action[0] = 0;
  if (vector == EV_VECTOR_CALL_FUNCTION || vector == EV_VECTOR_CALL_FUNCTION_SINGLE ||
      vector == EV_VECTOR_RESCHEDULE)
    describe_sender(record, state, start);
  return record;
}

static __always_inline int vector_leave(u32 vector) {
  struct ev_irq *record = hardirq_leave(vector, -1);
  if (record) submit(record);
  return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(on_irq_handler_entry, int irq, struct irqaction *action) {
  return hardirq_enter(EV_VECTOR_DEVICE);
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(on_irq_handler_exit, int irq, struct irqaction *action, int ret) {
  struct ev_irq *record = hardirq_leave(EV_VECTOR_DEVICE, irq);
  const char *name;
  if (!record) return 0;
  name = BPF_CORE_READ(action, name);
  if (bpf_probe_read_kernel_str(record->action, sizeof(record->action), name) < 0)
    record->action[0] = 0;
  submit(record);
  return 0;
}

/* include/trace events of arch/x86/include/asm/trace/irq_vectors.h */
#define FOLLOW_VECTOR(name, vector)                                             \
  SEC("tp_btf/" #name "_entry")                                                 \
  int BPF_PROG(on_##name##_entry, int number) { return hardirq_enter(vector); } \
  SEC("tp_btf/" #name "_exit")                                                  \
  int BPF_PROG(on_##name##_exit, int number) { return vector_leave(vector); }

FOLLOW_VECTOR(reschedule, EV_VECTOR_RESCHEDULE)
FOLLOW_VECTOR(call_function, EV_VECTOR_CALL_FUNCTION)
FOLLOW_VECTOR(call_function_single, EV_VECTOR_CALL_FUNCTION_SINGLE)
FOLLOW_VECTOR(irq_work, EV_VECTOR_IRQ_WORK)
FOLLOW_VECTOR(x86_platform_ipi, EV_VECTOR_X86_PLATFORM_IPI)
FOLLOW_VECTOR(thermal_apic, EV_VECTOR_THERMAL)
FOLLOW_VECTOR(threshold_apic, EV_VECTOR_THRESHOLD)
FOLLOW_VECTOR(deferred_error_apic, EV_VECTOR_DEFERRED_ERROR)
FOLLOW_VECTOR(error_apic, EV_VECTOR_ERROR_APIC)
FOLLOW_VECTOR(spurious_apic, EV_VECTOR_SPURIOUS_APIC)

/*
 * Where an interrupt found the current thread, a target's: its user stack, the kernel stack, which
 * tells user space whether user code was interrupted (then nothing lies below the interrupt's own
 * entry), and the sample.
 */
static __always_inline void emit_sample(void *ctx, struct thread_state *thread, u32 cpu, u64 now,
                                        u32 reason, u64 asked_ns, u32 flags) {
  struct pt_regs *regs;
  struct ev_stack *kernel;
  struct ev_sample *record;
  long bytes;
  emit_user_stack(ctx, thread->tid, cpu, now, now);
  kernel = reserve_record(struct ev_stack, EV_STACK, cpu, now, now);
  if (kernel) {
    kernel->tid = thread->tid;
    kernel->role = EV_STACK_KERNEL;
    bytes = bpf_get_stack(ctx, kernel->ip, sizeof(kernel->ip), 0);
    kernel->frames = bytes > 0 ? bytes / sizeof(u64) : 0;
    submit(kernel);
  }
  record = reserve_record(struct ev_sample, EV_SAMPLE, cpu, now, now);
  if (!record) return;
  record->tid = thread->tid;
  record->reason = reason;
  record->on_cpu = 1;
  record->asked_ns = asked_ns;
  record->flags = flags;
  record->reserved = 0;
  regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
  record->user_ip = regs ? BPF_CORE_READ(regs, ip) : 0;
  record->mode = regs && in_probe_call(regs) ? EV_SAMPLE_UPROBE : EV_SAMPLE_UNTOLD;
  submit(record);
}

/* Where the timer found a target thread that has been silent for a while: free of charge. */
static __always_inline void sample_at_tick(void *ctx) {
  struct thread_state *thread = current_target_thread();
  struct pg_thread_clock *clock;
  u64 now;
  if (!thread) return;
  if (thread->out_ns) back_unseen(thread);
  clock = clock_of(thread);
  now = bpf_ktime_get_ns();
  if (!clock || now - clock->last_poll_ns < config.stack_ns) return;
  emit_sample(ctx, thread, bpf_get_smp_processor_id(), now, EV_SAMPLE_TICK, 0, 0);
}

SEC("tp_btf/local_timer_entry")
int BPF_PROG(on_local_timer_entry, int number) {
  struct pg_cpu *state = watched_cpu();
  hardirq_enter(EV_VECTOR_LOCAL_TIMER);
  if (state && config.steal_at_ticks) state->rq_clock = BPF_CORE_READ(this_rq(), clock);
  sample_at_tick(ctx);
  return 0;
}

SEC("tp_btf/local_timer_exit")
int BPF_PROG(on_local_timer_exit, int number) {
  struct pg_cpu *state = watched_cpu();
  if (state) note_smis(state, bpf_ktime_get_ns());
  /* Not every timer interrupt is a tick, in which the scheduler looks at the time. */
  if (state && config.steal_at_ticks && state->hardirq_ns &&
      state->rq_clock != BPF_CORE_READ(this_rq(), clock))
    read_steal_clock(state, bpf_get_smp_processor_id(), state->hardirq_ns);
  return vector_leave(EV_VECTOR_LOCAL_TIMER);
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(on_softirq_entry, unsigned int vector) {
  struct pg_cpu *state = watched_cpu();
  if (!state) return 0;
  state->softirq_vector = vector;
  state->softirq_ns = bpf_ktime_get_ns();
  return 0;
}

static __always_inline bool in_ksoftirqd(void) {
  const u64 ksoftirq = 0x71726974666f736bull; /* the name's first eight bytes, little endian */
  u64 comm[EV_COMM_BYTES / sizeof(u64)] = {};
  struct task_struct *task = bpf_get_current_task_btf();
  if (!(task->flags & PF_KTHREAD)) return false;
  bpf_get_current_comm(comm, sizeof(comm));
  return comm[0] == ksoftirq;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(on_softirq_exit, unsigned int vector) {
  u32 cpu = bpf_get_smp_processor_id();
  struct pg_cpu *state = cpu_state_of(cpu);
  struct ev_softirq *record;
  u64 start;
  if (!state || !state->softirq_ns) return 0;
  start = state->softirq_ns;
  state->softirq_ns = 0;
  if (!state->watched || state->softirq_vector != vector) return 0;
  record = reserve_record(struct ev_softirq, EV_SOFTIRQ, cpu, start, bpf_ktime_get_ns());
  if (!record) return 0;
  record->vector = vector;
  record->in_ksoftirqd = in_ksoftirqd();
  record->after_irq = -1;
  record->after_vector = EV_VECTOR_COUNT;
  if (follows_irq(state, start)) {
    record->after_irq = state->last_irq;
    record->after_vector = state->last_irq_vector;
  }
  submit(record);
  return 0;
}

static __always_inline void note_sender(struct pg_ipi_sender *sender, void *callback) {
  u64 id = bpf_get_current_pid_tgid();
  sender->tid = (u32)id;
  sender->pid = id >> 32;
  sender->cpu = bpf_get_smp_processor_id();
  sender->callback = (u64)callback;
  bpf_get_current_comm(sender->comm, sizeof(sender->comm));
  sender->at_ns = bpf_ktime_get_ns();
}

/* ipi:ipi_send_cpu and ipi_send_cpumask exist since 6.4. */
SEC("tp_btf/ipi_send_cpu")
int BPF_PROG(on_ipi_send_cpu, unsigned int cpu, unsigned long callsite, void *callback) {
  struct pg_cpu *state = cpu_state_of(cpu);
  if (state && state->watched) note_sender(&state->ipi, callback);
  return 0;
}

SEC("tp_btf/ipi_send_cpumask")
int BPF_PROG(on_ipi_send_cpumask, const struct cpumask *mask, unsigned long callsite,
             void *callback) {
  for (u32 word = 0; word < PG_MAX_CPUS / 64; word++) {
    u64 bits = 0;
    u32 key = word; /* on the stack, where the verifier of 6.12 forgets its bounds */
    struct mask_ipi *ipi;
    if (word * 64 >= possible_cpus) break;
    bpf_probe_read_kernel(&bits, sizeof(bits), (const u64 *)mask + word);
    if (!(bits & watched_words[word])) continue;
    ipi = bpf_map_lookup_elem(&mask_ipis, &key);
    if (!ipi) continue;
    ipi->bits = bits;
    note_sender(&ipi->sender, callback);
  }
  return 0;
}

#endif /* POLLGAP_IRQ_BPF_H */
