/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the syndrome of an mlx5 error completion means: enum mlx5_cqe_syndrome of
 * <infiniband/mlx5dv.h>. Shared by the BPF programs and probes/.
 */
#ifndef POLLGAP_MLX5_SYNDROME_H
#define POLLGAP_MLX5_SYNDROME_H

#ifndef __bpf__
#include <linux/types.h>
#endif

/* enum ibv_wc_status of a syndrome (providers/mlx5/cq.c has the same table). */
static inline __attribute__((always_inline)) __u32 mlx5_wc_status(__u8 syndrome) {
  switch (syndrome) {
    case 0x01:
      return 1; /* LOC_LEN_ERR */
    case 0x02:
      return 2; /* LOC_QP_OP_ERR */
    case 0x04:
      return 4; /* LOC_PROT_ERR */
    case 0x05:
      return 5; /* WR_FLUSH_ERR */
    case 0x06:
      return 6; /* MW_BIND_ERR */
    case 0x10:
      return 7; /* BAD_RESP_ERR */
    case 0x11:
      return 8; /* LOC_ACCESS_ERR */
    case 0x12:
      return 9; /* REM_INV_REQ_ERR */
    case 0x13:
      return 10; /* REM_ACCESS_ERR */
    case 0x14:
      return 11; /* REM_OP_ERR */
    case 0x15:
      return 12; /* RETRY_EXC_ERR */
    case 0x16:
      return 13; /* RNR_RETRY_EXC_ERR */
    case 0x22:
      return 16; /* REM_ABORT_ERR */
    default:
      return 21; /* GENERAL_ERR */
  }
}

#endif /* POLLGAP_MLX5_SYNDROME_H */
