/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The evidence: what the kernel side tells user space, and what a capture file holds.
 *
 * Shared by the BPF programs (C) and the agent (C++); nothing else lives here. Every record starts
 * with struct ev_header and is a multiple of 8 bytes. Times are CLOCK_MONOTONIC nanoseconds
 * (bpf_ktime_get_ns). Identifiers of tasks are those of the initial PID namespace. A record that
 * describes an interval is written once, when the interval ends, so nested intervals come before
 * the one that contains them, and everything that happened to a thread before its gap ended comes
 * before the gap's own record. Gaps that the agent has found (EV_GAP_OBSERVED) obey the last, too.
 *
 * Kinds below EV_FIRST_AGENT_KIND come from BPF. The others are added to the stream by the agent's
 * capture stage (names for addresses, ids and numbers; what the session is), always before the
 * first record that needs them, so that the correlator needs nothing but the stream.
 */
#ifndef POLLGAP_EVIDENCE_H
#define POLLGAP_EVIDENCE_H

#ifndef __bpf__
#include <linux/types.h>
#endif

#define EV_COMM_BYTES 16
#define EV_IRQ_NAME_BYTES 48
#define EV_STACK_FRAMES 24
#define EV_TRACE_BYTES 512

enum ev_kind {
  EV_RUN = 1,     /* struct ev_run: a task ran on a watched CPU while a target thread was off it */
  EV_OFF_CPU = 2, /* struct ev_off_cpu: a target thread was off the CPU */
  EV_IRQ = 3,     /* struct ev_irq: a hard interrupt on a watched CPU */
  EV_SOFTIRQ = 4, /* struct ev_softirq: a softirq on a watched CPU */
  EV_WORK = 5,    /* struct ev_work: a kworker executed one work item on a watched CPU */
  EV_SELF = 6,   /* struct ev_self: a target thread's system call or page fault, or a run of them */
  EV_VERB = 7,   /* struct ev_verb: a target thread called a control-path verb */
  EV_SAMPLE = 8, /* struct ev_sample: where a target thread stood at start_ns (== end_ns) */
  EV_STACK = 9,  /* struct ev_stack: a stack that belongs to the record that follows it */
  EV_SIGNAL = 10,     /* struct ev_signal: a signal was sent to the target */
  EV_MIGRATE = 11,    /* struct ev_migrate: a target thread was moved to another CPU */
  EV_GAP = 12,        /* struct ev_gap: a polling thread was silent on a CQ */
  EV_WC_ERROR = 13,   /* struct ev_wc_error: a poll returned error completions */
  EV_PROCESS = 14,    /* struct ev_process: a target thread exited, or the target called exec */
  EV_STEAL = 15,      /* struct ev_steal: a watched CPU's steal clock was read */
  EV_TRACE = 16,      /* struct ev_trace: a followed tracepoint fired. It does not leave the capture
                         stage, which decodes it: EV_TRACE_EVENT */
  EV_SMI = 17,        /* struct ev_smi: a watched CPU's count of SMIs was read */
  EV_STANDSTILL = 18, /* struct ev_standstill: the agent's own core took no interrupt for long */

  EV_FIRST_AGENT_KIND = 64,
  EV_NAME = 64, /* struct ev_name: what an address, id or number is called */
  EV_SESSION =
      65, /* struct ev_text: JSON object {tool, host, target, options}; first in a capture */
  EV_COVERAGE = 66, /* struct ev_text: JSON object, what could not be seen; last in a capture */
  EV_AGENT = 67,    /* struct ev_agent: the agent was attaching or detaching */
  EV_POLLS =
      68,       /* struct ev_polls: sums of one thread's polls of one CQ, since the session began */
  EV_LOST = 69, /* struct ev_lost: records lost in [start_ns, end_ns] */
  EV_TRACE_EVENT = 70, /* struct ev_trace_event: a followed tracepoint fired, decoded */
  EV_STAMP = 71,       /* struct ev_stamp: when the adapter made the completion that ended a gap */
};

/* 24 bytes. cpu is the CPU the record speaks of, not the one that wrote it. */
struct ev_header {
  __u16 kind;
  __u16 bytes; /* of the whole record, header included */
  __u32 cpu;
  __u64 start_ns;
  __u64 end_ns;
};

/* Task flags. */
#define EV_TASK_KTHREAD 0x1u   /* PF_KTHREAD */
#define EV_TASK_WQ_WORKER 0x2u /* PF_WQ_WORKER: a kworker */

