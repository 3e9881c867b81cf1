// SPDX-License-Identifier: Apache-2.0
#include "tools/workload/verbs_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace pollgap::workload {
namespace {

constexpr uint8_t port_number = 1;

struct DeviceList {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  DeviceList() = default;
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;
  ~DeviceList() {
    if (devices != nullptr) ibv_free_device_list(devices);
  }
};

std::string names_of(const DeviceList& list) {
  std::string names;
  for (int i = 0; i < list.count; ++i) {
    names += (i == 0 ? "" : ", ") + std::string(ibv_get_device_name(list.devices[i]));
  }
  return names.empty() ? "none" : names;
}

bool is_ipv4_mapped(const ibv_gid& gid) {
  static constexpr uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, prefix, sizeof prefix) == 0;
}

}  // namespace

Error verbs_error(const std::string& what, int error) {
  return {ExitCode::other, fmt::format("{}: {}", what, std::strerror(error != 0 ? error : errno))};
}

Result<std::unique_ptr<VerbsDevice>> VerbsDevice::open(const std::string& name, int gid_index) {
  const DeviceList list;
  ibv_device* found = nullptr;
  for (int i = 0; i < list.count; ++i) {
    if (name == ibv_get_device_name(list.devices[i])) found = list.devices[i];
  }
  if (found == nullptr) {
    return Error{ExitCode::other,
                 fmt::format("no RDMA device {} (there is: {}); --device soft needs none", name,
                             names_of(list))};
  }
  auto device = std::make_unique<VerbsDevice>();
  device->name_ = name;
  device->context_.reset(ibv_open_device(found));
  if (!device->context_) return verbs_error("ibv_open_device " + name);
  device->pd_.reset(ibv_alloc_pd(device->context()));
  if (!device->pd_) return verbs_error("ibv_alloc_pd on " + name);
  if (Status error = device->choose_address(gid_index)) return *error;
  return device;
}

Status VerbsDevice::choose_address(int gid_index) {
  if (const int error = ibv_query_port(context(), port_number, &port_); error != 0) {
    return verbs_error("ibv_query_port on " + name_, error);
  }
  if (port_.state != IBV_PORT_ACTIVE) {
    return Error{ExitCode::other, fmt::format("port 1 of {} is not active", name_)};
  }
  global_ = port_.link_layer == IBV_LINK_LAYER_ETHERNET;
  if (!global_) return std::nullopt;
  gid_index_ = std::max(gid_index, 0);
  // An IPv4-mapped GID is routable and works over loopback; the first, link-local one may not.
  for (int i = 0; gid_index < 0 && i < port_.gid_tbl_len; ++i) {
    ibv_gid gid{};
    if (ibv_query_gid(context(), port_number, i, &gid) == 0 && is_ipv4_mapped(gid)) gid_index_ = i;
  }
  if (ibv_query_gid(context(), port_number, gid_index_, &gid_) != 0) {
    return verbs_error(fmt::format("GID {} of {}", gid_index_, name_));
  }
  return std::nullopt;
}

Status VerbsDevice::initialize(ibv_qp* qp) const {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = port_number;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  const int error = ibv_modify_qp(
      qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error != 0) return verbs_error("ibv_modify_qp to INIT", error);
  return std::nullopt;
}

