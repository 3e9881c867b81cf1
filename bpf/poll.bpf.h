/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Polls, and the gaps between them. A gap is found here, in the target thread itself: one record
 * leaves for a gap, none for a poll.
 *
 * Gaps of one thread and CQ never overlap. A stall (in_poll, between_polls) ends the window in
 * which polls went on in vain, and the next window begins after it. Such a window is a
 * late_completion when a signaled send was outstanding all the while, else idle time, which is
 * summed up.
 */
#ifndef POLLGAP_POLL_BPF_H
#define POLLGAP_POLL_BPF_H

#include "cq.bpf.h"
#include "self.bpf.h"

/* <infiniband/verbs.h>, stable ABI: struct ibv_wc, ibv_qp, ibv_send_wr. */
#define IBV_WC_BYTES 48
#define IBV_WC_STATUS 8
#define IBV_WC_QP_NUM 28
#define IBV_WC_BYTES_READ 40 /* up to qp_num: struct wc_head without its last members */
#define IBV_WC_RECV 128
#define IBV_WC_WR_FLUSH_ERR 5
#define IBV_SEND_SIGNALED 2
#define IBV_QP_NUM 52
#define IBV_CQ_EX_STATUS 132
#define IBV_CQ_EX_WR_ID 136
#define ENOENT 2

#define WCS_LOOKED_AT 256
#define WRS_LOOKED_AT 64

struct wc_head {
  u64 wr_id;
  u32 status, opcode, vendor_err, byte_len, imm, qp_num;
  u32 wr_id_unknown, reserved; /* not of struct ibv_wc */
};

struct wr_head {
  u64 wr_id, next, sg_list;
  u32 num_sge, opcode, send_flags, pad;
};

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 8192);
  __type(key, struct poll_key);
  __type(value, struct poll_state);
} polls SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 4096);
  __type(key, u64);
  __type(value, struct cq_state);
} cqs SEC(".maps");

/*
 * Completions of a QP's sends come in the order of the sends (InfiniBand Architecture
 * Specification 1, 10.8.5), so those that were in flight when counting began are over once the
 * first one counted has completed. It is known by its wr_id; where the program gives several sends
 * in flight the same, too few are counted, never too many.
 */
enum qp_count {
  QP_NOT_COUNTED = 0,
  QP_FIRST_IN_FLIGHT = 1, /* what completes before first_wr_id was posted before */
  QP_COUNTED = 2,
};

struct qp_state {
  s64 outstanding;
  u64 forgotten; /* its send CQ's when `outstanding` was counted */
  u64 first_wr_id;
  u32 count, reserved; /* enum qp_count */
};

struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 65536);
  __type(key, u32);
  __type(value, struct qp_state);
} qps SEC(".maps");

static const struct thread_state no_thread;
static const struct cq_state no_cq;
static const struct qp_state no_qp;

/*
 * Counts uses of the functions through which a process comes by another verbs context or CQ: the
 * agent looks for new poll functions when it moves.
 */
__u32 contexts_opened = 0;

SEC("uprobe")
int BPF_KPROBE(on_context_opened) {
  if (bpf_get_current_pid_tgid() >> 32 == config.target_pid)
    __sync_fetch_and_add(&contexts_opened, 1);
  return 0;
}

static __always_inline struct thread_state *new_target_thread(u32 tid, u64 now) {
  struct thread_state *thread;
  struct pg_thread_clock *clock;
  struct pg_cpu *cpu;
  u32 slot, number = bpf_get_smp_processor_id();
  if (config.tids_given && !bpf_map_lookup_elem(&chosen, &tid)) {
    __sync_fetch_and_add(&others_probed, 1);
    return 0;
  }
  if (bpf_map_update_elem(&threads, &tid, &no_thread, BPF_NOEXIST)) {
    __sync_fetch_and_add(&threads_refused, 1);
    return 0;
  }
  thread = bpf_map_lookup_elem(&threads, &tid);
  if (!thread) return 0;
  slot = __sync_fetch_and_add(&threads_seen, 1) & (PG_MAX_THREADS - 1);
  thread->tid = tid;
  thread->slot = slot;
  thread->cpu = number;
  cpu = cpu_state_of(number);
  if (cpu) watch(cpu, number, now);
  clock = bpf_map_lookup_elem(&thread_clocks, &slot);
  if (clock) {
    clock->cpu = number;
    clock->activity = PG_USER;
    clock->exited = 0;
    clock->last_poll_ns = now;
    clock->tid = tid;
  }
  return thread;
}

static __always_inline struct thread_state *polling_thread(u64 now) {
  u64 id = bpf_get_current_pid_tgid();
  u32 tid = (u32)id;
  struct thread_state *thread;
  if (id >> 32 != config.target_pid) return 0;
  thread = bpf_map_lookup_elem(&threads, &tid);
  return thread ? thread : new_target_thread(tid, now);
}

/* What is outstanding is not known any more: nothing is late until it has been counted anew. */
static __always_inline void forget_outstanding(struct cq_state *cq) {
  cq->forgotten++;
  cq->outstanding = 0;
  cq->beginning = 0;
}

/* After a time in which polls were not judged, and sends not counted. */
static __always_inline void count_anew(struct cq_state *cq) {
  if (cq->counted_from_ns == judged_from_ns) return;
  cq->counted_from_ns = judged_from_ns;
  cq->settles = 0;
  forget_outstanding(cq);
}

static __always_inline struct cq_state *cq_state_of(u64 cq) {
  struct cq_state *state = bpf_map_lookup_elem(&cqs, &cq);
  if (!state) {
    bpf_map_update_elem(&cqs, &cq, &no_cq, BPF_NOEXIST);
    state = bpf_map_lookup_elem(&cqs, &cq);
  }
  if (state) count_anew(state);
  return state;
}

static __always_inline struct poll_state *poll_state_of(u32 tid, u64 cq) {
  struct poll_key key = {.cq = cq, .tid = tid};
  static const struct poll_state fresh;
  struct poll_state *state = bpf_map_lookup_elem(&polls, &key);
  if (state) return state;
  bpf_map_update_elem(&polls, &key, &fresh, BPF_NOEXIST);
  return bpf_map_lookup_elem(&polls, &key);
}