struct ev_task {
  __u32 tid;      /* 0: the idle task */
  __u32 pid;      /* thread group */
  __s32 priority; /* task_struct.prio: 0..98 real time (99 - rt_priority), 100..139 fair, <0
                     deadline */
  __u32 policy;   /* SCHED_* */
  __u32 flags;    /* EV_TASK_* */
  __u32 reserved;
  __u64 cgroup_id; /* of the cgroup in the default hierarchy or the cpu controller; 0 unknown */
  char comm[EV_COMM_BYTES];
};

enum ev_wake_context {
  EV_WAKE_UNKNOWN = 0,
  EV_WAKE_TASK = 1,    /* woken by a task in its own context */
  EV_WAKE_SOFTIRQ = 2, /* woken from a softirq; the task named is only what it interrupted */
  EV_WAKE_HARDIRQ = 3, /* woken from a hard interrupt; likewise */
};

struct ev_waker {
  __u32 tid;
  __u32 pid;
  __u64 at_ns;   /* when sched_waking fired; 0: not seen */
  __u32 context; /* enum ev_wake_context */
  __u32 cpu;     /* the waker's CPU */
  char comm[EV_COMM_BYTES];
};

struct ev_run {
  struct ev_header header; /* start: switched in; end: switched out */
  struct ev_task task;
  struct ev_waker waker; /* of this stretch; at_ns 0 when the task was preempted, not woken */
  __u64 work_function;   /* kernel address of the work item a kworker was in at end_ns, else 0 */
  __u32 fair_server; /* 1: the deadline server lent it this stretch (RT throttling since 6.12) */
  __u32 reserved;
};

/* ev_off_cpu.flags */
#define EV_OFF_PREEMPTED \
  0x1u /* it was runnable when it left (sched_switch's preempt, or state 0) */
#define EV_OFF_CFS_THROTTLED 0x2u /* its task group had used up its CFS quota */
#define EV_OFF_RT_THROTTLED 0x4u  /* its real-time runqueue was throttled */
#define EV_OFF_FROZEN 0x8u        /* cgroup freezer */
#define EV_OFF_IN_SYSCALL 0x10u   /* syscall_nr is valid */
#define EV_OFF_IN_FAULT 0x20u     /* inside a page fault at fault_address */
#define EV_OFF_OPEN 0x40u         /* it had not come back when the session ended */
#define EV_OFF_STOPPED 0x80u      /* signal stop (__TASK_STOPPED) */
#define EV_OFF_TRACED 0x100u      /* ptrace stop (__TASK_TRACED) */
#define EV_OFF_UNSEEN 0x200u      /* it came back meanwhile, at an instant that was not seen */
#define EV_OFF_WAITS_EVENT 0x400u /* in ibv_get_cq_event */

struct ev_off_cpu {
  struct ev_header header; /* start: switched out; end: switched in; cpu: where it came back */
  __u32 tid;
  __u32 out_cpu; /* where it left */
  __u32 state;   /* task_struct.__state when it left: 0 runnable */
  __u32 flags;   /* EV_OFF_* */
  __s32 syscall_nr;
  __s32 priority; /* task_struct.prio of the target thread when it left */
  __u32 policy;
  __u32 reserved;
  __u64 fault_address;
  __u64 user_ip;   /* where its user code stood; 0 unknown */
  __u64 wakeup_ns; /* when it became runnable again (sched_wakeup); 0: it was runnable all along */
  struct ev_waker waker;    /* who woke it; at_ns 0: not seen */
  __u64 throttle_cgroup_id; /* the throttled group, with EV_OFF_*_THROTTLED; 0 unknown */
  __u64 quota_ns;
  __u64 period_ns;
};

/* Kinds of hard interrupt. Everything but EV_VECTOR_DEVICE comes from irq_vectors tracepoints. */
enum ev_vector {
  EV_VECTOR_DEVICE = 0, /* irq_handler_entry/exit: one action of a device interrupt */
  EV_VECTOR_LOCAL_TIMER = 1,
  EV_VECTOR_RESCHEDULE = 2,
  EV_VECTOR_CALL_FUNCTION = 3,
  EV_VECTOR_CALL_FUNCTION_SINGLE = 4,
  EV_VECTOR_IRQ_WORK = 5,
  EV_VECTOR_X86_PLATFORM_IPI = 6,
  EV_VECTOR_THERMAL = 7,
  EV_VECTOR_THRESHOLD = 8,
  EV_VECTOR_DEFERRED_ERROR = 9,
  EV_VECTOR_ERROR_APIC = 10,
  EV_VECTOR_SPURIOUS_APIC = 11,
  EV_VECTOR_COUNT,
};

