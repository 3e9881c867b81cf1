/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Values of the maps that the agent reads at the end of a session. Shared by the BPF programs and
 * agent/capture.
 */
#ifndef POLLGAP_MAP_TYPES_H
#define POLLGAP_MAP_TYPES_H

#include "evidence.h"

#define PG_PENDING 32
#define PG_VERB_DEPTH 4
#define PG_NO_CPU 0xffffffffu

/* One of a thread's own kernel stretches since its last poll, not yet told. */
struct pending_self {
  __u64 start_ns, end_ns, sum_ns, longest_ns, address, user_ip;
  __s32 syscall_nr;
  __u32 type, count, flags;
  __u32 major_faults, reserved;
};

struct verb_call {
  __u64 cookie, start_ns, bytes;
};

struct thread_state {
  __u32 tid, slot; /* index in thread_clocks */
  __u32 cpu;       /* where it runs or waits */
  __u32 pending_count;
  /* off the CPU */
  __u64 out_ns;
  __u32 out_cpu, out_state, out_flags, out_policy;
  __s32 out_priority;
  __u32 out_stack_frames;
  __u64 out_user_ip;
  __u64 wakeup_ns;
  struct ev_waker waker;
  __u64 throttle_cgroup_id, quota_ns, period_ns;
  __u64 last_stack_ns;
  /* kernel entries */
  __u64 syscall_ns, syscall_ip;
  __s32 syscall_nr;
  __u32 verb_depth;
  __u64 fault_ns, fault_address, fault_ip;
  struct verb_call verbs[PG_VERB_DEPTH];
  /* polls */
  __u64 poll_enter_ns, poll_cq, poll_wc, poll_cookie;
  __u64 last_poll_cq, last_poll_exit_ns, last_exit_steal_ns;
  __u32 last_exit_cpu, reserved;
  __u64 event_enter_ns, event_return_ns;
  __u64 before_event_ns; /* end of the poll or of the wait that was the last before that wait */
  /* In the latest wait, 0 not seen: start of the interrupt that led to its wakeup, that, and when
     it got the CPU. */
  __u64 event_irq_ns, event_woken_ns, event_run_ns;
  struct pending_self pending[PG_PENDING];
  __u64 out_stack[EV_STACK_FRAMES];
};

struct poll_key {
  __u64 cq;
  __u32 tid, reserved;
};

struct poll_state {
  __u32 site, exit_cpu;
  __u64 first_ns, last_ns;
  __u64 exit_ns;         /* when the latest poll returned (or began, without return probes) */
  __u64 exit_steal_ns;   /* the steal clock of exit_cpu then; during a poll: when it began */
  __u64 before_ns;       /* exit_ns of the poll before the latest */
  __u64 window_ns;       /* since when polls have found nothing; 0: not yet polled */
  __u64 window_polls;    /* polls in that window */
  __u64 window_steal_ns; /* the steal clock when it began, of this CPU; PG_NO_CPU: not known */
  __u32 window_cpu;
  __u32 seen; /* polls that bursts of probes saw; they are not among the next */
  __u64 polls, empty_polls, completions, error_completions, idle_ns;
  struct ev_latency interrupt_to_wakeup, wakeup_to_run, run_to_poll; /* as in ev_polls */
  /* Where the CQ is read instead of timing returns. */
  __u32 readable;                    /* enum pg_cq_readable */
  __u32 consumer_index;              /* as of the latest entry */
  __u64 wc;                          /* the latest poll's array of work completions */
  __u32 new_completions, new_errors; /* of the latest poll, until the next one begins */
};

enum pg_cq_readable {
  PG_CQ_NOT_LOOKED_AT = 0,
  PG_CQ_READABLE = 1,
  PG_CQ_UNREADABLE = 2, /* it has not what its site's layout says */
};

/*
 * The polls of a thread and CQ that found nothing since the latest that needed a closer look, kept
 * by the CPU that it runs on. They are added to the thread's poll_state before anything else of the
 * thread is judged.
 */
struct quick_polls {
  __u64 thread; /* as bpf_get_current_pid_tgid() gives it; 0: none */
  __u64 cq;
  __u64 ip, sp;        /* registers at the probe: they tell the poll function, and the thread */
  __u64 index_address; /* of the consumer index, in the target */
  __u64 last_ns, steal_ns, wc; /* of the latest */
  __u64 before_ns;             /* when the one before it was */
  __u64 began_ns;              /* when the first of them was */
  __u64 polls;
  __u32 consumer_index;
  __u32 slot;     /* the thread's in thread_clocks */
  __u32 may_skip; /* 1: no wr_id is needed, so not every poll must be looked at */
  __u32 skipped;  /* 1: at the latest it was not, and what the one before returned is not known */
};

struct cq_state {
  __s64 outstanding; /* signaled sends posted and not completed, as far as seen */
  __u64 since_ns;    /* since when it is above 0 */
  __u64 posted_sends, posted_signaled;
  __u64 forgotten;       /* how often what was outstanding became unknown */
  __u64 counted_from_ns; /* judged_from_ns when counting began */
  __u32 settled;         /* the consumer index up to which completions are accounted for */
  __u32 settles;         /* 1: `settled` is set */
  __s32 beginning;       /* QPs of which the first send counted has not completed */
  __u32 reserved;
};

#endif /* POLLGAP_MAP_TYPES_H */
