// SPDX-License-Identifier: Apache-2.0
// What the tests of the soft adapter share: verbs objects that destroy themselves, and a connection
// to try things on.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "tools/soft-hca/soft_hca.h"

namespace pollgap {

inline constexpr uint64_t kMillisecond = 1'000'000;
inline constexpr uint64_t kSecond = 1000 * kMillisecond;
inline constexpr int kAllRemote =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

inline uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * kSecond + static_cast<uint64_t>(now.tv_nsec);
}

template <auto Destroy>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    EXPECT_EQ(Destroy(object), 0) << std::strerror(errno);
  }
};
using Context = std::unique_ptr<ibv_context, Deleter<ibv_close_device>>;
using ProtectionDomain = std::unique_ptr<ibv_pd, Deleter<ibv_dealloc_pd>>;
using Region = std::unique_ptr<ibv_mr, Deleter<ibv_dereg_mr>>;
using Channel = std::unique_ptr<ibv_comp_channel, Deleter<ibv_destroy_comp_channel>>;
using Queue = std::unique_ptr<ibv_cq, Deleter<ibv_destroy_cq>>;
using Pair = std::unique_ptr<ibv_qp, Deleter<ibv_destroy_qp>>;

inline Context open_device() {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  EXPECT_EQ(count, 1);
  Context context(count == 1 ? ibv_open_device(devices[0]) : nullptr);
  if (devices != nullptr) ibv_free_device_list(devices);
  return context;
}

// ibv_reg_mr is a macro that treats a constant `access` in its own way.
inline Region register_memory(ibv_pd* pd, void* address, size_t size, int access) {
  return Region(ibv_reg_mr(pd, address, size, access));
}

struct Buffer {
  Buffer(ibv_pd* pd, size_t size, int access = kAllRemote)
      : bytes(size), region(register_memory(pd, bytes.data(), size, access)) {}
  ibv_sge sge(size_t offset, uint32_t length) const {
    return {reinterpret_cast<uint64_t>(bytes.data()) + offset, length, region->lkey};
  }
  std::vector<uint8_t> bytes;
  Region region;
};

struct PairOptions {
  uint32_t sends = 64;
  uint32_t receives = 64;
  uint32_t inline_bytes = 64;
  uint8_t timeout = 14;
  uint8_t retry_count = 7;
  uint8_t rnr_retry = 7;
  uint32_t psn = 0x123456;
  unsigned access = kAllRemote;
};

inline Pair make_pair_end(ibv_pd* pd, ibv_cq* send_cq, ibv_cq* receive_cq,
                          const PairOptions& options) {
  ibv_qp_init_attr attributes{};
  attributes.qp_type = IBV_QPT_RC;
  attributes.send_cq = send_cq;
  attributes.recv_cq = receive_cq;
  attributes.cap = {options.sends, options.receives, 4, 4, options.inline_bytes};
  return Pair(ibv_create_qp(pd, &attributes));
}

