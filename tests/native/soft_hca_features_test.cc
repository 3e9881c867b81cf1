// SPDX-License-Identifier: Apache-2.0
// Shared receive queues, datagrams, atomic operations and asynchronous events, by real verbs calls.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <poll.h>

#include <array>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "tests/native/soft_hca_verbs.h"
#include "tools/soft-hca/soft_hca.h"

namespace pollgap {
namespace {

using SharedReceives = std::unique_ptr<ibv_srq, Deleter<ibv_destroy_srq>>;
using Address = std::unique_ptr<ibv_ah, Deleter<ibv_destroy_ah>>;

constexpr uint32_t kQueueKey = 0x11223344;

SharedReceives make_srq(ibv_pd* pd, uint32_t receives, uint32_t limit = 0) {
  ibv_srq_init_attr attributes{};
  attributes.attr.max_wr = receives;
  attributes.attr.max_sge = 2;
  attributes.attr.srq_limit = limit;
  return SharedReceives(ibv_create_srq(pd, &attributes));
}

int post_shared(ibv_srq* srq, uint64_t id, ibv_sge sge) {
  ibv_recv_wr request{};
  ibv_recv_wr* bad = nullptr;
  request.wr_id = id;
  request.sg_list = &sge;
  request.num_sge = 1;
  return ibv_post_srq_recv(srq, &request, &bad);
}

class SharedReceiveTest : public SoftHca {
 protected:
  void SetUp() override {
    SoftHca::SetUp();
    cq.reset(ibv_create_cq(context.get(), 1024, nullptr, nullptr, 0));
    buffer = std::make_unique<Buffer>(pd.get(), 1 << 20);
    srq = make_srq(pd.get(), 63);
    ASSERT_NE(srq, nullptr);
  }
  void TearDown() override {
    senders.clear();
    receivers.clear();
    srq.reset();
    SoftHca::TearDown();
  }
  void add_connection() {
    ibv_qp_init_attr attributes{};
    attributes.qp_type = IBV_QPT_RC;
    attributes.send_cq = attributes.recv_cq = cq.get();
    attributes.srq = srq.get();
    attributes.cap = {64, 0, 2, 0, 64};
    receivers.emplace_back(ibv_create_qp(pd.get(), &attributes));
    senders.push_back(make_pair_end(pd.get(), cq.get(), cq.get(), {}));
    ASSERT_NE(receivers.back(), nullptr);
    connect(senders.back().get(), receivers.back().get());
  }