struct gap_facts {
  u64 start_ns, end_ns, cq, polls, steal_ns, vain_until_ns;
  u32 kind, flags, start_cpu, completions, outstanding, errors;
};

/* Whether something was stolen in it is read when it has ended: SMIs now, steal in the next tick.
 */
static __always_inline void emit_gap(const struct thread_state *thread, u32 site,
                                     const struct gap_facts *facts) {
  u32 cpu = bpf_get_smp_processor_id();
  struct pg_cpu *cpu_state = cpu_state_of(cpu);
  struct ev_gap *record;
  if (cpu_state) {
    cpu_state->steal_wanted = 1;
    cpu_state->smi_wanted = 1;
    note_smis(cpu_state, facts->end_ns);
  }
  record = reserve_record(struct ev_gap, EV_GAP, cpu, facts->start_ns, facts->end_ns);
  if (!record) return;
  record->tid = thread->tid;
  record->pid = config.target_pid;
  record->gap_kind = facts->kind;
  record->flags = facts->flags;
  record->cq = facts->cq;
  record->site = site;
  record->start_cpu = facts->start_cpu;
  record->polls = facts->polls;
  record->completions = facts->completions;
  record->outstanding = facts->outstanding;
  record->steal_ns = facts->steal_ns;
  record->error_completions = facts->errors;
  record->edge_uncertainty_ns = 0;
  record->vain_until_ns = facts->vain_until_ns;
  submit(record);
}

/* What is stolen in so short a time matters to no gap. */
#define STEAL_NOISE_NS 20000

/*
 * The steal clock stood at `before` when the gap began or, if not `at_start`, earlier: then only a
 * clock that has not moved says what was stolen in the gap. `after`: at its end. On these CPUs.
 */
static __always_inline void tell_steal(struct gap_facts *facts, u32 cpu_before, u64 before,
                                       u32 cpu_after, u64 after, bool at_start) {
  if (!config.steal_valid || cpu_before != cpu_after || cpu_before == PG_NO_CPU) return;
  if (after != before && !at_start) return;
  facts->flags |= EV_GAP_STEAL_VALID;
  facts->steal_ns = after - before;
}

/* `steal`: the steal clock of `cpu` then; PG_NO_CPU: not known. */
static __always_inline void begin_window(struct poll_state *state, u64 start_ns, u32 cpu,
                                         u64 steal) {
  state->window_ns = start_ns;
  state->window_polls = 0;
  state->window_cpu = cpu;
  state->window_steal_ns = steal;
}

/*
 * Ends the window of vain polls at `end_ns`, with the steal clock of `cpu` at `steal`: tells of it
 * when a signaled send was outstanding in its last stretch for the threshold or longer, and adds
 * what it was idle. `vain_until_ns`: when the last of them was over.
 */
static __always_inline void end_window(const struct thread_state *thread, struct poll_state *state,
                                       s64 outstanding, u64 outstanding_since, u64 cq_address,
                                       u64 vain_until_ns, u64 end_ns, u32 cpu, u64 steal,
                                       u32 completions, u32 errors) {
  u64 start = state->window_ns;
  if (!start || end_ns <= start) return;
  if (outstanding > 0) {
    u64 since = outstanding_since > start ? outstanding_since : start;
    if (since > end_ns) since = end_ns;
    if (end_ns - since >= config.threshold_ns) {
      struct gap_facts facts = {.start_ns = since,
                                .end_ns = end_ns,
                                .cq = cq_address,
                                .polls = state->window_polls,
                                .kind = EV_GAP_LATE_COMPLETION,
                                .start_cpu = state->exit_cpu,
                                .completions = completions,
                                .outstanding = outstanding,
                                .errors = errors,
                                .vain_until_ns = vain_until_ns > since ? vain_until_ns : since};
      tell_steal(&facts, state->window_cpu, state->window_steal_ns, cpu, steal,
                 since - start < STEAL_NOISE_NS);
      emit_gap(thread, state->site, &facts);
    }
    end_ns = since;
  }
  if (end_ns - start >= config.threshold_ns) state->idle_ns += end_ns - start;
}

/* Whether completions of the latest poll are known: by its return, or by reading the CQ. */
static __always_inline bool sees_completions(const struct thread_state *thread,
                                             const struct poll_state *state) {
  return thread->poll_cookie & PG_COOKIE_HAS_RETURN || state->readable == PG_CQ_READABLE;
}

/* `cq`: as it was when the stall began, before the completions of its end were settled; or 0. */
static __always_inline void stall(void *ctx, struct thread_state *thread, struct poll_state *state,
                                  const struct cq_state *cq, u64 cq_address, u64 start, u64 end,
                                  u64 steal, u32 kind, u32 flags, u32 completions, u32 errors) {
  u32 cpu = bpf_get_smp_processor_id();
  struct gap_facts facts = {.start_ns = start,
                            .end_ns = end,
                            .cq = cq_address,
                            .kind = kind,
                            .flags = flags,
                            .start_cpu = state->exit_cpu,
                            .completions = completions,
                            .outstanding = cq && cq->outstanding > 0 ? cq->outstanding : 0,
                            .errors = errors};
  /* A gap that ends at a wait may begin later than at the latest poll. */
  if (sees_completions(thread, state))
    end_window(thread, state, cq ? cq->outstanding : 0, cq ? cq->since_ns : 0, cq_address, start,
               start, flags & EV_GAP_WAITED_EVENT ? PG_NO_CPU : state->exit_cpu,
               state->exit_steal_ns, 0, 0);
  flush_pending(thread, cpu);
  /* Time stolen during a wait beside the gap is not told from such in the gap. */
  if (!(flags & EV_GAP_OPEN))
    tell_steal(&facts, state->exit_cpu, state->exit_steal_ns, cpu, steal,
               !(flags & EV_GAP_WAITED_EVENT));
  emit_user_stack(ctx, thread->tid, cpu, start, end);
  emit_gap(thread, state->site, &facts);
  begin_window(state, end, cpu, steal);
}

