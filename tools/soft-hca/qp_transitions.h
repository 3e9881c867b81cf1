// SPDX-License-Identifier: Apache-2.0
// Which changes of a queue pair are allowed.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace pollgap::soft_hca {

// Whether a queue pair of `type` (RC or UD) may go from one state to the other with exactly the
// attributes of `mask` (IBV_QP_*): the rules of InfiniBand specification volume 1, 10.3.1 (QP state
// diagram) and 11.2.5.2 (Modify Queue Pair), as in ib_modify_qp_is_ok() of the kernel's
// drivers/infiniband/core/verbs.c. The SQD and SQE states are not provided.
bool transition_allowed(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, uint32_t mask);

}  // namespace pollgap::soft_hca