#define EV_IRQ_FROM_AGENT 0x1u /* the agent caused it: it ran the agent's own sampler */

struct ev_irq {
  struct ev_header header;
  __u32 vector; /* enum ev_vector */
  __s32 irq;    /* device interrupt number, -1 otherwise */
  __u32 flags;  /* EV_IRQ_* */
  __u32 sender_cpu;
  __u64 callback;   /* kernel address of the function an IPI was to run, 0 unknown */
  __u32 sender_tid; /* who sent the IPI (ipi:ipi_send_cpu/ipi_send_cpumask); 0 unknown */
  __u32 sender_pid;
  char sender_comm[EV_COMM_BYTES];
  char action[EV_IRQ_NAME_BYTES]; /* irqaction.name of a device interrupt, NUL-terminated */
};

struct ev_softirq {
  struct ev_header header;
  __u32 vector;       /* 0..9: HI TIMER NET_TX NET_RX BLOCK IRQ_POLL TASKLET SCHED HRTIMER RCU */
  __u32 in_ksoftirqd; /* 1: ran in the ksoftirqd task, not on the back of an interrupt */
  __s32 after_irq;    /* device irq that last ran on this CPU before it within 100 us, -1 unknown */
  __u32 after_vector; /* enum ev_vector of that interrupt; EV_VECTOR_COUNT unknown */
};

struct ev_work {
  struct ev_header header;
  __u32 tid; /* of the kworker */
  __u32 reserved;
  __u64 function; /* kernel address */
};

enum ev_self_type {
  EV_SELF_SYSCALL = 0,
  EV_SELF_FAULT_MINOR = 1,
  EV_SELF_FAULT_MAJOR = 2,
  EV_SELF_FAULT = 3, /* of unknown kind */
};

/* EV_SELF_BOUND: the kernel showed where it began but not where it ended; end_ns is an upper bound
 */
#define EV_SELF_BOUND 0x1u

/*
 * Off-CPU time and interrupts inside the interval are not subtracted.
 * count > 1: a run of short ones coalesced in the kernel; sum_ns of [start, end] was theirs, and
 * where in that interval each lay is not known. count == 1: sum_ns == end - start.
 */
struct ev_self {
  struct ev_header header;
  __u32 tid;
  __u32 type;       /* enum ev_self_type, of the longest */
  __s32 syscall_nr; /* of the longest; -1 for faults */
  __u32 count;
  __u64 sum_ns;
  __u64 address;      /* fault address of the longest */
  __u64 user_ip;      /* of the longest */
  __u32 flags;        /* EV_SELF_* */
  __u32 major_faults; /* in the run */
};

struct ev_verb {
  struct ev_header header;
  __u32 tid;
  __u32 verb;  /* key of an EV_NAME record of kind EV_NAME_VERB */
  __u64 bytes; /* length argument of a registration, else 0 */
  __s64 result;
  __u64 depth; /* 0 outermost; > 0 called inside another control verb */
};

enum ev_sample_reason {
  EV_SAMPLE_TICK = 0,    /* the local timer interrupted it */
  EV_SAMPLE_SILENCE = 1, /* the agent asked, because it had been silent for long */
};

enum ev_sample_mode {
  EV_SAMPLE_KERNEL = 0,
  EV_SAMPLE_USER = 1,
  EV_SAMPLE_UNTOLD = 2,
  EV_SAMPLE_UPROBE = 3, /* in the kernel's handling of a uprobe that user code had run into */
};

/* ev_sample.flags */
#define EV_SAMPLE_ASKED_LATER \
  0x1u /* the IPI left at asked_ns or later: who sends IPIs is traced since Linux 6.4 */

struct ev_sample {
  struct ev_header header;
  __u32 tid;
  __u32 reason; /* enum ev_sample_reason */
  __u32 mode;   /* enum ev_sample_mode: what it was executing */
  __u32 on_cpu; /* 1: the thread was the running task of the CPU */
  __u64 user_ip;
  __u64 asked_ns; /* with EV_SAMPLE_SILENCE: when the agent's IPI left; the answer came at
                     start_ns */
  __u32 flags;    /* EV_SAMPLE_* */
  __u32 reserved;
};