static __always_inline void note_exit(struct thread_state *thread, struct poll_state *state,
                                      u64 now, u64 steal) {
  struct pg_thread_clock *clock = clock_of(thread);
  struct pg_cpu *cpu = cpu_state_of(bpf_get_smp_processor_id());
  if (cpu) note_smis(cpu, now);
  state->before_ns = state->exit_ns;
  state->exit_ns = now;
  state->last_ns = now;
  state->exit_cpu = bpf_get_smp_processor_id();
  state->exit_steal_ns = steal;
  thread->last_poll_exit_ns = now;
  thread->last_exit_steal_ns = steal;
  thread->last_exit_cpu = state->exit_cpu;
  if (!clock) return;
  clock->last_poll_ns = now;
  clock->probed++;
}

/*
 * Since when the CQ waits for this poll, its last one having been over at `from_ns`. A thread that
 * polled other CQs since was not silent: for this one that time is idle, until a signaled send of
 * it was outstanding.
 */
static __always_inline u64 waits_since(const struct thread_state *thread, struct poll_state *state,
                                       u64 cq_address, u64 from_ns) {
  const struct cq_state *cq;
  u64 until_ns = thread->last_poll_exit_ns;
  if (until_ns <= from_ns) return from_ns;
  cq = bpf_map_lookup_elem(&cqs, &cq_address);
  if (cq && cq->outstanding > 0 && cq->since_ns < until_ns)
    return cq->since_ns > from_ns ? cq->since_ns : from_ns;
  state->exit_cpu = thread->last_exit_cpu;
  state->exit_steal_ns = thread->last_exit_steal_ns;
  return until_ns;
}

/*
 * One send has completed, or, after an error, all that its QP had outstanding. Not static: the
 * verifier then looks at it once, not at each turn of a loop around it.
 */
__noinline int settle(u64 cq_address, const struct wc_head *wc) {
  struct cq_state *cq = bpf_map_lookup_elem(&cqs, &cq_address);
  struct qp_state *qp;
  u32 qp_num;
  s64 count;
  bool all;
  if (!cq || !wc) return 0;
  qp_num = wc->qp_num;
  all = wc->status != 0;
  qp = bpf_map_lookup_elem(&qps, &qp_num);
  if (!qp || qp->forgotten != cq->forgotten) return 0;
  if (qp->count == QP_FIRST_IN_FLIGHT) {
    if (!all && !wc->wr_id_unknown && wc->wr_id != qp->first_wr_id) return 0;
    __sync_fetch_and_add(&cq->beginning, -1);
    if (!all && wc->wr_id_unknown) { /* this may be the first: let the next post be it */
      __sync_fetch_and_add(&cq->outstanding, -qp->outstanding);
      qp->outstanding = 0;
      qp->count = QP_NOT_COUNTED;
      return 0;
    }
  }
  qp->count = QP_COUNTED;
  if (qp->outstanding <= 0) return 0;
  count = all ? qp->outstanding : 1;
  __sync_fetch_and_add(&qp->outstanding, -count);
  __sync_fetch_and_add(&cq->outstanding, -count);
  return 0;
}

/* Of a completion with an error. */
struct wc_error {
  u64 wr_id;
  u32 status, vendor_err, qp_num, reserved;
};

struct wc_context {
  u64 wc, cq;
  struct wc_error first; /* error that is not a flush, else first flush */
  u32 errors, flushes, looked_at;
};

static __always_inline void account(struct wc_context *context, const struct wc_head *wc) {
  context->looked_at++;
  if (wc->status == 0) {
    if (wc->opcode < IBV_WC_RECV) settle(context->cq, wc);
    return;
  }
  settle(context->cq, wc);
  if (context->errors == 0 ||
      (context->first.status == IBV_WC_WR_FLUSH_ERR && wc->status != IBV_WC_WR_FLUSH_ERR))
    context->first = (struct wc_error){.wr_id = wc->wr_id,
                                       .status = wc->status,
                                       .vendor_err = wc->vendor_err,
                                       .qp_num = wc->qp_num};
  context->errors++;
  if (wc->status == IBV_WC_WR_FLUSH_ERR) context->flushes++;
}

/* 1: nothing can be read there. Not static either. */
__noinline int look_at(u64 index, struct wc_context *context) {
  struct wc_head wc = {};
  if (!context) return 1;
  if (bpf_probe_read_user(&wc, IBV_WC_BYTES_READ, (void *)(context->wc + index * IBV_WC_BYTES)))
    return 1;
  account(context, &wc);
  return 0;
}

static long read_completion(u64 index, struct wc_context *context) {
  return look_at(index, context) != 0;
}

static __always_inline void tell_errors(const struct thread_state *thread, u64 cq, u64 now,
                                        u32 count, const struct wc_context *context) {
  struct ev_wc_error *record;
  if (context->errors == 0) return;
  record = reserve_record(struct ev_wc_error, EV_WC_ERROR, bpf_get_smp_processor_id(), now, now);
  if (!record) return;
  record->tid = thread->tid;
  record->completions = count;
  record->cq = cq;
  record->wr_id = context->first.wr_id;
  record->qp_num = context->first.qp_num;
  record->status = context->first.status;
  record->vendor_err = context->first.vendor_err;
  record->errors = context->errors;
  record->flushes = context->flushes;
  record->looked_at = context->looked_at;
  submit(record);
}

struct cqe_context {
  u64 ring, wc; /* wc: the array that the completions were returned in, 0 not known */
  u32 first, entries, entry_bytes, reserved;
  struct wc_context to;
};

/*
 * Accounts for one completion in the ring; 1 when the adapter has overwritten it. Its wr_id is in
 * the array that the poll filled, if the program has not used that memory again meanwhile.
 */
