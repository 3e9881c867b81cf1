// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/qp_transitions.h"

#include <span>

namespace pollgap::soft_hca {
namespace {

struct Transition {
  ibv_qp_state from;
  ibv_qp_state to;
  uint32_t required;
  uint32_t optional;
};

constexpr Transition kReliable[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
         IBV_QP_PATH_MIG_STATE},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0,
     IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE |
         IBV_QP_MIN_RNR_TIMER},
};

constexpr Transition kDatagram[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY},
    {IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
};

std::span<const Transition> transitions_of(ibv_qp_type type) {
  if (type == IBV_QPT_UD) return kDatagram;
  return kReliable;
}

}  // namespace

bool transition_allowed(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, uint32_t mask) {
  const uint32_t attributes = mask & ~uint32_t{IBV_QP_STATE};
  if (to == IBV_QPS_RESET) return attributes == 0;
  if (to == IBV_QPS_ERR) return from != IBV_QPS_RESET && attributes == 0;
  for (const Transition& transition : transitions_of(type)) {
    if (transition.from != from || transition.to != to) continue;
    return (attributes & transition.required) == transition.required &&
           (attributes & ~(transition.required | transition.optional)) == 0;
  }
  return false;
}

}  // namespace pollgap::soft_hca
