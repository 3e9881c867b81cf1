/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Completions without the returns of polls: what has been consumed of a CQ is read from the
 * provider's own object at the next poll's entry, or when the thread posts, and the completions
 * from the ring, where they lie until the adapter has gone around it.
 *
 * mlx5: struct mlx5_cqe64 of <infiniband/mlx5dv.h>.
 */
#ifndef POLLGAP_CQ_BPF_H
#define POLLGAP_CQ_BPF_H

#include <bpf/bpf_endian.h>

#include "mlx5_syndrome.h"
#include "state.h"

#define IBV_CQ_CQE 28
#define IBV_QP_SEND_CQ 24

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, PG_MAX_POLL_SITES);
  __type(key, u32);
  __type(value, struct pg_cq_layout);
} cq_layouts SEC(".maps");

/* The layout of the CQs that a site polls; NULL where the site's returns are probed. */
static __always_inline const struct pg_cq_layout *layout_of(u32 site) {
  const struct pg_cq_layout *layout = bpf_map_lookup_elem(&cq_layouts, &site);
  return layout && layout->known ? layout : 0;
}

/*
 * Whether the CQ has what the layout says: a doorbell record that is behind the consumer index by
 * less than the CQ has entries, and entries of a size that there is. User space has checked the CQs
 * there were at attach in the same way.
 */
static __always_inline bool cq_has_layout(u64 cq, const struct pg_cq_layout *layout, u32 index) {
  u64 record = 0;
  u32 entry_bytes = 0, told = 0, cqe = 0;
  bpf_probe_read_user(&record, sizeof(record), (void *)(cq + layout->doorbell_record));
  bpf_probe_read_user(&entry_bytes, sizeof(entry_bytes), (void *)(cq + layout->entry_bytes));
  bpf_probe_read_user(&cqe, sizeof(cqe), (void *)(cq + IBV_CQ_CQE));
  if (entry_bytes != 64 && entry_bytes != 128) return false;
  if (bpf_probe_read_user(&told, sizeof(told), (void *)record)) return false;
  return ((index - bpf_ntohl(told)) & 0xffffff) <= cqe;
}

/* The CQ's consumer index; false where it cannot be had. */
static __always_inline bool read_consumer_index(struct poll_state *state, u64 cq,
                                                const struct pg_cq_layout *layout, u32 *index) {
  if (state->readable == PG_CQ_UNREADABLE) return false;
  if (bpf_probe_read_user(index, sizeof(*index), (void *)(cq + layout->consumer_index)))
    return false;
  if (state->readable == PG_CQ_NOT_LOOKED_AT) {
    state->readable = cq_has_layout(cq, layout, *index) ? PG_CQ_READABLE : PG_CQ_UNREADABLE;
    state->consumer_index = *index;
  }
  return state->readable == PG_CQ_READABLE;
}

/* The last 16 bytes of a completion in the ring. */
struct cqe_tail {
  u8 timestamp[6]; /* of an error: the last two of these are vendor_err_synd and syndrome */
  u8 vendor_error, syndrome;
  __be32 qpn; /* low 24 bits */
  __be16 wqe_counter;
  u8 signature, opcode_owner;
};

enum cqe_opcode { CQE_REQ = 0, CQE_REQ_ERR = 13, CQE_RESP_ERR = 14, CQE_INVALID = 15 };

/* In poll.bpf.h. */
__noinline int take_completions(u32 tid, u64 cq_address);

/*
 * What the thread has taken from the CQ that a verb is called with, or from those of the QP: what
 * follows may remove completions from there, and no poll may come after it.
 */
static __always_inline void take_completions_of(u32 tid, u64 object) {
  u64 queues[2] = {}; /* ibv_qp.send_cq, recv_cq */
  take_completions(tid, object);
  if (bpf_probe_read_user(queues, sizeof(queues), (void *)(object + IBV_QP_SEND_CQ))) return;
  take_completions(tid, queues[0]);
  if (queues[1] != queues[0]) take_completions(tid, queues[1]);
}

#endif /* POLLGAP_CQ_BPF_H */