__noinline int look_at_cqe(u64 number, struct cqe_context *context) {
  struct wc_head wc = {};
  struct cqe_tail tail;
  u32 index, opcode, status, qp_num;
  u64 at;
  if (!context) return 1;
  index = context->first + number;
  at = context->ring + (u64)(index & (context->entries - 1)) * context->entry_bytes +
       context->entry_bytes - sizeof(tail);
  if (bpf_probe_read_user(&tail, sizeof(tail), (void *)at)) return 1;
  opcode = tail.opcode_owner >> 4;
  if (opcode == CQE_INVALID || (tail.opcode_owner & 1) != !!(index & context->entries)) return 1;
  wc.qp_num = bpf_ntohl(tail.qpn) & 0xffffff;
  wc.opcode = opcode == CQE_REQ || opcode == CQE_REQ_ERR ? 0 : IBV_WC_RECV;
  if (opcode == CQE_REQ_ERR || opcode == CQE_RESP_ERR) {
    wc.status = mlx5_wc_status(tail.syndrome);
    wc.vendor_err = tail.vendor_error;
  }
  at = context->wc + number * IBV_WC_BYTES;
  wc.wr_id_unknown = !context->wc || bpf_probe_read_user(&wc.wr_id, sizeof(u64), (void *)at) ||
                     bpf_probe_read_user(&status, sizeof(status), (void *)(at + IBV_WC_STATUS)) ||
                     bpf_probe_read_user(&qp_num, sizeof(qp_num), (void *)(at + IBV_WC_QP_NUM)) ||
                     status != wc.status || qp_num != wc.qp_num;
  if (wc.wr_id_unknown) wc.wr_id = 0;
  account(&context->to, &wc);
  return 0;
}

static long read_cqe(u64 number, struct cqe_context *context) {
  return look_at_cqe(number, context) != 0;
}

/*
 * Accounts for what the latest poll of this thread and CQ has returned, if it has: its window of
 * vain polls ended when that poll began. Threads that poll one CQ count a completion once.
 */
__noinline int take_completions(u32 tid, u64 cq_address) {
  struct thread_state *thread = bpf_map_lookup_elem(&threads, &tid);
  struct poll_key key = {.cq = cq_address, .tid = tid};
  struct poll_state *state = bpf_map_lookup_elem(&polls, &key);
  struct cqe_context context = {};
  const struct pg_cq_layout *layout;
  struct cq_state *cq;
  u64 buffer = 0, outstanding_since;
  s64 outstanding;
  u32 index, first, count;
  if (!thread || !state || state->readable != PG_CQ_READABLE) return 0;
  if (state->exit_ns < judged_from_ns) return 0;
  layout = layout_of(state->site);
  if (!layout || !read_consumer_index(state, cq_address, layout, &index)) return 0;
  if (index == state->consumer_index) return 0;
  cq = cq_state_of(cq_address);
  if (!cq) return 0;
  bpf_probe_read_user(&context.entries, sizeof(u32), (void *)(cq_address + IBV_CQ_CQE));
  context.entries++;
  if (!cq->settles) {
    cq->settled = state->consumer_index;
    cq->settles = 1;
  }
  if (index - state->consumer_index > context.entries) { /* another CQ in the same place */
    state->readable = PG_CQ_NOT_LOOKED_AT;
    cq->settles = 0;
    forget_outstanding(cq);
    return 0;
  }
  outstanding = cq->outstanding;
  outstanding_since = cq->since_ns;
  first = cq->settled;
  count = index - first;
  if (count > context.entries || __sync_val_compare_and_swap(&cq->settled, first, index) != first)
    count = 0; /* another thread has */
  if (count) {
    bpf_probe_read_user(&context.entry_bytes, sizeof(u32),
                        (void *)(cq_address + layout->entry_bytes));
    bpf_probe_read_user(&buffer, sizeof(buffer), (void *)(cq_address + layout->active_buffer));
    bpf_probe_read_user(&context.ring, sizeof(u64), (void *)buffer);
    context.first = first;
    context.wc = first == state->consumer_index ? state->wc : 0;
    context.to.cq = cq_address;
    bpf_loop(count < WCS_LOOKED_AT ? count : WCS_LOOKED_AT, read_cqe, &context, 0);
    if (count > context.to.looked_at) forget_outstanding(cq);
    tell_errors(thread, cq_address, state->exit_ns, count, &context.to);
  }
  state->consumer_index = index;
  end_window(thread, state, outstanding, outstanding_since, cq_address, state->before_ns,
             state->exit_ns, state->exit_cpu, state->exit_steal_ns, count, context.to.errors);
  begin_window(state, state->exit_ns, state->exit_cpu, state->exit_steal_ns);
  state->completions += count;
  state->error_completions += context.to.errors;
  state->new_completions += count;
  state->new_errors += context.to.errors;
  return 0;
}

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, u32);
  __type(value, struct quick_polls);
} quick SEC(".maps");

static __always_inline struct quick_polls *quick_polls_here(void) {
  u32 zero = 0;
  return bpf_map_lookup_elem(&quick, &zero);
}

__noinline int end_quick_polls(void) {
  struct quick_polls *here = quick_polls_here();
  struct thread_state *thread;
  struct poll_state *state;
  struct poll_key key = {};
  if (!here || !here->thread) return 0;
  key.cq = here->cq;
  key.tid = (u32)here->thread;
  here->thread = 0;
  state = bpf_map_lookup_elem(&polls, &key);
  thread = bpf_map_lookup_elem(&threads, &key.tid);
  if (!state || !thread || here->last_ns <= state->exit_ns) return 0;
  state->polls += here->polls;
  state->window_polls += here->polls;
  state->empty_polls += here->polls;
  state->before_ns = here->before_ns;
  state->exit_ns = here->last_ns;
  state->last_ns = here->last_ns;
  state->exit_cpu = bpf_get_smp_processor_id();
  state->exit_steal_ns = here->steal_ns;
  state->wc = here->skipped ? 0 : here->wc;
  thread->last_poll_exit_ns = here->last_ns;
  thread->last_exit_steal_ns = here->steal_ns;
  thread->last_exit_cpu = state->exit_cpu;
  thread->poll_enter_ns = here->last_ns;
  return 0;
}

/*
 * Counts a poll of which there is nothing to say: the same thread and CQ as the one before it on
 * this CPU, less than the threshold ago, and nothing consumed or done by the thread in between.
 *
 * To look at the consumer index is the dearest part of it. So that is done at every other poll;
 * where something has been consumed, it then is of either of two polls, and what the program has in
 * its array of work completions may be of the other: the wr_ids are not known. They are needed only
 * while counting begins for a QP.
 */