inline int to_init(ibv_qp* qp, const PairOptions& options) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qp_access_flags = options.access;
  return ibv_modify_qp(qp, &attributes,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

inline int to_ready_to_receive(ibv_qp* qp, uint32_t peer, const PairOptions& options = {}) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = IBV_MTU_1024;
  attributes.dest_qp_num = peer;
  attributes.rq_psn = options.psn;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = 12;  // 0.64 ms
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.dlid = 1;
  return ibv_modify_qp(qp, &attributes,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

inline int to_ready_to_send(ibv_qp* qp, const PairOptions& options) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = options.timeout;
  attributes.retry_cnt = options.retry_count;
  attributes.rnr_retry = options.rnr_retry;
  attributes.sq_psn = options.psn;
  attributes.max_rd_atomic = 1;
  return ibv_modify_qp(qp, &attributes,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

inline int move_to(ibv_qp* qp, ibv_qp_state state) {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  return ibv_modify_qp(qp, &attributes, IBV_QP_STATE);
}

inline ibv_qp_state state_of(ibv_qp* qp) {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr creation{};
  EXPECT_EQ(ibv_query_qp(qp, &attributes, IBV_QP_STATE, &creation), 0);
  return attributes.qp_state;
}

inline void connect(ibv_qp* one, ibv_qp* other, const PairOptions& options = {}) {
  ASSERT_EQ(to_init(one, options), 0);
  ASSERT_EQ(to_init(other, options), 0);
  ASSERT_EQ(to_ready_to_receive(one, other->qp_num, options), 0);
  ASSERT_EQ(to_ready_to_receive(other, one->qp_num, options), 0);
  ASSERT_EQ(to_ready_to_send(one, options), 0);
  ASSERT_EQ(to_ready_to_send(other, options), 0);
}

inline int post_receive(ibv_qp* qp, uint64_t id, ibv_sge sge) {
  ibv_recv_wr request{};
  ibv_recv_wr* bad = nullptr;
  request.wr_id = id;
  request.sg_list = &sge;
  request.num_sge = sge.length == 0 ? 0 : 1;
  return ibv_post_recv(qp, &request, &bad);
}

struct Send {
  ibv_wr_opcode opcode = IBV_WR_SEND;
  uint64_t id = 0;
  ibv_sge sge{};
  unsigned flags = IBV_SEND_SIGNALED;
  uint32_t immediate = 0;
  uint64_t remote = 0;
  uint32_t key = 0;
};

inline int post_send(ibv_qp* qp, Send send) {
  ibv_send_wr request{};
  ibv_send_wr* bad = nullptr;
  request.wr_id = send.id;
  request.sg_list = &send.sge;
  request.num_sge = send.sge.length == 0 ? 0 : 1;
  request.opcode = send.opcode;
  request.send_flags = send.flags;
  request.imm_data = send.immediate;
  request.wr.rdma.remote_addr = send.remote;
  request.wr.rdma.rkey = send.key;
  return ibv_post_send(qp, &request, &bad);
}

// Polls until `count` completions are there; gives up after ten seconds.
inline std::vector<ibv_wc> wait_for(ibv_cq* cq, size_t count, int batch = 16) {
  std::vector<ibv_wc> completions;
  std::vector<ibv_wc> polled(static_cast<size_t>(batch));
  const uint64_t end = now_ns() + 10 * kSecond;
  while (completions.size() < count && now_ns() < end) {
    const int got = ibv_poll_cq(cq, batch, polled.data());
    EXPECT_GE(got, 0);
    if (got < 0) break;
    completions.insert(completions.end(), polled.begin(), polled.begin() + got);
  }
  EXPECT_EQ(completions.size(), count);
  completions.resize(count);
  return completions;
}

// Returns once the adapter has looked at all queues at least once: it serves requests between two
// rounds, and the second of these cannot be served in the same gap as the first.
inline void let_the_adapter_look() {
  soft_hca::hold_completions(0);
  soft_hca::hold_completions(0);
}

inline void expect_silence(ibv_cq* cq, uint64_t duration_ns) {
  ibv_wc completion{};
  for (const uint64_t end = now_ns() + duration_ns; now_ns() < end;) {
    ASSERT_EQ(ibv_poll_cq(cq, 1, &completion), 0);
  }
}

// The adapter's log of what faults do; in memory.
inline const std::string& soft_hca_log() {
  static const std::string path =
      "/proc/self/fd/" + std::to_string(memfd_create("soft-hca-log", MFD_CLOEXEC));
  return path;
}

class SoftHca : public testing::Test {
 protected:
  void SetUp() override {
    context = open_device();
    ASSERT_NE(context, nullptr);
    pd.reset(ibv_alloc_pd(context.get()));
    ASSERT_NE(pd, nullptr);
  }

  void TearDown() override { soft_hca::set_completion_delay(0); }

  void make_connection(const PairOptions& options = {}, int cq_depth = 256) {
    cq.reset(ibv_create_cq(context.get(), cq_depth, nullptr, nullptr, 0));
    ASSERT_NE(cq, nullptr);
    left = make_pair_end(pd.get(), cq.get(), cq.get(), options);
    right = make_pair_end(pd.get(), cq.get(), cq.get(), options);
    ASSERT_NE(left, nullptr);
    ASSERT_NE(right, nullptr);
    connect(left.get(), right.get(), options);
    buffer = std::make_unique<Buffer>(pd.get(), 1 << 20);
  }

  uint64_t address(size_t offset) const {
    return reinterpret_cast<uint64_t>(buffer->bytes.data()) + offset;
  }
  Send write(uint64_t id, size_t from, size_t to, uint32_t length) const {
    return {IBV_WR_RDMA_WRITE,   id, buffer->sge(from, length), IBV_SEND_SIGNALED, 0, address(to),
            buffer->region->rkey};
  }

  ibv_async_event take_async_event() const {
    pollfd descriptor{context->async_fd, POLLIN, 0};
    EXPECT_EQ(::poll(&descriptor, 1, 5000), 1) << "no asynchronous event";
    ibv_async_event event{};
    EXPECT_EQ(ibv_get_async_event(context.get(), &event), 0);
    ibv_ack_async_event(&event);
    return event;
  }

  Context context;
  ProtectionDomain pd;
  std::unique_ptr<Buffer> buffer;
  Queue cq;
  Pair left;
  Pair right;
};

}  // namespace pollgap