enum ev_stack_role {
  EV_STACK_USER = 0,
  EV_STACK_KERNEL = 1, /* where a blocked thread sleeps */
};

struct ev_stack {
  struct ev_header header;
  __u32 tid;
  __u16 role; /* enum ev_stack_role */
  __u16 frames;
  __u64 ip[EV_STACK_FRAMES]; /* innermost first */
};

struct ev_signal {
  struct ev_header header;
  __u32 tid; /* receiver */
  __u32 pid;
  __s32 signal;
  __s32 code;
  __u32 sender_tid; /* the task in whose context it was generated */
  __u32 sender_pid;
  char sender_comm[EV_COMM_BYTES];
};

struct ev_migrate {
  struct ev_header header;
  __u32 tid;
  __u32 from_cpu;
  __u32 to_cpu;
  __u32 by_tid; /* the task in whose context it was moved */
};

/* Written when the clock has advanced since the last reading, and after each stall. */
struct ev_steal {
  struct ev_header header; /* start: the reading before, or the first that gave the same; end: this
                              one */
  __u64 steal_ns;          /* stolen between the two */
};

/*
 * System management interrupts (SMIs), in which the firmware has the CPU. Written when the CPU's
 * count of them has advanced since the last reading, and after each stall; a CPU's records follow
 * each other without holes.
 */
struct ev_smi {
  struct ev_header header; /* as ev_steal's */
  __u64 count;             /* SMIs between the two */
};

/* The agent's sampler slept, and its timer's interrupt came late: a core took none for so long. */
struct ev_standstill {
  struct ev_header header; /* start: when the timer was due; end: when its interrupt came; cpu:
                              where */
};

/* A tracepoint of a driver or kernel module, whose layout only the running kernel knows. */
struct ev_trace {
  struct ev_header header; /* start == end: when it fired */
  __u32 tid;               /* the task in whose context it fired */
  __u32 pid;
  char comm[EV_COMM_BYTES];
  __u32 event; /* index into the list of the events that the agent follows */
  __u32 reserved;
  __u8 data[EV_TRACE_BYTES]; /* the beginning of its record. In place of the first 8 bytes (the
                                common fields) a pointer of no use; what lies behind the record's
                                end means nothing */
};

enum ev_gap_kind {
  EV_GAP_IN_POLL = 0,
  EV_GAP_BETWEEN_POLLS = 1,
  EV_GAP_LATE_COMPLETION = 2,
  EV_GAP_UNPOLLED_COMPLETION = 3,
  EV_GAP_STALLED = 4,
};

#define EV_GAP_OPEN                                                            \
  0x1u /* the thread had not polled again when the session or the thread ended \
        */
#define EV_GAP_NO_RETURN \
  0x2u /* poll returns are not timed here: between_polls may include the poll */
#define EV_GAP_WAITED_EVENT \
  0x4u /* a wait for a completion event ended where it begins, or began where it ends */
#define EV_GAP_STEAL_VALID 0x8u /* steal_ns was read on one and the same CPU at both edges */
#define EV_GAP_OBSERVED \
  0x10u /* written by the agent, which looks at the CQ from time to time: polls are not counted */

struct ev_gap {
  struct ev_header header; /* start and end of the gap; cpu: at its end */
  __u32 tid;
  __u32 pid;
  __u32 gap_kind; /* enum ev_gap_kind */
  __u32 flags;    /* EV_GAP_* */
  __u64 cq;       /* address of the ibv_cq in the target; 0: not of one CQ (stalled) */
  __u32 site;     /* index of the poll site in the session's target.sites */
  __u32 start_cpu;
  __u64 polls;               /* polls inside the gap (late_completion) */
  __u32 completions;         /* returned by the poll that ended it */
  __u32 outstanding;         /* signaled sends of the CQ when it ended, before completions */
  __u64 steal_ns;            /* steal clock's advance */
  __u32 error_completions;   /* returned in or at the end of it */
  __u32 edge_uncertainty_ns; /* either edge may lie so much earlier or later */
  __u64 vain_until_ns; /* of a late_completion: when the last poll that found nothing was over */
};