static __always_inline bool quick_poll(struct pt_regs *regs, u64 cq, u64 wc, u64 steal) {
  struct quick_polls *here = quick_polls_here();
  struct pg_thread_clock *clock;
  u32 index, slot;
  bool skip;
  u64 now;
  if (!here || !here->thread || here->cq != cq || here->sp != PT_REGS_SP(regs) ||
      here->ip != PT_REGS_IP(regs))
    return false;
  now = bpf_ktime_get_ns();
  if (now - here->last_ns >= config.threshold_ns || here->last_ns < judged_from_ns) return false;
  if (config.smi_counted && now - here->began_ns >= SMI_READ_NS) return false;
  slot = here->slot;
  skip = here->may_skip && !here->skipped && here->wc == wc;
  if (!skip && (bpf_probe_read_user(&index, sizeof(index), (void *)here->index_address) ||
                index != here->consumer_index))
    return false;
  clock = bpf_map_lookup_elem(&thread_clocks, &slot);
  if (!clock) return false;
  /* Preempted since the first check, another thread may have come here in between. */
  if (*(volatile u64 *)&here->last_ns > now) return true;
  clock->last_poll_ns = now;
  clock->probed++;
  here->before_ns = here->last_ns;
  here->last_ns = now;
  here->steal_ns = steal;
  here->wc = wc;
  here->skipped = skip;
  here->polls++;
  return true;
}

static __always_inline void begin_quick_polls(const struct thread_state *thread,
                                              const struct poll_state *state, struct pt_regs *regs,
                                              u64 cq, const struct pg_cq_layout *layout) {
  struct quick_polls *here = quick_polls_here();
  const struct cq_state *queue = bpf_map_lookup_elem(&cqs, &cq);
  if (!here) return;
  here->may_skip = !queue || queue->beginning <= 0;
  here->skipped = 0;
  here->cq = cq;
  here->ip = PT_REGS_IP(regs);
  here->sp = PT_REGS_SP(regs);
  here->index_address = cq + layout->consumer_index;
  here->last_ns = state->exit_ns;
  here->began_ns = state->exit_ns;
  here->before_ns = state->before_ns;
  here->steal_ns = state->exit_steal_ns;
  here->wc = state->wc;
  here->polls = 0;
  here->consumer_index = state->consumer_index;
  here->slot = thread->slot;
  here->thread = bpf_get_current_pid_tgid();
}

static __always_inline void count_latency(struct ev_latency *latency, u64 from_ns, u64 to_ns) {
  u64 ns = to_ns - from_ns;
  latency->count++;
  latency->sum_ns += ns;
  if (ns > latency->longest_ns) latency->longest_ns = ns;
}

/* When the completion event came for which the thread waited, as early as that was seen. */
static __always_inline u64 event_came(const struct thread_state *thread) {
  if (thread->event_irq_ns > thread->event_enter_ns) return thread->event_irq_ns;
  return thread->event_woken_ns ? thread->event_woken_ns : thread->event_return_ns;
}

/* Of its latest polls, after which some were not judged; what has been summed up stays. */
static __always_inline void forget_polls(struct poll_state *state, u64 cq_address) {
  struct cq_state *cq = bpf_map_lookup_elem(&cqs, &cq_address);
  if (cq) count_anew(cq);
  state->exit_ns = 0;
  state->readable = PG_CQ_NOT_LOOKED_AT;
  state->new_completions = state->new_errors = 0;
}

/* The first poll after a wait for a completion event. */
static __always_inline void note_event(const struct thread_state *thread, struct poll_state *state,
                                       u64 now) {
  if (!thread->event_woken_ns || !thread->event_run_ns) return; /* it did not sleep */
  if (thread->event_irq_ns)
    count_latency(&state->interrupt_to_wakeup, thread->event_irq_ns, thread->event_woken_ns);
  count_latency(&state->wakeup_to_run, thread->event_woken_ns, thread->event_run_ns);
  count_latency(&state->run_to_poll, thread->event_run_ns, now);
}

/*
 * A poll begins of which there may be more to say. Not inlined: before 6.13 the stacks of all
 * functions in a chain of calls share 512 bytes.
 */
static __noinline void judge_enter(struct pt_regs *ctx, u64 cq, u64 wc, u64 cookie, u64 steal) {
  u64 now = bpf_ktime_get_ns();
  struct thread_state *thread = now < judged_from_ns ? 0 : polling_thread(now);
  const struct pg_cq_layout *layout = 0;
  struct poll_state *state;
  struct pg_thread_clock *clock;
  u32 cpu = bpf_get_smp_processor_id();
  u32 flags = cookie & PG_COOKIE_HAS_RETURN ? 0 : EV_GAP_NO_RETURN;
  if (PG_COOKIE_ROLE(cookie) == PG_USER_POLL) cq = 0; /* its arguments mean nothing here */
  if (!thread) return;
  if (thread->out_ns) back_unseen(thread);
  if (thread->fault_ns || thread->syscall_ns) entry_ended_unseen(thread);
  state = poll_state_of(thread->tid, cq);
  if (!state) return;
  if (!state->exit_ns || state->exit_ns < judged_from_ns) {
    forget_polls(state, cq);
    if (!state->first_ns) state->first_ns = now;
    begin_window(state, now, cpu, steal);
    state->site = (u32)cookie;
  }
  if (!(cookie & PG_COOKIE_HAS_RETURN)) {
    u32 index = 0;
    layout = layout_of((u32)cookie);
    if (layout && read_consumer_index(state, cq, layout, &index) && state->exit_ns &&
        !state->new_completions)
      state->empty_polls++;
  }
  if (state->exit_ns) {
    u64 from = state->exit_ns;
    /*
     * Waiting for a completion event is idle until that comes, and so is what the thread did for
     * other CQs before it: what lies right before and after may be gaps.
     */
    if (thread->event_enter_ns >= from && thread->event_return_ns > thread->event_enter_ns) {
      u64 idle_until = thread->before_event_ns > from ? thread->before_event_ns : from;
      u64 came = event_came(thread);
      if (thread->last_poll_exit_ns <= thread->event_return_ns) note_event(thread, state, now);
      if (thread->event_enter_ns - idle_until >= config.threshold_ns)
        stall(ctx, thread, state, bpf_map_lookup_elem(&cqs, &cq), cq, idle_until,
              thread->event_enter_ns, steal, EV_GAP_BETWEEN_POLLS, flags | EV_GAP_WAITED_EVENT,
              state->new_completions, state->new_errors);
      state->idle_ns += idle_until - from + came - thread->event_enter_ns;
      from = came;
      begin_window(state, from, steal == state->exit_steal_ns ? cpu : PG_NO_CPU, steal);
      flags |= EV_GAP_WAITED_EVENT;
    }
    from = waits_since(thread, state, cq, from);
    if (now - from >= config.threshold_ns)
      stall(ctx, thread, state, bpf_map_lookup_elem(&cqs, &cq), cq, from, now, steal,
            EV_GAP_BETWEEN_POLLS, flags, state->new_completions, state->new_errors);
    else if (now - from >= config.stack_ns) /* a late completion may take its time */
      flush_pending(thread, cpu);
  }
  state->new_completions = 0;
  state->new_errors = 0;
  state->wc = PG_COOKIE_ROLE(cookie) == PG_POLL_CQ ? wc : 0;
  state->polls++;
  state->window_polls++;
  thread->pending_count = 0;
  thread->poll_enter_ns = now;
  thread->poll_cq = cq;
  thread->last_poll_cq = cq;
  thread->poll_wc = wc;
  thread->poll_cookie = cookie;
  if (!(cookie & PG_COOKIE_HAS_RETURN)) {
    note_exit(thread, state, now, steal);
    if (layout && state->readable == PG_CQ_READABLE)
      begin_quick_polls(thread, state, ctx, cq, layout);
    return;
  }
  state->exit_cpu = cpu;
  state->exit_steal_ns = steal;
  clock = clock_of(thread);
  if (clock) clock->last_poll_ns = now;
}

