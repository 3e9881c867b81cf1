// SPDX-License-Identifier: Apache-2.0
#include "probes/control_verbs.h"

#include <array>

namespace pollgap {
namespace {

constexpr auto verbs = std::to_array<std::string_view>({
    "ibv_open_device",
    "ibv_close_device",
    "ibv_import_device",
    "ibv_get_device_list",
    "ibv_query_device",
    "ibv_query_port",
    "ibv_query_gid",
    "_ibv_query_gid_ex",
    "_ibv_query_gid_table",
    "ibv_query_pkey",
    "ibv_alloc_pd",
    "ibv_dealloc_pd",
    "ibv_import_pd",
    "ibv_reg_mr",
    "ibv_reg_mr_iova",
    "ibv_reg_mr_iova2",
    "ibv_reg_dmabuf_mr",
    "ibv_reg_mr_ex",
    "ibv_rereg_mr",
    "ibv_dereg_mr",
    "ibv_import_mr",
    "ibv_import_dm",
    "ibv_create_comp_channel",
    "ibv_destroy_comp_channel",
    "ibv_create_cq",
    "ibv_resize_cq",
    "ibv_destroy_cq",
    "ibv_ack_cq_events",
    "ibv_create_srq",
    "ibv_modify_srq",
    "ibv_query_srq",
    "ibv_destroy_srq",
    "ibv_create_qp",
    "ibv_modify_qp",
    "ibv_query_qp",
    "ibv_destroy_qp",
    "ibv_query_ece",
    "ibv_set_ece",
    "ibv_create_ah",
    "ibv_create_ah_from_wc",
    "ibv_init_ah_from_wc",
    "ibv_resolve_eth_l2_from_gid",
    "ibv_destroy_ah",
    "ibv_attach_mcast",
    "ibv_detach_mcast",
    "ibv_get_async_event",
    "ibv_ack_async_event",
    "ibv_fork_init",
    "rdma_create_event_channel",
    "rdma_destroy_event_channel",
    "rdma_create_id",
    "rdma_destroy_id",
    "rdma_create_ep",
    "rdma_destroy_ep",
    "rdma_bind_addr",
    "rdma_resolve_addr",
    "rdma_resolve_route",
    "rdma_create_qp",
    "rdma_create_qp_ex",
    "rdma_destroy_qp",
    "rdma_create_srq",
    "rdma_create_srq_ex",
    "rdma_destroy_srq",
    "rdma_connect",
    "rdma_establish",
    "rdma_listen",
    "rdma_get_request",
    "rdma_accept",
    "rdma_reject",
    "rdma_reject_ece",
    "rdma_notify",
    "rdma_disconnect",
    "rdma_join_multicast",
    "rdma_join_multicast_ex",
    "rdma_leave_multicast",
    "rdma_get_cm_event",
    "rdma_ack_cm_event",
    "rdma_migrate_id",
    "rdma_set_option",
    "rdma_init_qp_attr",
    "rdma_get_devices",
    "rdma_getaddrinfo",
});

constexpr auto hooks = std::to_array<std::string_view>({
    "verbs_init_cq",
    "ibv_create_cq",
});

}  // namespace

std::span<const std::string_view> control_verbs() { return verbs; }
std::span<const std::string_view> open_hooks() { return hooks; }

}  // namespace pollgap