struct ev_wc_error {
  struct ev_header header; /* start == end: when the poll returned */
  __u32 tid;
  __u32 completions; /* returned by that poll */
  __u64 cq;
  __u64 wr_id;      /* of the first error that is not a flush, else of the first flush */
  __u32 qp_num;     /* likewise */
  __u32 status;     /* enum ibv_wc_status, likewise */
  __u32 vendor_err; /* likewise */
  __u32 errors;     /* error completions among those looked at */
  __u32 flushes;    /* of these, IBV_WC_WR_FLUSH_ERR */
  __u32 looked_at;  /* at most this many of the completions were read */
};

enum ev_process_what {
  EV_PROCESS_THREAD_EXIT = 0,
  EV_PROCESS_EXIT = 1, /* the whole thread group */
  EV_PROCESS_EXEC = 2,
};

struct ev_process {
  struct ev_header header;
  __u32 tid;
  __u32 pid;
  __u32 what; /* enum ev_process_what */
  __u32 reserved;
};

/* ---- written by the agent ---- */

enum ev_name_kind {
  EV_NAME_KERNEL_FUNCTION = 0, /* key: kernel address; text: symbol */
  EV_NAME_CGROUP = 1,          /* key: cgroup id; text: path below the mount */
  EV_NAME_IRQ = 2, /* key: irq number; text: JSON {"device","rdma_device","action","affinity",
                      "effective_affinity","chip"} */
  EV_NAME_USER_FRAME =
      3,            /* key: user address; text: JSON {"function","file","line","module","offset"} */
  EV_NAME_VERB = 4, /* key: verb id; text: "ibv_reg_mr" */
  EV_NAME_THREAD = 5,  /* key: tid of a target thread; text: comm */
  EV_NAME_SYSCALL = 6, /* key: number; text: "nanosleep" */
};

struct ev_name {
  struct ev_header header;
  __u32 name_kind; /* enum ev_name_kind */
  __u32 text_bytes;
  __u64 key;
  /* text_bytes bytes of UTF-8, zero-padded to a multiple of 8 */
};

struct ev_text {
  struct ev_header header;
  __u32 text_bytes;
  __u32 reserved;
  /* text_bytes bytes of JSON, zero-padded to a multiple of 8 */
};

enum ev_agent_what {
  EV_AGENT_ATTACH = 0,
  EV_AGENT_DETACH = 1,
  EV_AGENT_LATE_SITE = 2, /* also: to tracepoints of a module loaded meanwhile */
};

struct ev_agent {
  struct ev_header header;
  __u32 what; /* enum ev_agent_what */
  __u32 reserved;
};

struct ev_latency {
  __u64 count, sum_ns, longest_ns;
};

struct ev_polls {
  struct ev_header header; /* start: first poll seen; end: last */
  __u32 tid;
  __u32 site;
  __u64 cq;
  __u64 polls;
  __u64 empty_polls;
  __u64 completions;
  __u64 error_completions;
  __u64 idle_ns; /* polls found nothing and nothing signaled was outstanding, in stretches >=
                    threshold */
  __u64 posted_sends;
  __u64 posted_signaled;
  /* Each wait for a completion event in which the thread slept, until its next poll of this CQ. */
  struct ev_latency interrupt_to_wakeup; /* where the interrupt was seen */
  struct ev_latency wakeup_to_run;
  struct ev_latency run_to_poll;
};

struct ev_stamp {
  struct ev_header header; /* start == end: when the gap ended */
  __u32 tid;
  __u32 reserved;
  __u64 cq;
  __u64 ticks; /* in the completion: of the adapter's clock, or of UTC in nanoseconds */
  /* It was made between these two times, and lay in memory between the next two. */
  __u64 made_after_ns, made_until_ns;
  __u64 written_after_ns, written_until_ns;
};

struct ev_lost {
  struct ev_header header;
  __u64 records;
};

struct ev_trace_event {
  struct ev_header header; /* start == end: when it fired */
  __u32 tid;               /* the task in whose context it fired */
  __u32 pid;
  char comm[EV_COMM_BYTES];
  __u32 text_bytes;
  __u32 reserved;
  /* text_bytes bytes of JSON, zero-padded to a multiple of 8:
     {"event": "mlx5:mlx5_cmd", "text": as the kernel's print format has it, "fields": {name: text},
      "truncated": true where its record was longer than EV_TRACE_BYTES} */
};

#endif /* POLLGAP_EVIDENCE_H */