/* A poll begins. `steal`: the steal clock, or 0 where it cannot be read. */
static __always_inline void poll_enter(struct pt_regs *ctx, u64 cq, u64 wc, u64 steal) {
  u64 cookie;
  if (quick_poll(ctx, cq, wc, steal)) return;
  end_quick_polls();
  cookie = bpf_get_attach_cookie(ctx);
  if (!(cookie & PG_COOKIE_HAS_RETURN)) take_completions((u32)bpf_get_current_pid_tgid(), cq);
  judge_enter(ctx, cq, wc, cookie, steal);
}

/* Reads the completions that a poll returned: errors, and which sends are outstanding no more. */
static __always_inline u32 read_completions(const struct thread_state *thread, struct cq_state *cq,
                                            u64 now, u32 count) {
  struct wc_context context = {.wc = thread->poll_wc, .cq = thread->poll_cq};
  bpf_loop(count < WCS_LOOKED_AT ? count : WCS_LOOKED_AT, read_completion, &context, 0);
  if (count > context.looked_at && cq) forget_outstanding(cq);
  tell_errors(thread, thread->poll_cq, now, count, &context);
  return context.errors;
}

/* A completion of an extended CQ: its status is in the CQ; which QP it is of is not known here. */
static __always_inline u32 read_current(const struct thread_state *thread, struct cq_state *cq,
                                        u64 now) {
  struct ev_wc_error *record;
  u32 status = 0;
  u64 wr_id = 0;
  if (cq && cq->outstanding > 0) __sync_fetch_and_add(&cq->outstanding, -1);
  bpf_probe_read_user(&status, sizeof(status), (void *)(thread->poll_cq + IBV_CQ_EX_STATUS));
  if (status == 0) return 0;
  bpf_probe_read_user(&wr_id, sizeof(wr_id), (void *)(thread->poll_cq + IBV_CQ_EX_WR_ID));
  if (cq) forget_outstanding(cq);
  record = reserve_record(struct ev_wc_error, EV_WC_ERROR, bpf_get_smp_processor_id(), now, now);
  if (!record) return 1;
  record->tid = thread->tid;
  record->completions = 1;
  record->cq = thread->poll_cq;
  record->wr_id = wr_id;
  record->qp_num = 0;
  record->status = status;
  record->vendor_err = 0;
  record->errors = 1;
  record->flushes = status == IBV_WC_WR_FLUSH_ERR;
  record->looked_at = 1;
  submit(record);
  return 1;
}

/* A poll returns. */
static __always_inline void poll_return(void *ctx, s32 result, u64 steal) {
  struct thread_state *thread = current_target_thread();
  struct poll_state *state;
  struct cq_state *cq;
  u64 now, cq_address, entered;
  u32 completions = 0, errors = 0, role;
  if (!thread || !thread->poll_enter_ns || thread->poll_enter_ns < judged_from_ns) return;
  if (thread->out_ns) back_unseen(thread);
  entered = thread->poll_enter_ns;
  cq_address = thread->poll_cq;
  thread->poll_enter_ns = 0;
  role = PG_COOKIE_ROLE(thread->poll_cookie);
  state = poll_state_of(thread->tid, cq_address);
  if (!state) return;
  now = bpf_ktime_get_ns();
  if (role == PG_POLL_CQ) {
    completions = result > 0 ? result : 0;
  } else if (role != PG_USER_POLL) {
    completions = result == 0;
  }
  if (now - entered >= config.threshold_ns || completions) {
    struct cq_state before = {};
    cq = bpf_map_lookup_elem(&cqs, &cq_address);
    if (cq) before = *cq;
    if (completions)
      errors = role == PG_POLL_CQ ? read_completions(thread, cq, now, completions)
                                  : read_current(thread, cq, now);
    if (now - entered >= config.threshold_ns) {
      stall(ctx, thread, state, &before, cq_address, entered, now, steal, EV_GAP_IN_POLL, 0,
            completions, errors);
    } else {
      end_window(thread, state, before.outstanding, before.since_ns, cq_address, state->exit_ns,
                 now, bpf_get_smp_processor_id(), steal, completions, errors);
    }
    if (completions) begin_window(state, now, bpf_get_smp_processor_id(), steal);
    state->completions += completions;
    state->error_completions += errors;
  }
  if (!completions) state->empty_polls++;
  thread->pending_count = 0;
  note_exit(thread, state, now, steal);
}

/*
 * Twins: with the hypervisor's steal clock (arch/x86/kernel/kvm.c, updated when the vCPU runs
 * again) where its symbol is known, and without.
 */
extern struct kvm_steal_time steal_time __ksym __weak;

static __always_inline u64 steal_clock(void) {
  const struct kvm_steal_time *clock = bpf_this_cpu_ptr(&steal_time);
  return clock->steal;
}

SEC("uprobe")
int BPF_KPROBE(on_poll_enter, u64 cq, u64 count, u64 wc) {
  poll_enter(ctx, cq, wc, 0);
  return 0;
}