  SharedReceives srq;
  std::vector<Pair> senders;
  std::vector<Pair> receivers;
};

// Three queue pairs share 63 receives, which are posted again as they come back, in no fixed order.
TEST_F(SharedReceiveTest, EveryMessageTakesOneReceive) {
  for (int i = 0; i < 3; ++i) ASSERT_NO_FATAL_FAILURE(add_connection());
  for (uint64_t id = 0; id < 63; ++id) {
    ASSERT_EQ(post_shared(srq.get(), id, buffer->sge(id * 64, 64)), 0);
  }
  EXPECT_NE(post_shared(srq.get(), 99, buffer->sge(0, 64)), 0) << "it is full";
  std::set<uint64_t> posted;
  for (uint64_t id = 0; id < 63; ++id) posted.insert(id);
  std::array<uint32_t, 3> sent{};
  for (uint32_t round = 0; round < 200; ++round) {
    for (size_t i = 0; i < senders.size(); ++i) {
      const uint32_t value = sent[i]++ << 2 | static_cast<uint32_t>(i);
      std::memcpy(&buffer->bytes[100'000 + i * 64], &value, sizeof(value));
      ASSERT_EQ(post_send(senders[i].get(),
                          {IBV_WR_SEND, 1000 + i, buffer->sge(100'000 + i * 64, sizeof(value))}),
                0);
    }
    std::vector<uint64_t> again;
    for (const ibv_wc& completion : wait_for(cq.get(), 6)) {
      ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
      if (completion.wr_id >= 1000) continue;
      ASSERT_EQ(posted.erase(completion.wr_id), 1U) << "a receive that was not posted";
      ASSERT_EQ(completion.byte_len, 4U);
      uint32_t value = 0;
      std::memcpy(&value, &buffer->bytes[completion.wr_id * 64], sizeof(value));
      ASSERT_EQ(completion.qp_num, receivers[value & 3]->qp_num);
      ASSERT_EQ(value >> 2, round);
      again.push_back(completion.wr_id);
    }
    ASSERT_EQ(again.size(), 3U);
    for (auto id = again.rbegin(); id != again.rend(); ++id) {
      ASSERT_EQ(post_shared(srq.get(), *id, buffer->sge(*id * 64, 64)), 0);
      posted.insert(*id);
    }
  }
}

TEST_F(SharedReceiveTest, TheLimitIsToldOnce) {
  ASSERT_NO_FATAL_FAILURE(add_connection());
  for (uint64_t id = 0; id < 10; ++id) {
    ASSERT_EQ(post_shared(srq.get(), id, buffer->sge(0, 64)), 0);
  }
  ibv_srq_attr attributes{};
  attributes.srq_limit = 8;
  ASSERT_EQ(ibv_modify_srq(srq.get(), &attributes, IBV_SRQ_LIMIT), 0);
  ASSERT_EQ(ibv_query_srq(srq.get(), &attributes), 0);
  EXPECT_EQ(attributes.srq_limit, 8U);
  for (uint64_t id = 0; id < 5; ++id) {
    ASSERT_EQ(post_send(senders[0].get(), {IBV_WR_SEND, 100, buffer->sge(64, 8)}), 0);
  }
  wait_for(cq.get(), 10);
  const ibv_async_event event = take_async_event();
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(event.element.srq, srq.get());
  pollfd descriptor{context->async_fd, POLLIN, 0};
  EXPECT_EQ(::poll(&descriptor, 1, 5), 0) << "once";
  ASSERT_EQ(ibv_query_srq(srq.get(), &attributes), 0);
  EXPECT_EQ(attributes.srq_limit, 0U);
}

TEST_F(SharedReceiveTest, AFailedQueuePairLeavesTheSharedReceivesAlone) {
  for (int i = 0; i < 2; ++i) ASSERT_NO_FATAL_FAILURE(add_connection());
  for (uint64_t id = 0; id < 4; ++id) {
    ASSERT_EQ(post_shared(srq.get(), id, buffer->sge(0, 64)), 0);
  }
  EXPECT_EQ(soft_hca::fail_qp(receivers[0]->qp_num, 0, 0), 0);
  expect_silence(cq.get(), 2 * kMillisecond);
  const ibv_async_event event = take_async_event();
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
  EXPECT_EQ(event.element.qp, receivers[0].get());
  for (uint64_t id = 0; id < 4; ++id) {
    ASSERT_EQ(post_send(senders[1].get(), {IBV_WR_SEND, 100, buffer->sge(64, 8)}), 0);
  }
  for (const ibv_wc& completion : wait_for(cq.get(), 8)) {
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  }
}

TEST_F(SharedReceiveTest, AQueueInUseCannotBeDestroyedNorResized) {
  ASSERT_NO_FATAL_FAILURE(add_connection());
  EXPECT_EQ(ibv_destroy_srq(srq.get()), EBUSY);
  ibv_srq_attr attributes{};
  attributes.max_wr = 100;
  EXPECT_EQ(ibv_modify_srq(srq.get(), &attributes, IBV_SRQ_MAX_WR), EINVAL);
  attributes.srq_limit = 1000;
  EXPECT_EQ(ibv_modify_srq(srq.get(), &attributes, IBV_SRQ_LIMIT), EINVAL);
}

class DatagramTest : public SoftHca {
 protected:
  void SetUp() override {
    SoftHca::SetUp();
    cq.reset(ibv_create_cq(context.get(), 256, nullptr, nullptr, 0));
    buffer = std::make_unique<Buffer>(pd.get(), 1 << 16);
    left = make_end();
    right = make_end();
    ibv_ah_attr attributes{};
    attributes.dlid = 1;
    attributes.sl = 3;
    attributes.port_num = 1;
    address_.reset(ibv_create_ah(pd.get(), &attributes));
    ASSERT_NE(address_, nullptr);
  }
  void TearDown() override {
    address_.reset();
    SoftHca::TearDown();
  }
  Pair make_end() {
    ibv_qp_init_attr creation{};
    creation.qp_type = IBV_QPT_UD;
    creation.send_cq = creation.recv_cq = cq.get();
    creation.cap = {64, 64, 2, 2, 64};
    Pair pair(ibv_create_qp(pd.get(), &creation));
    EXPECT_NE(pair, nullptr);
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    attributes.qkey = kQueueKey;
    EXPECT_EQ(ibv_modify_qp(pair.get(), &attributes,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
              0);
    EXPECT_EQ(move_to(pair.get(), IBV_QPS_RTR), 0);
    attributes.qp_state = IBV_QPS_RTS;
    EXPECT_EQ(ibv_modify_qp(pair.get(), &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    return pair;
  }
  int send_to(uint32_t number, ibv_sge sge, ibv_wr_opcode opcode = IBV_WR_SEND,
              uint32_t key = kQueueKey) {
    ibv_send_wr request{};
    ibv_send_wr* bad = nullptr;
    request.wr_id = 500;
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = opcode;
    request.imm_data = 0x01020304;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.ud.ah = address_.get();
    request.wr.ud.remote_qpn = number;
    request.wr.ud.remote_qkey = key;
    return ibv_post_send(left.get(), &request, &bad);
  }

  Address address_;
};

TEST_F(DatagramTest, ArrivesBehindRoomForItsRouteHeader) {
  for (size_t i = 0; i < 2000; ++i) buffer->bytes[i] = static_cast<uint8_t>(i * 5 + 1);
  for (uint64_t id = 0; id < 2; ++id) {
    ASSERT_EQ(post_receive(right.get(), id, buffer->sge(10'000 + id * 4096, 4096)), 0);
  }
  ASSERT_EQ(send_to(right->qp_num, buffer->sge(0, 2000)), 0);
  ASSERT_EQ(send_to(right->qp_num, buffer->sge(3, 8), IBV_WR_SEND_WITH_IMM), 0);
  for (const ibv_wc& completion : wait_for(cq.get(), 4)) {
    ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
    if (completion.wr_id == 500) continue;
    EXPECT_EQ(completion.src_qp, left->qp_num);
    EXPECT_EQ(completion.slid, 1);
    EXPECT_EQ(completion.sl, 3);
    EXPECT_EQ(completion.wc_flags & IBV_WC_GRH, 0U);
    EXPECT_EQ(completion.byte_len, completion.wr_id == 0 ? 2040U : 48U);
    EXPECT_EQ((completion.wc_flags & IBV_WC_WITH_IMM) != 0, completion.wr_id == 1);
    if (completion.wr_id == 1) {
      EXPECT_EQ(completion.imm_data, 0x01020304U);
    }
  }
  EXPECT_EQ(std::memcmp(&buffer->bytes[0], &buffer->bytes[10'040], 2000), 0);
  EXPECT_EQ(std::memcmp(&buffer->bytes[3], &buffer->bytes[14'136], 8), 0);
}

TEST_F(DatagramTest, IsLostWithoutAReceiverOrWithAnotherKeyAndTheSenderDoesNotKnow) {
  ASSERT_EQ(send_to(right->qp_num, buffer->sge(0, 8)), 0);
  ASSERT_EQ(send_to(0xabcdef, buffer->sge(0, 8)), 0);
  for (const ibv_wc& completion : wait_for(cq.get(), 2)) {
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
    EXPECT_EQ(completion.wr_id, 500U);
  }
  let_the_adapter_look();
  ASSERT_EQ(post_receive(right.get(), 1, buffer->sge(4096, 4096)), 0);
  ASSERT_EQ(send_to(right->qp_num, buffer->sge(0, 8), IBV_WR_SEND, kQueueKey + 1), 0);
  EXPECT_EQ(wait_for(cq.get(), 1)[0].wr_id, 500U);
  expect_silence(cq.get(), 2 * kMillisecond);
  ASSERT_EQ(send_to(right->qp_num, buffer->sge(0, 8)), 0);
  wait_for(cq.get(), 2);
}

TEST_F(DatagramTest, CannotWriteAndCannotExceedTheMtu) {
  ASSERT_EQ(send_to(right->qp_num, buffer->sge(0, 4097)), 0);
  EXPECT_EQ(wait_for(cq.get(), 1)[0].status, IBV_WC_LOC_LEN_ERR);
}

class AtomicTest : public SoftHca {
 protected:
  void SetUp() override {
    SoftHca::SetUp();
    PairOptions options;
    options.access = kAllRemote | IBV_ACCESS_REMOTE_ATOMIC;
    make_connection(options);
    memory = std::make_unique<Buffer>(pd.get(), 4096, kAllRemote | IBV_ACCESS_REMOTE_ATOMIC);
  }
  void TearDown() override {
    memory.reset();
    SoftHca::TearDown();
  }
  uint64_t word(size_t index) const {
    uint64_t value = 0;
    std::memcpy(&value, &memory->bytes[index * 8], sizeof(value));
    return value;
  }
  void set_word(size_t index, uint64_t value) {
    std::memcpy(&memory->bytes[index * 8], &value, sizeof(value));
  }
  // Puts the old value into word 1.
  int post(ibv_wr_opcode opcode, uint64_t compare_or_add, uint64_t swap, size_t offset = 0) {
    ibv_sge sge = memory->sge(8, 8);
    ibv_send_wr request{};
    ibv_send_wr* bad = nullptr;
    request.wr_id = compare_or_add;
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = opcode;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.atomic.remote_addr = reinterpret_cast<uint64_t>(memory->bytes.data()) + offset;
    request.wr.atomic.rkey = memory->region->rkey;
    request.wr.atomic.compare_add = compare_or_add;
    request.wr.atomic.swap = swap;
    return ibv_post_send(left.get(), &request, &bad);
  }

  std::unique_ptr<Buffer> memory;
};

TEST_F(AtomicTest, AddsAndSwapsAndReturnsTheOldValue) {
  set_word(0, 40);
  ASSERT_EQ(post(IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 0), 0);
  ibv_wc completion = wait_for(cq.get(), 1)[0];
  EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  EXPECT_EQ(completion.opcode, IBV_WC_FETCH_ADD);
  EXPECT_EQ(word(1), 40U);
  EXPECT_EQ(word(0), 42U);
  ASSERT_EQ(post(IBV_WR_ATOMIC_CMP_AND_SWP, 42, 7), 0);
  completion = wait_for(cq.get(), 1)[0];
  EXPECT_EQ(completion.opcode, IBV_WC_COMP_SWAP);
  EXPECT_EQ(word(1), 42U);
  EXPECT_EQ(word(0), 7U);
  ASSERT_EQ(post(IBV_WR_ATOMIC_CMP_AND_SWP, 42, 9), 0);
  wait_for(cq.get(), 1);
  EXPECT_EQ(word(1), 7U) << "no swap, but the value is told";
  EXPECT_EQ(word(0), 7U);
}

TEST_F(AtomicTest, AnUnalignedWordIsAnInvalidRequest) {
  ASSERT_EQ(post(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 4), 0);
  EXPECT_EQ(wait_for(cq.get(), 1)[0].status, IBV_WC_REM_INV_REQ_ERR);
}

// A queue pair that may not do atomic operations.
TEST_F(SoftHca, AnAtomicOperationNeedsItsRight) {
  make_connection();
  ibv_send_wr request{};
  ibv_send_wr* bad = nullptr;
  ibv_sge sge = buffer->sge(8, 8);
  request.sg_list = &sge;
  request.num_sge = 1;
  request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  request.wr.atomic.remote_addr = address(0);
  request.wr.atomic.rkey = buffer->region->rkey;
  ASSERT_EQ(ibv_post_send(left.get(), &request, &bad), 0);
  EXPECT_EQ(wait_for(cq.get(), 1)[0].status, IBV_WC_REM_ACCESS_ERR);
}

// A message of many packets, and of several records, arrives whole whatever the MTU.
TEST_F(SoftHca, BigMessagesArriveWhole) {
  constexpr uint32_t kBytes = 300'001;
  make_connection();
  for (size_t i = 0; i < kBytes; ++i) buffer->bytes[i] = static_cast<uint8_t>(i * 31 + i / 251);
  ASSERT_EQ(post_receive(right.get(), 1, buffer->sge(400'000, kBytes)), 0);
  ASSERT_EQ(post_send(left.get(), {IBV_WR_SEND, 2, buffer->sge(0, kBytes)}), 0);
  for (const ibv_wc& completion : wait_for(cq.get(), 2)) {
    ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
    if (completion.wr_id == 1) {
      EXPECT_EQ(completion.byte_len, kBytes);
    }
  }
  EXPECT_EQ(std::memcmp(&buffer->bytes[0], &buffer->bytes[400'000], kBytes), 0);
  Send write_with_immediate = write(3, 0, 700'000, kBytes);
  write_with_immediate.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  ASSERT_EQ(post_receive(right.get(), 4, {}), 0);
  ASSERT_EQ(post_send(left.get(), write_with_immediate), 0);
  for (const ibv_wc& completion : wait_for(cq.get(), 2)) {
    ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
    if (completion.wr_id == 4) {
      EXPECT_EQ(completion.byte_len, kBytes) << "of the whole message";
    }
  }
  EXPECT_EQ(std::memcmp(&buffer->bytes[0], &buffer->bytes[700'000], kBytes), 0);
}

// A write behind a fence waits for the read before it; the read must see the old data.
TEST_F(SoftHca, AFenceWaitsForReads) {
  make_connection();
  for (int round = 0; round < 50; ++round) {
    std::memset(&buffer->bytes[0], round, 100'000);
    std::memset(&buffer->bytes[200'000], round + 100, 100'000);
    Send read = write(1, 0, 200'000, 100'000);  // into 0 from 200000
    read.opcode = IBV_WR_RDMA_READ;
    Send fenced = write(2, 0, 500'000, 100'000);  // what was read, to 500000
    fenced.flags |= IBV_SEND_FENCE;
    ASSERT_EQ(post_send(left.get(), read), 0);
    ASSERT_EQ(post_send(left.get(), fenced), 0);
    for (const ibv_wc& completion : wait_for(cq.get(), 2)) {
      ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
    }
    ASSERT_EQ(std::memcmp(&buffer->bytes[500'000], &buffer->bytes[200'000], 100'000), 0);
  }
}

TEST_F(SoftHca, AQueuePairOnAnotherLidIsNotReached) {
  PairOptions options;
  options.timeout = 8;
  options.retry_count = 1;
  make_connection(options);
  ASSERT_EQ(move_to(left.get(), IBV_QPS_RESET), 0);
  ASSERT_EQ(to_init(left.get(), options), 0);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = IBV_MTU_1024;
  attributes.dest_qp_num = right->qp_num;
  attributes.rq_psn = 0x123456;
  attributes.max_dest_rd_atomic = 1;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.dlid = 2;
  ASSERT_EQ(ibv_modify_qp(left.get(), &attributes,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
            0);
  ASSERT_EQ(to_ready_to_send(left.get(), options), 0);
  ASSERT_EQ(post_send(left.get(), write(1, 0, 64, 8)), 0);
  EXPECT_EQ(wait_for(cq.get(), 1)[0].status, IBV_WC_RETRY_EXC_ERR);
}

}  // namespace
}  // namespace pollgap
