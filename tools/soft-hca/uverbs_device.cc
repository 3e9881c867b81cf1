// SPDX-License-Identifier: Apache-2.0
// Commands about the device itself. Layouts: rdma/ib_user_verbs.h, rdma/mlx5-abi.h.
#include <endian.h>
#include <infiniband/verbs.h>
#include <rdma/mlx5-abi.h>

#include <algorithm>
#include <cerrno>

#include "tools/soft-hca/adapter_identity.h"
#include "tools/soft-hca/uverbs.h"

namespace pollgap::soft_hca {
namespace {

constexpr uint32_t kMaxBlueFlameRegisters = 512;  // MLX5_MAX_BFREGS of libmlx5's mlx5-abi.h

ib_uverbs_query_device_resp device_limits() {
  ib_uverbs_query_device_resp limits{};
  limits.fw_ver = kFirmwareVersion;
  limits.node_guid = htobe64(kNodeGuid);
  limits.sys_image_guid = htobe64(kNodeGuid);
  limits.max_mr_size = ~uint64_t{0};
  limits.page_size_cap = 0xfffffffffffff000;
  limits.vendor_id = kVendorId;
  limits.vendor_part_id = kVendorPartId;
  limits.max_qp = kMaxQueuePairs;
  limits.max_qp_wr = kMaxWorkRequests;
  limits.device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_PORT_ACTIVE_EVENT |
                            IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN;
  limits.max_sge = kMaxSge;
  limits.max_sge_rd = kMaxSge;
  limits.max_cq = kMaxCompletionQueues;
  limits.max_cqe = kMaxCqe;
  limits.max_mr = kMaxMemoryRegions;
  limits.max_pd = kMaxProtectionDomains;
  limits.max_qp_rd_atom = kMaxReads;
  limits.max_res_rd_atom = kMaxReads * kMaxQueuePairs;
  limits.max_qp_init_rd_atom = kMaxReads;
  limits.atomic_cap = IBV_ATOMIC_HCA;
  limits.max_srq = kMaxSharedReceiveQueues;
  limits.max_srq_wr = kMaxSharedReceives;
  limits.max_srq_sge = kMaxReceiveWqeBytes / 16 - 1;
  limits.max_pkeys = 1;
  limits.local_ca_ack_delay = 16;
  limits.phys_port_cnt = 1;
  return limits;
}

}  // namespace

// tot_bfregs != 0 has libmlx5 map the doorbell pages by their index, with mmap, instead of
// allocating each with a command (mlx5_set_context).
int Uverbs::get_context(Context& context, const WriteRequest& request) {
  const auto driver = read_input<mlx5_ib_alloc_ucontext_req_v2>(request.driver_in);
  if (request.driver_in.size() < sizeof(mlx5_ib_alloc_ucontext_req)) return EINVAL;
  if (driver.total_num_bfregs == 0 || driver.total_num_bfregs > kMaxBlueFlameRegisters) {
    return driver.total_num_bfregs == 0 ? EINVAL : ENOMEM;
  }
  if (driver.comp_mask != 0 || driver.reserved0 != 0 || driver.reserved1 != 0 ||
      driver.reserved2 != 0) {
    return EOPNOTSUPP;
  }
  const std::lock_guard lock(mutex_);
  if (context.active) return EINVAL;
  context.async = EventPipe::create();
  if (context.async == nullptr) return errno;
  context.active = true;
  context.cqe_version_1 = offers_cqe_version_1_ && driver.max_cqe_version >= 1;

  ib_uverbs_get_context_resp answer{};
  answer.async_fd = static_cast<uint32_t>(context.async->reader_fd());
  answer.num_comp_vectors = kCompletionVectors;
  write_output(request.out, answer);

  mlx5_ib_alloc_ucontext_resp device{};
  device.qp_tab_size = kMaxQueuePairs;
  device.bf_reg_size = 512;
  device.tot_bfregs = (driver.total_num_bfregs + 1) / 2 * 2;
  device.cache_line_size = 64;
  device.max_sq_desc_sz = kMaxSendWqeBytes;
  device.max_rq_desc_sz = kMaxReceiveWqeBytes;
  device.max_send_wqebb = kMaxWorkRequests;
  device.max_recv_wr = kMaxWorkRequests;
  device.max_srq_recv_wr = kMaxSharedReceives;
  device.num_ports = 1;
  device.response_length =
      static_cast<uint32_t>(std::min(sizeof(device), request.driver_out.size()));
  device.cqe_version = context.cqe_version_1 ? 1 : 0;
  device.cmds_supp_uhw = MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE;
  device.eth_min_inline = MLX5_USER_INLINE_MODE_NONE;
  device.log_uar_size = 12;
  device.num_uars_per_page = 1;
  write_output(request.driver_out, device);
  return 0;
}

int Uverbs::query_device(Context&, const WriteRequest& request) {
  write_output(request.out, device_limits());
  return 0;
}

int Uverbs::query_device_extended(Context&, const WriteRequest& request) {
  const auto core = read_input<ib_uverbs_ex_query_device>(request.in);
  if (core.comp_mask != 0 || core.reserved != 0) return EINVAL;
  ib_uverbs_ex_query_device_resp answer{};
  answer.base = device_limits();
  answer.response_length = static_cast<uint32_t>(std::min(sizeof(answer), request.out.size()));
  answer.timestamp_mask = ~uint64_t{0};
  answer.hca_core_clock = 1'000'000;  // kHz: CQE timestamps are in nanoseconds
  write_output(request.out, answer);

  mlx5_ib_query_device_resp device{};
  device.response_length =
      static_cast<uint32_t>(std::min(sizeof(device), request.driver_out.size()));
  write_output(request.driver_out, device);
  return 0;
}

int Uverbs::query_port(Context&, const WriteRequest& request) {
  const auto core = read_input<ib_uverbs_query_port>(request.in);
  if (core.port_num != 1) return EINVAL;
  ib_uverbs_query_port_resp port{};
  port.state = IBV_PORT_ACTIVE;
  port.max_mtu = kActiveMtu;
  port.active_mtu = kActiveMtu;
  port.lid = kLid;
  port.sm_lid = kLid;
  port.gid_tbl_len = 1;
  port.pkey_tbl_len = 1;
  port.max_msg_sz = kMaxMessageBytes;
  port.max_vl_num = 4;
  port.active_width = 2;   // 4x
  port.active_speed = 64;  // HDR
  port.phys_state = 5;     // LinkUp
  port.link_layer = IBV_LINK_LAYER_INFINIBAND;
  write_output(request.out, port);
  return 0;
}

}  // namespace pollgap::soft_hca