SEC("uprobe")
int BPF_KPROBE(on_poll_enter_steal, u64 cq, u64 count, u64 wc) {
  poll_enter(ctx, cq, wc, steal_clock());
  return 0;
}

SEC("uretprobe")
int BPF_KRETPROBE(on_poll_return, int result) {
  poll_return(ctx, result, 0);
  return 0;
}

SEC("uretprobe")
int BPF_KRETPROBE(on_poll_return_steal, int result) {
  poll_return(ctx, result, steal_clock());
  return 0;
}

/* A poll begins, of a thread and a CQ that the agent wants to know of: it observes them later. */
SEC("uprobe")
int BPF_KPROBE(on_poll_seen, u64 cq) {
  u64 now = bpf_ktime_get_ns();
  struct thread_state *thread = polling_thread(now);
  struct pg_thread_clock *clock;
  struct poll_state *state;
  if (!thread) return 0;
  state = poll_state_of(thread->tid, cq);
  if (!state) return 0;
  state->site = (u32)bpf_get_attach_cookie(ctx);
  state->seen++;
  clock = clock_of(thread);
  if (clock) {
    clock->probed++;
    if (state->last_ns && (!clock->closest_ns || now - state->last_ns < clock->closest_ns))
      clock->closest_ns = now - state->last_ns;
  }
  state->last_ns = now;
  return 0;
}

struct wr_context {
  u64 wr, first_wr_id; /* of the first signaled */
  u32 sends, signaled;
};

static long read_work_request(u64 index, struct wr_context *context) {
  struct wr_head head;
  if (!context->wr || bpf_probe_read_user(&head, sizeof(head), (void *)context->wr)) return 1;
  context->sends++;
  if (head.send_flags & IBV_SEND_SIGNALED) {
    if (context->signaled == 0) context->first_wr_id = head.wr_id;
    context->signaled++;
  }
  context->wr = head.next;
  return 0;
}

/* Adds (sign 1) or takes back (-1) the send work requests from `wr` on. */
static __always_inline void count_posted(u64 qp, u64 wr, s32 sign) {
  struct wr_context context = {.wr = wr};
  struct qp_state *state;
  struct cq_state *cq;
  u32 qp_num = 0;
  u64 send_cq = 0;
  bpf_loop(WRS_LOOKED_AT, read_work_request, &context, 0);
  bpf_probe_read_user(&send_cq, sizeof(send_cq), (void *)(qp + IBV_QP_SEND_CQ));
  bpf_probe_read_user(&qp_num, sizeof(qp_num), (void *)(qp + IBV_QP_NUM));
  cq = cq_state_of(send_cq);
  if (!cq) return;
  /* What the thread has taken before it posts is outstanding no more. */
  if (sign > 0) take_completions((u32)bpf_get_current_pid_tgid(), send_cq);
  state = bpf_map_lookup_elem(&qps, &qp_num);
  if (!state) {
    bpf_map_update_elem(&qps, &qp_num, &no_qp, BPF_NOEXIST);
    state = bpf_map_lookup_elem(&qps, &qp_num);
    if (!state) return;
  }
  if (state->forgotten != cq->forgotten) {
    state->forgotten = cq->forgotten;
    state->outstanding = 0;
    state->count = QP_NOT_COUNTED;
  }
  __sync_fetch_and_add(&cq->posted_sends, sign * (s64)context.sends);
  __sync_fetch_and_add(&cq->posted_signaled, sign * (s64)context.signaled);
  if (!context.signaled) return;
  if (sign > 0 && state->count == QP_NOT_COUNTED) {
    state->first_wr_id = context.first_wr_id;
    state->count = QP_FIRST_IN_FLIGHT;
    __sync_fetch_and_add(&cq->beginning, 1);
  } else if (sign < 0 && state->count == QP_FIRST_IN_FLIGHT &&
             state->first_wr_id == context.first_wr_id) {
    state->count = QP_NOT_COUNTED;
    __sync_fetch_and_add(&cq->beginning, -1);
  }
  __sync_fetch_and_add(&state->outstanding, sign * (s64)context.signaled);
  if (__sync_fetch_and_add(&cq->outstanding, sign * (s64)context.signaled) <= 0 && sign > 0)
    cq->since_ns = bpf_ktime_get_ns();
}

/* What the agent holds against its budget. */
static __always_inline void count_probed(u32 hits) {
  struct thread_state *thread = current_target_thread();
  struct pg_thread_clock *clock = thread ? clock_of(thread) : 0;
  if (clock) {
    clock->probed += hits;
  } else {
    __sync_fetch_and_add(&others_probed, hits);
  }
}

/* What each thread is posting: a post that fails has posted only those before *bad_wr. */
struct post_call {
  u64 qp, bad_wr;
};

struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 4096);
  __type(key, u32);
  __type(value, struct post_call);
} posts SEC(".maps");

/* Any thread of the target may post. Cookie: PG_COOKIE_HAS_RETURN where the return is probed too.
 */
SEC("uprobe")
int BPF_KPROBE(on_post_enter, u64 qp, u64 wr, u64 bad_wr) {
  u64 id = bpf_get_current_pid_tgid();
  u32 tid = (u32)id;
  if (id >> 32 != config.target_pid) return 0;
  end_quick_polls();
  count_posted(qp, wr, 1);
  count_probed(1);
  if (bpf_get_attach_cookie(ctx) & PG_COOKIE_HAS_RETURN) {
    struct post_call call = {.qp = qp, .bad_wr = bad_wr};
    bpf_map_update_elem(&posts, &tid, &call, BPF_ANY);
  }
  return 0;
}

SEC("uretprobe")
int BPF_KRETPROBE(on_post_return, int result) {
  u32 tid = (u32)bpf_get_current_pid_tgid();
  struct post_call *call;
  u64 bad = 0;
  count_probed(1);
  if (result == 0) return 0;
  call = bpf_map_lookup_elem(&posts, &tid);
  if (!call) return 0;
  if (bpf_probe_read_user(&bad, sizeof(bad), (void *)call->bad_wr) == 0)
    count_posted(call->qp, bad, -1);
  return 0;
}

