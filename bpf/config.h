/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What user space sets before the programs load (const volatile data), and the one table that it
 * reads while they run. Shared by the BPF programs and agent/capture.
 */
#ifndef POLLGAP_CONFIG_H
#define POLLGAP_CONFIG_H

#ifndef __bpf__
#include <linux/types.h>
#endif

#include "evidence.h"

#define PG_MAX_CPUS 1024
#define PG_MAX_THREADS 256

/* A timer whose interrupt comes so late was on a core that took none. */
#define PG_STANDSTILL_NS 300000ull

/* Of followed tracepoints, each CPU records at most so many in a window; the others are counted. */
#define PG_TRACE_WINDOW_NS 100000000ull
#define PG_TRACE_WINDOW_RECORDS 64

struct pg_config {
  __u32 target_pid;     /* thread group of the target, initial PID namespace */
  __u32 agent_pid;      /* thread group of the agent */
  __u32 tids_given;     /* 1: only threads in the `chosen` map are target threads */
  __u32 steal_valid;    /* 1: the steal clock counts here, or nothing can steal */
  __u32 steal_at_ticks; /* 1: the scheduler's copy of the steal clock is read, at ticks and switches
                         */
  __u32 smi_counted;    /* 1: smi_counters holds each CPU's counter of SMIs */
  __u64 threshold_ns;
  __u64 stack_ns;       /* intervals at least this long get a stack */
  __u64 fault_run_ns;   /* faults closer than this to each other are one run ... */
  __u64 syscall_run_ns; /* ... and so are system calls: what lies between is entry and exit */
};

/*
 * Where the CQs of a poll site keep what has been consumed of them: offsets from the ibv_cq in
 * mlx5's object, of the layout that user space found. With it no return of a poll is needed.
 */
struct pg_cq_layout {
  __u32 known;           /* 0: returns are probed */
  __u32 consumer_index;  /* u32: completions consumed since the CQ was made */
  __u32 active_buffer;   /* pointer to an object whose first word is the ring's address */
  __u32 doorbell_record; /* pointer to the low 24 bits of the index, big endian */
  __u32 entry_bytes;     /* int: 64 or 128 */
  __u32 reserved[3];
};
#define PG_MAX_POLL_SITES 64

/* What a target thread is doing now, for the agent's silence sampler and for `open` gaps. */
enum pg_activity {
  PG_USER = 0, /* on the CPU, no kernel entry seen */
  PG_OFF_CPU = 1,
  PG_IN_SYSCALL = 2,
  PG_IN_FAULT = 3,
  PG_WAITS_EVENT = 4, /* in ibv_get_cq_event */
};

struct pg_thread_clock {
  __u32 tid; /* 0: free */
  __u32 cpu;
  __u32 activity; /* enum pg_activity */
  __u32 exited;
  __u64 last_poll_ns; /* entry or return of its latest poll; by the agent where it observes */
  __u64 probed;       /* its polls, and entries to and returns from posts, that were */
  __u64 closest_ns;   /* the least time between two of one CQ in a burst of probes; 0: none */
  __u64 reserved[3];
} __attribute__((aligned(64))); /* a cache line of its own */

/* A CPU as its own programs see it; the silence sampler looks before it asks. */
struct pg_ipi_sender {
  __u64 at_ns;
  __u64 callback;
  __u32 tid, pid, cpu, reserved;
  char comm[EV_COMM_BYTES];
};

struct pg_cpu {
  __u32 watched; /* target threads that run, or wait to run, here */
  __u32 last_irq_vector;
  __u64 slice_ns;   /* when the running task got the CPU; 0: not followed */
  __u64 hardirq_ns; /* start of the hard interrupt being handled, 0 none */
  __u32 hardirq_vector;
  __s32 last_irq;
  __u64 last_irq_start_ns, last_irq_ns;
  __u64 softirq_ns;
  __u32 softirq_vector;
  __u32 sampled;      /* the agent's sampler ran inside the present hard interrupt */
  __u32 running_tid;  /* the task switched in at slice_ns; 0: the idle task, or not known */
  __u32 running_lent; /* 1: the fair server lent it the CPU at slice_ns */
  __u32 leaving;      /* of `watched`: threads gone while they waited; kept until the next switch */
  __u32 steal_wanted; /* a gap has ended here since the last reading of the steal clock */
  __u64 steal_ns;     /* that reading; steal_read_ns: when it was; 0: never */
  __u64 steal_read_ns;
  __u64 steal_same_ns;   /* the earliest reading that gave the same */
  __u64 rq_clock;        /* the runqueue's clock when the timer interrupt began */
  __u64 trace_window_ns; /* since when trace_records are counted */
  __u32 trace_records;   /* of followed tracepoints that fired here in that window */
  __u32 smi_wanted;      /* a gap has ended here since the last reading of the SMI count */
  __u64 smi_count;       /* that reading; smi_read_ns: when it was; 0: never */
  __u64 smi_read_ns;
  __u64 smi_same_ns;        /* the earliest reading that gave the same */
  struct pg_ipi_sender ipi; /* who sent the latest IPI to this CPU */
} __attribute__((aligned(64)));

/* Role of a uprobe's site, in the upper half of its cookie; the lower half is its index or verb. */
enum pg_cookie_role {
  PG_POLL_CQ = 1,
  PG_START_POLL = 2,
  PG_NEXT_POLL = 3,
  PG_USER_POLL = 4,
};
#define PG_COOKIE(role, index) (((__u64)(role) << 32) | (__u32)(index))
#define PG_COOKIE_ROLE(cookie) ((__u32)((cookie) >> 32) & 0x7fffffff)
/* The poll site's returns are probed too. */
#define PG_COOKIE_HAS_RETURN (1ull << 63)
/* Verb cookies: the argument (1-based) that holds the length of a registration, 0 none. */
#define PG_VERB_COOKIE(verb, length_argument) (((__u64)(length_argument) << 32) | (__u32)(verb))

#endif /* POLLGAP_CONFIG_H */