Status VerbsDevice::connect(ibv_qp* qp, uint32_t peer_qp_num) const {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = port_.active_mtu;
  attributes.dest_qp_num = peer_qp_num;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = 12;  // 0.64 ms
  attributes.ah_attr.port_num = port_number;
  attributes.ah_attr.dlid = port_.lid;
  if (global_) {
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.grh.dgid = gid_;
    attributes.ah_attr.grh.sgid_index = static_cast<uint8_t>(gid_index_);
    attributes.ah_attr.grh.hop_limit = 1;
  }
  int error = ibv_modify_qp(qp, &attributes,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error != 0) return verbs_error("ibv_modify_qp to RTR", error);
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = 14;  // 67 ms
  attributes.retry_cnt = 7;
  attributes.rnr_retry = 7;
  attributes.max_rd_atomic = 1;
  error = ibv_modify_qp(qp, &attributes,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  if (error != 0) return verbs_error("ibv_modify_qp to RTS", error);
  return std::nullopt;
}

Result<std::unique_ptr<Endpoint>> Endpoint::create(const VerbsDevice& device,
                                                   const Options& options, int cq_depth) {
  auto endpoint = std::make_unique<Endpoint>();
  if (Status error = endpoint->create_cq(device, options.style, cq_depth)) return *error;
  if (Status error = endpoint->register_memory(device, options)) return *error;
  for (Verbs<ibv_qp>* qp : {&endpoint->sender_, &endpoint->receiver_}) {
    Result<Verbs<ibv_qp>> created = endpoint->create_qp(device, options);
    if (!created) return created.error();
    *qp = std::move(*created);
    if (Status error = device.initialize(qp->get())) return *error;
  }
  ibv_qp* const sender = endpoint->sender_.get();
  ibv_qp* const receiver = endpoint->receiver_.get();
  if (Status error = device.connect(sender, receiver->qp_num)) return *error;
  if (Status error = device.connect(receiver, sender->qp_num)) return *error;
  if (options.operation == Operation::send) {
    // Twice: a receive is posted again only when its completion, not the send's, was polled.
    for (uint32_t i = 0; i < 2 * options.depth; ++i) {
      if (const int error = endpoint->post_receive(); error != 0) {
        return verbs_error("ibv_post_recv", error);
      }
    }
  }
  return endpoint;
}

Status Endpoint::create_cq(const VerbsDevice& device, PollStyle style, int cq_depth) {
  if (style == PollStyle::event) {
    channel_.reset(ibv_create_comp_channel(device.context()));
    if (!channel_) return verbs_error("ibv_create_comp_channel");
  }
  if (style != PollStyle::extended) {
    cq_.reset(ibv_create_cq(device.context(), cq_depth, nullptr, channel_.get(), 0));
    if (!cq_) return verbs_error(fmt::format("ibv_create_cq of {} entries", cq_depth));
    return std::nullopt;
  }
  ibv_cq_init_attr_ex attributes{};
  attributes.cqe = static_cast<uint32_t>(cq_depth);
  attributes.wc_flags = IBV_WC_EX_WITH_QP_NUM;
  cq_ex_ = ibv_create_cq_ex(device.context(), &attributes);
  if (cq_ex_ == nullptr) {
    return verbs_error(fmt::format("ibv_create_cq_ex of {} entries", cq_depth));
  }
  cq_.reset(ibv_cq_ex_to_cq(cq_ex_));
  return std::nullopt;
}

Status Endpoint::register_memory(const VerbsDevice& device, const Options& options) {
  memory_.resize(2 * size_t{options.size_bytes});
  mr_.reset(ibv_reg_mr(device.pd(), memory_.data(), memory_.size(),
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
  if (!mr_) return verbs_error("ibv_reg_mr of the message buffers");
  const auto address = reinterpret_cast<uintptr_t>(memory_.data());
  send_sge_ = {address, options.size_bytes, mr_->lkey};
  receive_sge_ = {address + options.size_bytes, options.size_bytes, mr_->lkey};
  send_wr_.sg_list = &send_sge_;
  send_wr_.num_sge = 1;
  send_wr_.opcode = options.operation == Operation::send    ? IBV_WR_SEND
                    : options.operation == Operation::write ? IBV_WR_RDMA_WRITE
                                                            : IBV_WR_RDMA_READ;
  send_wr_.wr.rdma.remote_addr = receive_sge_.addr;
  send_wr_.wr.rdma.rkey = mr_->rkey;
  receive_wr_.wr_id = make_wr_id(Request::receive, 0);
  receive_wr_.sg_list = &receive_sge_;
  receive_wr_.num_sge = 1;
  return std::nullopt;
}

Result<Verbs<ibv_qp>> Endpoint::create_qp(const VerbsDevice& device, const Options& options) {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = cq();
  attributes.recv_cq = cq();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = options.depth;
  attributes.cap.max_recv_wr = 2 * options.depth;
  attributes.cap.max_send_sge = 1;
  attributes.cap.max_recv_sge = 1;
  Verbs<ibv_qp> qp(ibv_create_qp(device.pd(), &attributes));
  if (!qp) return verbs_error("ibv_create_qp");
  return qp;
}

int Endpoint::post(uint64_t number, bool signaled) {
  send_wr_.wr_id = make_wr_id(Request::send, number);
  send_wr_.send_flags = signaled ? IBV_SEND_SIGNALED : 0;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(sender_.get(), &send_wr_, &bad);
}

int Endpoint::post_receive() {
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(receiver_.get(), &receive_wr_, &bad);
}

}  // namespace pollgap::workload