/* ibv_get_cq_event: an event-driven consumer waits, which is idle time. */
SEC("uprobe")
int BPF_KPROBE(on_event_enter) {
  struct thread_state *thread = current_target_thread();
  if (!thread) return 0;
  end_quick_polls();
  thread->before_event_ns = thread->event_return_ns > thread->last_poll_exit_ns
                                ? thread->event_return_ns
                                : thread->last_poll_exit_ns;
  thread->event_enter_ns = bpf_ktime_get_ns();
  thread->event_return_ns = 0;
  thread->event_irq_ns = thread->event_woken_ns = thread->event_run_ns = 0;
  set_activity(thread, PG_WAITS_EVENT);
  return 0;
}

SEC("uretprobe")
int BPF_KRETPROBE(on_event_return) {
  struct thread_state *thread = current_target_thread();
  if (!thread || !thread->event_enter_ns) return 0;
  thread->event_return_ns = bpf_ktime_get_ns();
  set_activity(thread, PG_USER);
  return 0;
}

/* A target thread ends: a silence that its end cuts short is told as it stands. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_process_exit, struct task_struct *task) {
  struct thread_state *thread = target_thread_of(task);
  struct ev_process *record;
  struct poll_state *state;
  struct poll_key key = {};
  struct pg_cpu *cpu;
  struct pg_thread_clock *clock;
  u32 tid;
  u64 now;
  if (!thread) return 0;
  end_quick_polls();
  now = bpf_ktime_get_ns();
  tid = thread->tid;
  key.tid = tid;
  key.cq = thread->last_poll_cq;
  state = bpf_map_lookup_elem(&polls, &key);
  if (!observing && state && state->exit_ns && state->exit_ns >= judged_from_ns &&
      now - state->exit_ns >= config.threshold_ns && thread->event_enter_ns < state->exit_ns)
    stall(ctx, thread, state, bpf_map_lookup_elem(&cqs, &key.cq), key.cq, state->exit_ns, now, 0,
          EV_GAP_BETWEEN_POLLS, EV_GAP_OPEN, 0, 0);
  record = reserve_record(struct ev_process, EV_PROCESS, bpf_get_smp_processor_id(), now, now);
  if (record) {
    record->tid = tid;
    record->pid = config.target_pid;
    record->what = EV_PROCESS_THREAD_EXIT;
    record->reserved = 0;
    submit(record);
  }
  cpu = cpu_state_of(thread->cpu);
  if (cpu) __sync_fetch_and_add(&cpu->watched, -1);
  clock = clock_of(thread);
  if (clock) clock->exited = 1;
  bpf_map_delete_elem(&threads, &tid);
  return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_process_exec, struct task_struct *task) {
  struct ev_process *record;
  u64 now;
  if ((u32)task->tgid != config.target_pid) return 0;
  now = bpf_ktime_get_ns();
  record = reserve_record(struct ev_process, EV_PROCESS, bpf_get_smp_processor_id(), now, now);
  if (!record) return 0;
  record->tid = task->pid;
  record->pid = task->tgid;
  record->what = EV_PROCESS_EXEC;
  record->reserved = 0;
  submit(record);
  return 0;
}

/*
 * The agent's sampler, run on the CPU of a thread that has been silent for long while in user code
 * (BPF_PROG_TEST_RUN with BPF_F_TEST_RUN_ON_CPU: an IPI). Arguments: when the agent was about to
 * ask (the IPI may have left much later); and 1 at the end of a session, to tell of the stretch
 * that is running. The kernel stack below the interrupt tells user space whether user code was
 * interrupted.
 */
SEC("raw_tp")
int on_silence(struct bpf_raw_tracepoint_args *ctx) {
  u32 cpu = bpf_get_smp_processor_id();
  struct thread_state *thread = current_target_thread();
  struct pg_cpu *state = cpu_state_of(cpu);
  u64 now = bpf_ktime_get_ns();
  u64 asked = ctx->args[0];
  u32 flags = EV_SAMPLE_ASKED_LATER;
  if (!state) return 0;
  state->sampled = 1;
  if (thread) {
    const struct pg_ipi_sender *sent = &state->ipi;
    if (sent->pid == config.agent_pid && sent->at_ns >= asked) {
      asked = sent->at_ns;
      flags = 0;
    }
    emit_sample(ctx, thread, cpu, now, EV_SAMPLE_SILENCE, asked, flags);
  } else if (state->watched && ctx->args[1]) {
    emit_run(state, bpf_get_current_task_btf(), cpu, now);
  }
  return 0;
}

/*
 * Tells of the thread's own kernel work that is still in its list, and asks for the steal clock.
 * Argument: its tid. Run by the agent on its own CPU (BPF_PROG_TEST_RUN) at the end of a silence;
 * the thread goes on, so a stretch that it adds right then may be told twice, or be cut short.
 */
SEC("raw_tp")
int on_tell_pending(struct bpf_raw_tracepoint_args *ctx) {
  u32 tid = ctx->args[0];
  struct thread_state *thread = bpf_map_lookup_elem(&threads, &tid);
  struct pg_cpu *state;
  if (!thread) return 0;
  flush_pending(thread, thread->cpu);
  state = cpu_state_of(thread->cpu);
  if (state) state->steal_wanted = state->smi_wanted = 1;
  return 0;
}

/*
 * Run by the agent's sampler on its own CPU when its sleep ended late. Argument: when its timer was
 * due. Late is not enough, it may have waited for its CPU: told is only that its wakeup, which the
 * timer's interrupt makes, was late.
 */
SEC("raw_tp")
int on_late_timer(struct bpf_raw_tracepoint_args *ctx) {
  u32 tid = (u32)bpf_get_current_pid_tgid();
  u32 key = tid & (WAKER_SLOTS - 1);
  u64 due = ctx->args[0], woken;
  struct waker_slot *slot = bpf_map_lookup_elem(&wakers, &key);
  struct ev_standstill *record;
  if (!slot || *(volatile u32 *)&slot->tid != tid) return 0;
  woken = slot->waker.at_ns;
  if (woken < due + PG_STANDSTILL_NS) return 0;
  record = reserve_record(struct ev_standstill, EV_STANDSTILL, slot->waker.cpu, due, woken);
  if (record) submit(record);
  return 0;
}

#endif /* POLLGAP_POLL_BPF_H */
