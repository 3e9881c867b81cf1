// SPDX-License-Identifier: Apache-2.0
// Real verbs calls, through the distribution's libibverbs and libmlx5, on the soft adapter.
#include "tools/soft-hca/soft_hca.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <linux/capability.h>
#include <poll.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POLLGAP_LEAK_CHECKED
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define POLLGAP_LEAK_CHECKED
#endif
#ifdef POLLGAP_LEAK_CHECKED
#include <sanitizer/lsan_interface.h>
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/native/soft_hca_verbs.h"

namespace pollgap {
namespace {

constexpr uint64_t kRegistrationNsPerPage = 2000;

TEST_F(SoftHca, AnswersTheQueriesOfIbvDevinfo) {
  EXPECT_STREQ(ibv_get_device_name(context->device), "mlx5_0");
  EXPECT_EQ(context->device->node_type, IBV_NODE_CA);
  EXPECT_NE(ibv_get_device_guid(context->device), 0U);
  ibv_device_attr device{};
  ASSERT_EQ(ibv_query_device(context.get(), &device), 0);
  EXPECT_EQ(device.vendor_id, 0x2c9U);
  EXPECT_EQ(device.vendor_part_id, 4123U);
  EXPECT_GE(device.max_cqe, 1 << 20);
  EXPECT_GE(device.max_qp_wr, 32768);
  EXPECT_STREQ(device.fw_ver, "20.31.1014");
  ibv_device_attr_ex extended{};
  ASSERT_EQ(ibv_query_device_ex(context.get(), nullptr, &extended), 0);
  EXPECT_EQ(extended.hca_core_clock, 1'000'000U);
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(context.get(), 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port.lid, 1);
  EXPECT_NE(ibv_query_port(context.get(), 2, &port), 0);
  ibv_gid gid{};
  ASSERT_EQ(ibv_query_gid(context.get(), 1, 0, &gid), 0);
  EXPECT_EQ(gid.raw[0], 0xfe);
  uint16_t pkey = 0;
  ASSERT_EQ(ibv_query_pkey(context.get(), 1, 0, &pkey), 0);
  EXPECT_EQ(pkey, 0xffff);
}

TEST_F(SoftHca, PollsThroughTheDistributionsMlx5Library) {
  Dl_info where{};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(context->ops.poll_cq), &where), 0);
  EXPECT_NE(std::string(where.dli_fname).find("libmlx5"), std::string::npos) << where.dli_fname;
}

TEST_F(SoftHca, SendsArriveWithLengthImmediateAndData) {
  make_connection();
  for (size_t i = 0; i < 5000; ++i) buffer->bytes[i] = static_cast<uint8_t>(i * 7);
  ASSERT_EQ(post_receive(right.get(), 1, buffer->sge(500'000, 8192)), 0);
  ASSERT_EQ(post_receive(right.get(), 2, buffer->sge(600'000, 64)), 0);
  ASSERT_EQ(post_receive(right.get(), 3, {}), 0);
  ASSERT_EQ(post_send(left.get(), {IBV_WR_SEND, 10, buffer->sge(0, 5000)}), 0);
  Send inlined{IBV_WR_SEND_WITH_IMM, 11, buffer->sge(1, 60), IBV_SEND_SIGNALED | IBV_SEND_INLINE};
  inlined.immediate = 0x01020304;
  ASSERT_EQ(post_send(left.get(), inlined), 0);
  ASSERT_EQ(post_send(left.get(), {IBV_WR_SEND, 12}), 0);
  const std::vector<ibv_wc> got = wait_for(cq.get(), 6);
  std::map<uint64_t, ibv_wc> by_id;
  for (const ibv_wc& completion : got) {
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
    by_id[completion.wr_id] = completion;
  }
  ASSERT_EQ(by_id.size(), 6U);
  EXPECT_EQ(by_id[1].byte_len, 5000U);
  EXPECT_EQ(by_id[1].opcode, IBV_WC_RECV);
  EXPECT_EQ(by_id[1].qp_num, right->qp_num);
  EXPECT_EQ(by_id[1].wc_flags & IBV_WC_WITH_IMM, 0U);
  EXPECT_EQ(by_id[2].byte_len, 60U);
  EXPECT_NE(by_id[2].wc_flags & IBV_WC_WITH_IMM, 0U);
  EXPECT_EQ(by_id[2].imm_data, 0x01020304U);
  EXPECT_EQ(by_id[3].byte_len, 0U);
  EXPECT_EQ(by_id[10].opcode, IBV_WC_SEND);
  EXPECT_EQ(by_id[10].qp_num, left->qp_num);
  EXPECT_EQ(std::memcmp(&buffer->bytes[0], &buffer->bytes[500'000], 5000), 0);
  EXPECT_EQ(std::memcmp(&buffer->bytes[1], &buffer->bytes[600'000], 60), 0);
}

TEST_F(SoftHca, WritesAndReadsMoveTheData) {
  make_connection();
  for (size_t i = 0; i < 70'000; ++i) buffer->bytes[i] = static_cast<uint8_t>(i * 13 + 1);
  ASSERT_EQ(post_send(left.get(), write(1, 0, 200'000, 70'000)), 0);
  ASSERT_EQ(wait_for(cq.get(), 1)[0].opcode, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(std::memcmp(&buffer->bytes[0], &buffer->bytes[200'000], 70'000), 0);

  Send read = write(2, 400'000, 200'000, 65'536);
  read.opcode = IBV_WR_RDMA_READ;
  ASSERT_EQ(post_send(right.get(), read), 0);
  const ibv_wc completion = wait_for(cq.get(), 1)[0];
  EXPECT_EQ(completion.opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(completion.byte_len, 65'536U);
  EXPECT_EQ(std::memcmp(&buffer->bytes[0], &buffer->bytes[400'000], 65'536), 0);

  ASSERT_EQ(post_receive(right.get(), 3, {}), 0);
  Send with_immediate = write(4, 5, 300'000, 100);
  with_immediate.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  with_immediate.immediate = 0xaabbccdd;
  ASSERT_EQ(post_send(left.get(), with_immediate), 0);
  for (const ibv_wc& got : wait_for(cq.get(), 2)) {
    EXPECT_EQ(got.status, IBV_WC_SUCCESS);
    if (got.wr_id != 3) continue;
    EXPECT_EQ(got.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(got.imm_data, 0xaabbccddU);
    EXPECT_EQ(got.byte_len, 100U);
  }
  EXPECT_EQ(std::memcmp(&buffer->bytes[5], &buffer->bytes[300'000], 100), 0);
}

// The adapter moves a big message piece by piece and serves others in between.
TEST_F(SoftHca, ABigWriteDoesNotHoldUpOthers) {
  constexpr uint32_t kBig = 64 << 20;
  make_connection();
  Pair other_left = make_pair_end(pd.get(), cq.get(), cq.get(), {});
  Pair other_right = make_pair_end(pd.get(), cq.get(), cq.get(), {});
  connect(other_left.get(), other_right.get());
  Buffer from(pd.get(), kBig);
  Buffer to(pd.get(), kBig);
  for (size_t i = 0; i < kBig; i += 4093) from.bytes[i] = static_cast<uint8_t>(i);
  from.bytes[kBig - 1] = 0xee;
  soft_hca::set_completion_delay(300 * kMillisecond);  // so that both begin together
  ASSERT_EQ(post_send(left.get(), {IBV_WR_RDMA_WRITE, 1, from.sge(0, kBig), IBV_SEND_SIGNALED, 0,
                                   reinterpret_cast<uint64_t>(to.bytes.data()), to.region->rkey}),
            0);
  ASSERT_EQ(post_send(other_left.get(), write(2, 0, 64, 8)), 0);
  const std::vector<ibv_wc> got = wait_for(cq.get(), 2);
  EXPECT_EQ(got[0].wr_id, 2U);
  EXPECT_EQ(got[1].wr_id, 1U);
  EXPECT_EQ(got[1].status, IBV_WC_SUCCESS);
  EXPECT_TRUE(from.bytes == to.bytes);
}

TEST_F(SoftHca, GathersAndScattersAcrossSegments) {
  make_connection();
  for (size_t i = 0; i < 300; ++i) buffer->bytes[i] = static_cast<uint8_t>(i);
  std::array<ibv_sge, 3> from{buffer->sge(0, 10), buffer->sge(50, 100), buffer->sge(200, 1)};
  std::array<ibv_sge, 3> to{buffer->sge(1000, 60), buffer->sge(2000, 1), buffer->sge(3000, 500)};
  ibv_recv_wr receive{};
  ibv_recv_wr* bad_receive = nullptr;
  receive.sg_list = to.data();
  receive.num_sge = 3;
  ASSERT_EQ(ibv_post_recv(right.get(), &receive, &bad_receive), 0);
  ibv_send_wr send{};
  ibv_send_wr* bad_send = nullptr;
  send.sg_list = from.data();
  send.num_sge = 3;
  send.opcode = IBV_WR_SEND;
  send.send_flags = IBV_SEND_SIGNALED;
  ASSERT_EQ(ibv_post_send(left.get(), &send, &bad_send), 0);
  wait_for(cq.get(), 2);
  std::vector<uint8_t> sent(buffer->bytes.begin(), buffer->bytes.begin() + 10);
  sent.insert(sent.end(), buffer->bytes.begin() + 50, buffer->bytes.begin() + 150);
  sent.push_back(buffer->bytes[200]);
  std::vector<uint8_t> arrived(buffer->bytes.begin() + 1000, buffer->bytes.begin() + 1060);
  arrived.push_back(buffer->bytes[2000]);
  arrived.insert(arrived.end(), buffer->bytes.begin() + 3000, buffer->bytes.begin() + 3050);
  EXPECT_EQ(sent, arrived);
}

TEST_F(SoftHca, CompletesOnlySignaledSends) {
  make_connection();
  for (uint64_t id = 1; id <= 20; ++id) {
    Send send = write(id, 0, 1000, 8);
    send.flags = id % 10 == 0 ? unsigned{IBV_SEND_SIGNALED} : 0U;
    ASSERT_EQ(post_send(left.get(), send), 0);
  }
  const std::vector<ibv_wc> got = wait_for(cq.get(), 2);
  EXPECT_EQ(got[0].wr_id, 10U);
  EXPECT_EQ(got[1].wr_id, 20U);
  expect_silence(cq.get(), kMillisecond);
}

// A CQ of 16 entries, a send queue that wraps with it, and polls of several sizes.
TEST_F(SoftHca, KeepsOrderWhileTheQueuesWrapManyTimes) {
  PairOptions options;
  options.sends = 15;
  make_connection(options, 15);
  uint64_t posted = 0;
  uint64_t done = 0;
  for (const int batch : {1, 2, 3, 5, 8, 16, 64}) {
    std::vector<ibv_wc> completions(static_cast<size_t>(batch));
    for (const uint64_t end = posted + 2000; done < end;) {
      while (posted < end && posted - done < 15) {
        Send send = write(posted, posted % 512, 5000, 1 + posted % 60);
        if (posted % 3 == 0) send.flags |= IBV_SEND_INLINE;  // WQEs of one to three blocks
        ASSERT_EQ(post_send(left.get(), send), 0);
        ++posted;
      }
      const int got = ibv_poll_cq(cq.get(), batch, completions.data());
      ASSERT_GE(got, 0);
      for (int i = 0; i < got; ++i, ++done) {
        const ibv_wc& completion = completions[static_cast<size_t>(i)];
        ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
        ASSERT_EQ(completion.wr_id, done);
      }
    }
  }
}

TEST_F(SoftHca, ExtendedCqPollsEachCompletionOnce) {
  ibv_cq_init_attr_ex attributes{};
  attributes.cqe = 64;
  attributes.wc_flags = uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  ibv_cq_ex* extended = ibv_create_cq_ex(context.get(), &attributes);
  ASSERT_NE(extended, nullptr);
  cq.reset(ibv_cq_ex_to_cq(extended));
  left = make_pair_end(pd.get(), cq.get(), cq.get(), {});
  right = make_pair_end(pd.get(), cq.get(), cq.get(), {});
  connect(left.get(), right.get());
  buffer = std::make_unique<Buffer>(pd.get(), 4096);
  const uint64_t before = now_ns();
  uint64_t done = 0;
  for (uint64_t round = 0; round < 100; ++round) {
    for (uint64_t i = 0; i < 30; ++i)
      ASSERT_EQ(post_send(left.get(), write(round * 30 + i, 0, 64, 16)), 0);
    for (const uint64_t end = now_ns() + 10 * kSecond; done < (round + 1) * 30 && now_ns() < end;) {
      ibv_poll_cq_attr poll{};
      int result = ibv_start_poll(extended, &poll);
      if (result == ENOENT) continue;
      ASSERT_EQ(result, 0);
      for (; result == 0; result = ibv_next_poll(extended), ++done) {
        ASSERT_EQ(extended->status, IBV_WC_SUCCESS);
        ASSERT_EQ(extended->wr_id, done);
        ASSERT_EQ(ibv_wc_read_opcode(extended), IBV_WC_RDMA_WRITE);
        ASSERT_EQ(ibv_wc_read_qp_num(extended), left->qp_num);
        ASSERT_GE(ibv_wc_read_completion_ts(extended), before);
        ASSERT_LE(ibv_wc_read_completion_ts(extended), now_ns());
      }
      ASSERT_EQ(result, ENOENT);
      ibv_end_poll(extended);
    }
  }
  EXPECT_EQ(done, 3000U);
}

// With IGNORE_OVERRUN the library goes through the extended command, and the CQ never fails.
TEST_F(SoftHca, ACqThatIgnoresOverrunOverwritesItsOldest) {
  ibv_cq_init_attr_ex attributes{};
  attributes.cqe = 15;
  attributes.wc_flags = IBV_WC_STANDARD_FLAGS;
  attributes.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  attributes.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN | IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
  ibv_cq_ex* extended = ibv_create_cq_ex(context.get(), &attributes);
  ASSERT_NE(extended, nullptr);
  cq.reset(ibv_cq_ex_to_cq(extended));
  left = make_pair_end(pd.get(), cq.get(), cq.get(), {});
  ASSERT_EQ(to_init(left.get(), {}), 0);
  buffer = std::make_unique<Buffer>(pd.get(), 4096);
  for (uint64_t id = 0; id < 40; ++id) {
    ASSERT_EQ(post_receive(left.get(), id, buffer->sge(64, 8)), 0);
  }
  EXPECT_EQ(soft_hca::fail_qp(left->qp_num, 0, 0), 40);
  pollfd descriptor{context->async_fd, POLLIN, 0};
  EXPECT_EQ(::poll(&descriptor, 1, 0), 0) << "no CQ error";
}

TEST_F(SoftHca, CqesOf128BytesWorkToo) {
  setenv("MLX5_CQE_SIZE", "128", 1);
  make_connection({}, 15);
  unsetenv("MLX5_CQE_SIZE");
  for (uint64_t id = 0; id < 100; ++id) {
    ASSERT_EQ(post_send(left.get(), write(id, 0, 64, 8)), 0);
    ASSERT_EQ(wait_for(cq.get(), 1)[0].wr_id, id);
  }
}

// The ibv_wr_* interface builds the same WQEs in another way.
TEST_F(SoftHca, WorkRequestsOfTheExtendedQpAreCarriedOut) {
  cq.reset(ibv_create_cq(context.get(), 64, nullptr, nullptr, 0));
  ibv_qp_init_attr_ex attributes{};
  attributes.qp_type = IBV_QPT_RC;
  attributes.send_cq = attributes.recv_cq = cq.get();
  attributes.cap = {64, 64, 4, 4, 400};
  attributes.pd = pd.get();
  attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attributes.send_ops_flags = uint64_t{IBV_QP_EX_WITH_RDMA_WRITE} | IBV_QP_EX_WITH_SEND;
  left.reset(ibv_create_qp_ex(context.get(), &attributes));
  ASSERT_NE(left, nullptr);
  right = make_pair_end(pd.get(), cq.get(), cq.get(), {});
  connect(left.get(), right.get());
  buffer = std::make_unique<Buffer>(pd.get(), 65536);
  for (size_t i = 0; i < 400; ++i) buffer->bytes[i] = static_cast<uint8_t>(i * 3);
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(left.get());
  for (uint64_t id = 0; id < 200; ++id) {
    ibv_wr_start(qp);
    qp->wr_id = id;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(qp, buffer->region->rkey, address(1000));
    ibv_wr_set_inline_data(qp, buffer->bytes.data(), 1 + id * 2);
    ASSERT_EQ(ibv_wr_complete(qp), 0);
    const ibv_wc completion = wait_for(cq.get(), 1)[0];
    ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
    ASSERT_EQ(completion.wr_id, id);
    ASSERT_EQ(std::memcmp(&buffer->bytes[0], &buffer->bytes[1000], 1 + id * 2), 0);
  }
}

class SoftHcaEvents : public SoftHca {
 protected:
  void SetUp() override {
    SoftHca::SetUp();
    channel.reset(ibv_create_comp_channel(context.get()));
    ASSERT_NE(channel, nullptr);
    cq.reset(ibv_create_cq(context.get(), 64, this, channel.get(), 1));
    ASSERT_NE(cq, nullptr);
    left = make_pair_end(pd.get(), cq.get(), cq.get(), {});
    right = make_pair_end(pd.get(), cq.get(), cq.get(), {});
    connect(left.get(), right.get());
    buffer = std::make_unique<Buffer>(pd.get(), 4096);
  }

  void TearDown() override {
    left.reset();
    right.reset();
    cq.reset();
    SoftHca::TearDown();
  }

  bool event_within(int milliseconds) {
    pollfd descriptor{channel->fd, POLLIN, 0};
    return ::poll(&descriptor, 1, milliseconds) == 1;
  }
  void take_event() {
    ibv_cq* which = nullptr;
    void* cookie = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel.get(), &which, &cookie), 0);
    EXPECT_EQ(which, cq.get());
    EXPECT_EQ(cookie, this);
    ibv_ack_cq_events(which, 1);
  }

  Channel channel;
};

TEST_F(SoftHcaEvents, OneEventForEachRequest) {
  ASSERT_EQ(post_send(left.get(), write(1, 0, 64, 8)), 0);
  wait_for(cq.get(), 1);
  EXPECT_FALSE(event_within(5)) << "not armed";
  for (uint64_t round = 0; round < 50; ++round) {
    ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
    if (round < 5) {
      EXPECT_FALSE(event_within(2)) << "armed, but nothing new";
    }
    ASSERT_EQ(post_send(left.get(), write(2, 0, 64, 8)), 0);
    ASSERT_EQ(post_send(left.get(), write(3, 0, 64, 8)), 0);
    ASSERT_TRUE(event_within(5000)) << "round " << round;
    take_event();
    wait_for(cq.get(), 2);
    if (round < 5) {
      EXPECT_FALSE(event_within(2)) << "one request, one event";
    }
  }
}

TEST_F(SoftHcaEvents, RequestAfterTheFactFiresAtOnce) {
  ASSERT_EQ(post_send(left.get(), write(1, 0, 64, 8)), 0);
  ASSERT_EQ(post_send(left.get(), write(2, 0, 64, 8)), 0);
  const uint64_t end = now_ns() + kSecond;
  ibv_wc completion{};
  while (ibv_poll_cq(cq.get(), 1, &completion) == 0 && now_ns() < end) {
  }
  let_the_adapter_look();  // the second is there, unpolled
  ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
  ASSERT_TRUE(event_within(5000));
  take_event();
}

TEST_F(SoftHcaEvents, SolicitedOnlyWaitsForASolicitedMessage) {
  for (uint64_t id = 1; id <= 2; ++id)
    ASSERT_EQ(post_receive(right.get(), id, buffer->sge(64, 8)), 0);
  ASSERT_EQ(ibv_req_notify_cq(cq.get(), 1), 0);
  ASSERT_EQ(post_send(left.get(), {IBV_WR_SEND, 10, buffer->sge(0, 8)}), 0);
  wait_for(cq.get(), 2);
  EXPECT_FALSE(event_within(5));
  ASSERT_EQ(post_send(left.get(),
                      {IBV_WR_SEND, 11, buffer->sge(0, 8), IBV_SEND_SIGNALED | IBV_SEND_SOLICITED}),
            0);
  ASSERT_TRUE(event_within(5000));
  take_event();
}

// ibv_destroy_cq waits for the acknowledgement of events that were read, and of no others.
TEST_F(SoftHcaEvents, UnreadEventsDoNotKeepACqFromBeingDestroyed) {
  ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
  ASSERT_EQ(post_send(left.get(), write(1, 0, 64, 8)), 0);
  ASSERT_TRUE(event_within(5000));
  left.reset();
  right.reset();
  cq.reset();
  EXPECT_FALSE(event_within(0)) << "the event goes with its CQ";
}

TEST_F(SoftHca, HeldBackCompletionArrivesAtItsTime) {
  make_connection();
  constexpr uint64_t kHold = 300 * kMillisecond;
  const uint64_t before = now_ns();
  const uint64_t until = soft_hca::hold_completions(kHold);
  EXPECT_GE(until, before + kHold);
  ASSERT_EQ(post_send(left.get(), write(1, 0, 64, 8)), 0);
  ASSERT_EQ(post_send(left.get(), write(2, 0, 64, 8)), 0);
  ibv_wc completions[2];
  int got = 0;
  uint64_t polls = 0;
  while ((got = ibv_poll_cq(cq.get(), 2, completions)) == 0 && now_ns() < before + 10 * kSecond)
    ++polls;
  const uint64_t arrived = now_ns();
  EXPECT_EQ(got, 2) << "what fell due while held comes at once";
  EXPECT_GE(arrived, until);
  EXPECT_LT(arrived, until + kSecond);
  EXPECT_GT(polls, 0U);
  RecordProperty("late_by_ns", std::to_string(arrived - until));
  std::printf("held back completions: %llu ns after their time\n",
              static_cast<unsigned long long>(arrived - until));
}

TEST_F(SoftHca, ALaterHoldDoesNotShortenAnEarlierOne) {
  make_connection();
  const uint64_t until = soft_hca::hold_completions(300 * kMillisecond);
  EXPECT_EQ(soft_hca::hold_completions(kMillisecond), until);
  ASSERT_EQ(post_send(left.get(), write(1, 0, 64, 8)), 0);
  wait_for(cq.get(), 1);
  EXPECT_GE(now_ns(), until);
}

TEST_F(SoftHca, CompletionsAreDelayedFromTheDoorbell) {
  make_connection();
  std::vector<uint64_t> late;
  for (const uint64_t delay : {100'000U, 1'000'000U}) {
    soft_hca::set_completion_delay(delay);
    for (uint64_t id = 0; id < 20; ++id) {
      const uint64_t before = now_ns();
      ASSERT_EQ(post_send(left.get(), write(id, 0, 64, 8)), 0);
      ASSERT_EQ(wait_for(cq.get(), 1)[0].wr_id, id);
      ASSERT_GE(now_ns() - before, delay);
      late.push_back(now_ns() - before - delay);
    }
  }
  std::sort(late.begin(), late.end());
  EXPECT_LT(late[late.size() / 2], 100 * kMillisecond);
  std::printf("delayed completions: %llu ns late in the median\n",
              static_cast<unsigned long long>(late[late.size() / 2]));
}

TEST_F(SoftHca, ADelayAppliesToLaterSendsOnlyAndKeepsOrder) {
  make_connection();
  soft_hca::set_completion_delay(5 * kMillisecond);
  const uint64_t before = now_ns();
  ASSERT_EQ(post_send(left.get(), write(1, 0, 64, 8)), 0);
  let_the_adapter_look();
  soft_hca::set_completion_delay(0);
  ASSERT_EQ(post_send(left.get(), write(2, 0, 64, 8)), 0);
  const std::vector<ibv_wc> got = wait_for(cq.get(), 2);
  EXPECT_GE(now_ns() - before, 5 * kMillisecond);
  EXPECT_EQ(got[0].wr_id, 1U);
  EXPECT_EQ(got[1].wr_id, 2U);
}

TEST_F(SoftHca, FailedQpYieldsItsErrorThenFlushesEachRequestOnceInOrder) {
  make_connection();
  soft_hca::set_completion_delay(10 * kSecond);
  for (uint64_t id = 0; id < 10; ++id) ASSERT_EQ(post_send(left.get(), write(id, 0, 64, 8)), 0);
  for (uint64_t id = 100; id < 120; ++id)
    ASSERT_EQ(post_receive(left.get(), id, buffer->sge(64, 8)), 0);
  EXPECT_EQ(soft_hca::fail_qp(left->qp_num, 0x15, 0x81), 30);
  std::array<ibv_wc, 64> completions{};
  ASSERT_EQ(ibv_poll_cq(cq.get(), 64, completions.data()), 30) << "all in one poll";
  for (uint64_t i = 0; i < 30; ++i) {
    const ibv_wc& completion = completions[i];
    EXPECT_EQ(completion.status, i == 0 ? IBV_WC_RETRY_EXC_ERR : IBV_WC_WR_FLUSH_ERR);
    if (i == 0) {
      EXPECT_EQ(completion.vendor_err, 0x81U);
    }
    EXPECT_EQ(completion.wr_id, i < 10 ? i : 90 + i);
    EXPECT_EQ(completion.qp_num, left->qp_num);
  }
  EXPECT_EQ(state_of(left.get()), IBV_QPS_ERR);
  EXPECT_EQ(soft_hca::fail_qp(left->qp_num, 0x15, 0x81), 0) << "nothing is left";
  EXPECT_EQ(soft_hca::fail_qp(0xabcdef, 0, 0), -1);

  // Work posted in the error state is flushed too.
  ASSERT_EQ(post_send(left.get(), write(7, 0, 64, 8)), 0);
  ASSERT_EQ(post_receive(left.get(), 8, buffer->sge(64, 8)), 0);
  for (const ibv_wc& completion : wait_for(cq.get(), 2)) {
    EXPECT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
  }
}

TEST_F(SoftHca, WithoutASendAFailureIsAllFlushes) {
  make_connection();
  for (uint64_t id = 0; id < 5; ++id)
    ASSERT_EQ(post_receive(left.get(), id, buffer->sge(64, 8)), 0);
  EXPECT_EQ(soft_hca::fail_qp(left->qp_num, 0x15, 0x81), 5);
  for (const ibv_wc& completion : wait_for(cq.get(), 5)) {
    EXPECT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
  }
}

// Several queue pairs on one CQ, failed while completions are held: all CQEs become visible at
// once.
TEST_F(SoftHca, AStormOfFlushesIsDeliveredWhole) {
  constexpr uint32_t kPairs = 10;
  constexpr uint32_t kReceives = 32768;
  constexpr int kTotal = kPairs * kReceives;
  cq.reset(ibv_create_cq(context.get(), 1 << 20, nullptr, nullptr, 0));
  ASSERT_NE(cq, nullptr);
  PairOptions options;
  options.receives = kReceives;
  std::vector<Pair> pairs;
  buffer = std::make_unique<Buffer>(pd.get(), 4096);
  for (uint32_t i = 0; i < kPairs; ++i) {
    pairs.push_back(make_pair_end(pd.get(), cq.get(), cq.get(), options));
    ASSERT_NE(pairs.back(), nullptr);
    ASSERT_EQ(to_init(pairs.back().get(), options), 0);
    ASSERT_EQ(to_ready_to_receive(pairs.back().get(), 0x5555), 0);
    for (uint32_t id = 0; id < kReceives; ++id) {
      ASSERT_EQ(post_receive(pairs.back().get(), id, buffer->sge(0, 8)), 0);
    }
  }
  soft_hca::hold_completions(kSecond);
  for (const Pair& pair : pairs) {
    EXPECT_EQ(soft_hca::fail_qp(pair->qp_num, 0, 0), kReceives);
  }
  std::vector<ibv_wc> completions(kTotal);
  int got = 0;
  for (const uint64_t end = now_ns() + 10 * kSecond; got == 0 && now_ns() < end;) {
    got = ibv_poll_cq(cq.get(), kTotal, completions.data());
  }
  ASSERT_EQ(got, kTotal);
  std::map<uint32_t, uint64_t> next;
  for (const ibv_wc& completion : completions) {
    ASSERT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
    ASSERT_EQ(completion.wr_id, next[completion.qp_num]++);
  }
  EXPECT_EQ(next.size(), kPairs);
}

TEST_F(SoftHca, AFailedQpCanBeResetAndUsedAgain) {
  make_connection();
  for (int round = 0; round < 20; ++round) {
    ASSERT_EQ(post_receive(right.get(), 1, buffer->sge(64, 8)), 0);
    ASSERT_EQ(post_send(left.get(), {IBV_WR_SEND, 2, buffer->sge(0, 8)}), 0);
    for (const ibv_wc& completion : wait_for(cq.get(), 2))
      ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
    ASSERT_EQ(post_receive(right.get(), 3, buffer->sge(64, 8)), 0);
    ASSERT_EQ(move_to(right.get(), IBV_QPS_ERR), 0);
    ASSERT_EQ(wait_for(cq.get(), 1)[0].status, IBV_WC_WR_FLUSH_ERR);
    ASSERT_EQ(move_to(left.get(), IBV_QPS_RESET), 0);
    ASSERT_EQ(move_to(right.get(), IBV_QPS_RESET), 0);
    connect(left.get(), right.get());
  }
}

TEST_F(SoftHca, IllegalStateChangesAreRefused) {
  cq.reset(ibv_create_cq(context.get(), 16, nullptr, nullptr, 0));
  left = make_pair_end(pd.get(), cq.get(), cq.get(), {});
  ibv_qp* qp = left.get();
  EXPECT_EQ(to_ready_to_receive(qp, 1), EINVAL) << "from RESET";
  EXPECT_EQ(move_to(qp, IBV_QPS_ERR), EINVAL);
  EXPECT_EQ(move_to(qp, IBV_QPS_INIT), EINVAL) << "attributes missing";
  ASSERT_EQ(to_init(qp, {}), 0);
  EXPECT_EQ(to_ready_to_send(qp, {}), EINVAL);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.qkey = 1;
  EXPECT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_QKEY), EINVAL) << "no UD";
  attributes.port_num = 2;
  EXPECT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PORT), EINVAL) << "one port";
  EXPECT_EQ(state_of(qp), IBV_QPS_INIT);
  ASSERT_EQ(to_ready_to_receive(qp, 1), 0);
  ASSERT_EQ(to_ready_to_send(qp, {}), 0);
  EXPECT_EQ(to_init(qp, {}), EINVAL);
  EXPECT_EQ(state_of(qp), IBV_QPS_RTS);
}

TEST_F(SoftHca, AnAbsentPeerExceedsTheRetries) {
  PairOptions options;
  options.timeout = 8;  // 1.05 ms
  options.retry_count = 3;
  make_connection(options);
  ASSERT_EQ(move_to(right.get(), IBV_QPS_ERR), 0);
  const uint64_t before = now_ns();
  ASSERT_EQ(post_send(left.get(), write(1, 0, 64, 8)), 0);
  ASSERT_EQ(post_send(left.get(), write(2, 0, 64, 8)), 0);
  const std::vector<ibv_wc> got = wait_for(cq.get(), 2);
  EXPECT_EQ(got[0].status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(got[0].wr_id, 1U);
  EXPECT_EQ(got[1].status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_GE(now_ns() - before, 4 * (uint64_t{4096} << 8)) << "a first attempt and three more";
}

TEST_F(SoftHca, WithoutAReceiveTheSenderWaitsAndThenFails) {
  PairOptions options;
  options.rnr_retry = 3;
  make_connection(options);
  const uint64_t before = now_ns();
  ASSERT_EQ(post_send(left.get(), {IBV_WR_SEND, 1, buffer->sge(0, 8)}), 0);
  EXPECT_EQ(wait_for(cq.get(), 1)[0].status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_GE(now_ns() - before, 3 * 640'000U);
}

TEST_F(SoftHca, AReceivePostedLateIsFoundAtTheNextRetry) {
  make_connection();
  ASSERT_EQ(post_send(left.get(), {IBV_WR_SEND, 1, buffer->sge(0, 8)}), 0);
  expect_silence(cq.get(), 3 * kMillisecond);
  ASSERT_EQ(post_receive(right.get(), 2, buffer->sge(64, 8)), 0);
  for (const ibv_wc& completion : wait_for(cq.get(), 2))
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
}

TEST_F(SoftHca, RemoteAccessIsChecked) {
  struct Case {
    const char* what;
    int region_access;
    unsigned pair_access;
    uint64_t offset;
    uint32_t key_change;
    ibv_wr_opcode opcode;
  };
  const Case cases[] = {
      {"wrong key", kAllRemote, kAllRemote, 0, 0x100, IBV_WR_RDMA_WRITE},
      {"past the end", kAllRemote, kAllRemote, 4090, 0, IBV_WR_RDMA_WRITE},
      {"region not writable", IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, kAllRemote, 0, 0,
       IBV_WR_RDMA_WRITE},
      {"queue pair not readable", kAllRemote, IBV_ACCESS_REMOTE_WRITE, 0, 0, IBV_WR_RDMA_READ},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.what);
    left.reset();
    right.reset();
    cq.reset();
    PairOptions options;
    options.access = each.pair_access;
    make_connection(options);
    const Buffer target(pd.get(), 4096, each.region_access);
    Send send{each.opcode, 1, buffer->sge(0, 8)};
    send.remote = reinterpret_cast<uint64_t>(target.bytes.data()) + each.offset;
    send.key = target.region->rkey + each.key_change;
    ASSERT_EQ(post_receive(right.get(), 2, buffer->sge(64, 8)), 0);
    ASSERT_EQ(post_send(left.get(), send), 0);
    for (const ibv_wc& completion : wait_for(cq.get(), 2)) {
      EXPECT_EQ(completion.status,
                completion.wr_id == 1 ? IBV_WC_REM_ACCESS_ERR : IBV_WC_WR_FLUSH_ERR);
    }
    EXPECT_EQ(state_of(left.get()), IBV_QPS_ERR);
    EXPECT_EQ(state_of(right.get()), IBV_QPS_ERR);
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(context.get(), &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
    EXPECT_EQ(event.element.qp, right.get());
    ibv_ack_async_event(&event);
  }
}

TEST_F(SoftHca, AMessageThatDoesNotFitIsAnErrorAtBothEnds) {
  make_connection();
  ASSERT_EQ(post_receive(right.get(), 1, buffer->sge(64, 8)), 0);
  ASSERT_EQ(post_send(left.get(), {IBV_WR_SEND, 2, buffer->sge(0, 9)}), 0);
  for (const ibv_wc& completion : wait_for(cq.get(), 2)) {
    EXPECT_EQ(completion.status,
              completion.wr_id == 1 ? IBV_WC_LOC_LEN_ERR : IBV_WC_REM_INV_REQ_ERR);
  }
}

TEST_F(SoftHca, ALocalKeyIsCheckedAndADeregisteredOneIsGone) {
  make_connection();
  auto gone = std::make_unique<Buffer>(pd.get(), 4096);
  const ibv_sge sge = gone->sge(0, 8);
  gone->region.reset();
  Send send = write(1, 0, 64, 8);
  send.sge = sge;
  ASSERT_EQ(post_send(left.get(), send), 0);
  EXPECT_EQ(wait_for(cq.get(), 1)[0].status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(SoftHca, RegistrationCostsTimePerPageAndChecksItsArguments) {
  constexpr size_t kPages = 2000;
  std::vector<uint8_t> memory(kPages * 4096);
  const uint64_t before = now_ns();
  const Region region = register_memory(pd.get(), memory.data(), memory.size(), kAllRemote);
  ASSERT_NE(region, nullptr);
  EXPECT_GE(now_ns() - before, kPages * kRegistrationNsPerPage);
  EXPECT_EQ(register_memory(pd.get(), memory.data(), 8, IBV_ACCESS_REMOTE_WRITE), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(register_memory(pd.get(), memory.data(), 8, IBV_ACCESS_ON_DEMAND), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(register_memory(pd.get(), nullptr, 4096, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, EFAULT);
}

TEST_F(SoftHca, BusyObjectsCannotBeDestroyed) {
  make_connection();
  EXPECT_EQ(ibv_destroy_cq(cq.get()), EBUSY);
  EXPECT_EQ(ibv_dealloc_pd(pd.get()), EBUSY);
}

TEST_F(SoftHca, AResizedCqKeepsItsCompletions) {
  make_connection({}, 15);
  uint64_t posted = 0;
  uint64_t polled = 0;
  for (const int depth : {63, 31, 255, 15, 127}) {
    for (int i = 0; i < 10; ++i, ++posted)
      ASSERT_EQ(post_send(left.get(), write(posted, 0, 64, 8)), 0);
    let_the_adapter_look();
    for (const ibv_wc& completion : wait_for(cq.get(), 3, 1)) ASSERT_EQ(completion.wr_id, polled++);
    ASSERT_EQ(ibv_resize_cq(cq.get(), depth), 0);
    EXPECT_EQ(cq->cqe, depth);
    for (const ibv_wc& completion : wait_for(cq.get(), 7)) ASSERT_EQ(completion.wr_id, polled++);
  }
}

TEST_F(SoftHca, AnOverrunCqTellsTheProgram) {
  PairOptions options;
  make_connection(options, 15);
  for (uint64_t id = 0; id < 20; ++id)
    ASSERT_EQ(post_receive(left.get(), id, buffer->sge(64, 8)), 0);
  EXPECT_EQ(soft_hca::fail_qp(left->qp_num, 0, 0), 20);
  ibv_async_event event{};
  ASSERT_EQ(ibv_get_async_event(context.get(), &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event.element.cq, cq.get());
  ibv_ack_async_event(&event);
  EXPECT_EQ(wait_for(cq.get(), 16).size(), 16U);
}

// A hundred thousand operations on several queue pairs and CQs, from several threads.
TEST_F(SoftHca, EveryCompletionArrivesOnceAndInOrder) {
  constexpr int kThreads = 2;
  constexpr size_t kPairsPerThread = 4;
  constexpr uint64_t kPerPair = 12'500;
  const auto work = [&] {
    const Queue own(ibv_create_cq(context.get(), 512, nullptr, nullptr, 0));
    Buffer memory(pd.get(), 65536);
    std::vector<Pair> senders;
    std::vector<Pair> receivers;
    std::map<uint32_t, uint64_t> sent;
    std::map<uint32_t, uint64_t> expected;
    for (size_t i = 0; i < kPairsPerThread; ++i) {
      senders.push_back(make_pair_end(pd.get(), own.get(), own.get(), {}));
      receivers.push_back(make_pair_end(pd.get(), own.get(), own.get(), {}));
      connect(senders[i].get(), receivers[i].get());
    }
    uint64_t left_over = 2 * kPairsPerThread * kPerPair;
    std::vector<ibv_wc> completions(32);
    for (const uint64_t end = now_ns() + 120 * kSecond; left_over != 0 && now_ns() < end;) {
      for (size_t i = 0; i < kPairsPerThread; ++i) {
        uint64_t& next = sent[senders[i]->qp_num];
        const uint64_t in_flight =
            next - std::min(expected[senders[i]->qp_num], expected[receivers[i]->qp_num]);
        for (uint64_t room = in_flight < 32 ? 32 - in_flight : 0; room != 0 && next < kPerPair;
             --room, ++next) {
          ASSERT_EQ(post_receive(receivers[i].get(), next, memory.sge(32768, 4096)), 0);
          ASSERT_EQ(
              post_send(senders[i].get(),
                        {IBV_WR_SEND, next, memory.sge(0, static_cast<uint32_t>(next % 4096))}),
              0);
        }
      }
      const int got = ibv_poll_cq(own.get(), 32, completions.data());
      ASSERT_GE(got, 0);
      for (int i = 0; i < got; ++i, --left_over) {
        const ibv_wc& completion = completions[static_cast<size_t>(i)];
        ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
        ASSERT_EQ(completion.wr_id, expected[completion.qp_num]++);
        if (completion.opcode == IBV_WC_RECV) {
          ASSERT_EQ(completion.byte_len, completion.wr_id % 4096);
        }
      }
    }
    EXPECT_EQ(left_over, 0U);
    ibv_wc extra{};
    EXPECT_EQ(ibv_poll_cq(own.get(), 1, &extra), 0);
  };
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
}

// One call of the verbs ioctl with the given attributes; returns errno.
int raw_ioctl(int fd, uint16_t object, uint16_t method, std::vector<ib_uverbs_attr> attributes) {
  std::vector<std::byte> memory(sizeof(ib_uverbs_ioctl_hdr) +
                                attributes.size() * sizeof(ib_uverbs_attr));
  ib_uverbs_ioctl_hdr header{};
  header.length = static_cast<uint16_t>(memory.size());
  header.object_id = object;
  header.method_id = method;
  header.num_attrs = static_cast<uint16_t>(attributes.size());
  std::memcpy(memory.data(), &header, sizeof(header));
  if (!attributes.empty()) {
    std::memcpy(memory.data() + sizeof(header), attributes.data(),
                attributes.size() * sizeof(ib_uverbs_attr));
  }
  return ::ioctl(fd, RDMA_VERBS_IOCTL, memory.data()) == 0 ? 0 : errno;
}

ib_uverbs_attr attribute(uint16_t id, uint64_t data, uint16_t length, uint16_t flags) {
  ib_uverbs_attr result{};
  result.attr_id = id;
  result.len = length;
  result.flags = flags;
  result.data = data;
  return result;
}

TEST_F(SoftHca, RefusesWhatItDoesNotKnow) {
  const int fd = context->cmd_fd;
  const auto command = [](uint32_t number) {
    return attribute(UVERBS_ATTR_WRITE_CMD, number, 8, UVERBS_ATTR_F_MANDATORY);
  };
  EXPECT_EQ(raw_ioctl(fd, UVERBS_OBJECT_CQ, 0, {}), EPROTONOSUPPORT);
  EXPECT_EQ(raw_ioctl(fd, 0, 0, {}), EINVAL) << "no command";
  EXPECT_EQ(raw_ioctl(fd, 0, 0, {command(IB_USER_VERBS_CMD_QUERY_DEVICE)}), ENOSPC);
  EXPECT_EQ(raw_ioctl(fd, 0, 0, {command(IB_USER_VERBS_CMD_CREATE_AH)}), EOPNOTSUPP);
  EXPECT_EQ(raw_ioctl(fd, 0, 0, {command(999)}), EINVAL);
  const auto unknown = attribute(77, 0, 0, UVERBS_ATTR_F_MANDATORY);
  EXPECT_EQ(raw_ioctl(fd, 0, 0, {command(IB_USER_VERBS_CMD_QUERY_DEVICE), unknown}),
            EPROTONOSUPPORT);
  int argument = 0;
  EXPECT_EQ(::ioctl(fd, 0x12345678, &argument), -1);
  EXPECT_EQ(errno, ENOTTY);

  ibv_srq_init_attr srq{};
  srq.attr.max_wr = 40'000;
  srq.attr.max_sge = 1;
  EXPECT_EQ(ibv_create_srq(pd.get(), &srq), nullptr);
  EXPECT_EQ(errno, EINVAL);
  cq.reset(ibv_create_cq(context.get(), 16, nullptr, nullptr, 0));
  for (const ibv_qp_type type : {IBV_QPT_UC, IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND}) {
    ibv_qp_init_attr other{};
    other.qp_type = type;
    other.send_cq = other.recv_cq = cq.get();
    other.cap = {16, 16, 1, 1, 0};
    EXPECT_EQ(ibv_create_qp(pd.get(), &other), nullptr) << type;
  }
  EXPECT_EQ(ibv_create_cq(context.get(), 16, nullptr, nullptr, 9), nullptr) << "no such vector";
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 7 << 20), MAP_FAILED);
}

TEST_F(SoftHca, AnUnsupportedSendEndsInAnErrorNotInSilence) {
  make_connection();
  Send send = write(1, 0, 64, 8);
  send.opcode = IBV_WR_SEND_WITH_INV;
  ASSERT_EQ(post_send(left.get(), send), 0);
  EXPECT_EQ(wait_for(cq.get(), 1)[0].status, IBV_WC_LOC_QP_OP_ERR);
}

// libmlx5 cannot free what the program did not destroy.
class LeaksAllowed {
 public:
#ifdef POLLGAP_LEAK_CHECKED
  LeaksAllowed() { __lsan_disable(); }
  ~LeaksAllowed() { __lsan_enable(); }
#else
  LeaksAllowed() {}  // not trivial, so that it is used for its effect
#endif
};

TEST_F(SoftHca, ClosingTheDeviceDestroysWhatIsLeft) {
  const LeaksAllowed leaks;
  ibv_context* other = open_device().release();
  ASSERT_NE(other, nullptr);
  ibv_pd* domain = ibv_alloc_pd(other);
  ibv_cq* queue = ibv_create_cq(other, 16, nullptr, nullptr, 0);
  Pair qp = make_pair_end(domain, queue, queue, {});
  ASSERT_NE(qp, nullptr);
  const uint32_t number = qp.release()->qp_num;
  EXPECT_EQ(soft_hca::fail_qp(number, 0, 0), 0);
  EXPECT_EQ(ibv_close_device(other), 0);
  EXPECT_EQ(soft_hca::fail_qp(number, 0, 0), -1);
}

TEST_F(SoftHca, ASecondStartIsRefused) { EXPECT_NE(soft_hca::start({}), ""); }

// What start() leaves on disk, in processes of their own.

std::string run_self(const char* mode, int* status) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  const char* arguments[] = {"soft_hca_test", mode, nullptr};
  pid_t child = 0;
  EXPECT_EQ(posix_spawn(&child, "/proc/self/exe", &actions, nullptr, const_cast<char**>(arguments),
                        environ),
            0);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string output;
  char byte = 0;
  while (read(ends[0], &byte, 1) == 1 && byte != '\n') output.push_back(byte);
  close(ends[0]);
  waitpid(child, status, 0);
  return output;
}

TEST(SoftHcaProcess, ItsSysfsTreeGoesWithItHoweverItEnds) {
  if (soft_hca::sysfs_path().empty()) GTEST_SKIP() << "may not mount one";
  for (const char* mode : {"--start", "--start-and-die"}) {
    int status = 0;
    const std::string path = run_self(mode, &status);
    EXPECT_EQ(WIFSIGNALED(status), std::string(mode) == "--start-and-die");
    ASSERT_NE(path, "");
    EXPECT_FALSE(std::filesystem::exists(path)) << path;
  }
}

// What libibverbs and its users take for /sys.
std::string in_sysfs(const std::string& path) {
  const char* sysfs = std::getenv("SYSFS_PATH");
  return (sysfs != nullptr ? sysfs : "/sys") + ("/" + path);
}

int64_t counter_in_sysfs(const char* name) {
  const std::string path = in_sysfs(std::string("class/infiniband/mlx5_0/ports/1/") + name);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -errno;
  char text[32] = {};
  const ssize_t length = read(fd, text, sizeof(text) - 1);
  close(fd);
  return length > 0 ? std::atoll(text) : -EIO;
}

TEST_F(SoftHca, ItsCountersAreInSysfs) {
  make_connection();
  const int64_t before = counter_in_sysfs("counters/port_xmit_packets");
  ASSERT_GE(before, 0);
  EXPECT_EQ(counter_in_sysfs("counters/nonsense"), -ENOENT);
  ASSERT_EQ(post_send(left.get(), write(1, 0, 64, 8)), 0);
  wait_for(cq.get(), 1);
  for (const uint64_t end = now_ns() + 10 * kSecond;
       counter_in_sysfs("counters/port_xmit_packets") <= before;) {
    ASSERT_LT(now_ns(), end);
  }
}

// What is no part of the tree is as ever.
TEST_F(SoftHca, OtherDirectoriesAreListed) {
  DIR* directory = opendir("/proc/self/task");
  ASSERT_NE(directory, nullptr);
  EXPECT_GE(dirfd(directory), 0);
  int entries = 0;
  while (readdir(directory) != nullptr) ++entries;
  EXPECT_GE(entries, 4);  // ".", "..", this thread, the adapter's
  EXPECT_EQ(closedir(directory), 0);
  EXPECT_EQ(opendir(in_sysfs("nonsense").c_str()), nullptr);
  EXPECT_EQ(errno, ENOENT);
}

TEST(SoftHcaProcess, AForkedChildNeitherHasNorRemovesTheAdapter) {
  const pid_t child = fork();
  if (child == 0) {
    const bool gone =
        soft_hca::fail_qp(1, 0, 0) == -1 && open("/dev/infiniband/uverbs0", O_RDWR) < 0;
    soft_hca::stop();
    _exit(gone ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_GE(counter_in_sysfs("counters/port_xmit_packets"), 0);
}

TEST(SoftHcaProcess, DoesNothingBeforeStart) {
  int status = 0;
  EXPECT_EQ(run_self("--no-start", &status), "nothing");
}

TEST(SoftHcaProcess, ACpuThatIsNotThereIsNamed) {
  int status = 0;
  EXPECT_NE(run_self("--bad-cpu", &status).find("CPU 1000"), std::string::npos);
}

// As a process has them that is not root's.
bool drop_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  return syscall(SYS_capset, &header, none) == 0;
}

int no_start() {
  const bool nothing = std::getenv("SYSFS_PATH") == nullptr &&
                       (access("/dev/infiniband/uverbs0", F_OK) == 0 ||
                        (open("/dev/infiniband/uverbs0", O_RDWR) < 0 && errno == ENOENT)) &&
                       soft_hca::fail_qp(1, 0, 0) == -1;
  std::puts(nothing ? "nothing" : "something");
  return 0;
}

}  // namespace
}  // namespace pollgap

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "--no-start") {
    unsetenv("SYSFS_PATH");
    return pollgap::no_start();
  }
  pollgap::soft_hca::Options options;
  if (mode == "--bad-cpu") {
    options.cpu = 1000;
    std::puts(pollgap::soft_hca::start(options).c_str());
    return 0;
  }
  if (mode == "--unprivileged" && !pollgap::drop_capabilities()) return 1;
  options.spin = mode != "--sleep" && mode != "--unprivileged";
  options.real_time = true;  // where it sleeps
  options.registration_ns_per_page = pollgap::kRegistrationNsPerPage;
  options.fabric = "soft-hca-test-" + std::to_string(getpid());
  options.log = pollgap::soft_hca_log();
  const std::string problem = pollgap::soft_hca::start(options);
  if (!problem.empty()) {
    std::fprintf(stderr, "soft_hca_test: %s\n", problem.c_str());
    return 1;
  }
  if (mode.rfind("--start", 0) == 0) {
    std::puts(pollgap::soft_hca::sysfs_path().c_str());
    std::fflush(stdout);
    if (mode == "--start-and-die") raise(SIGKILL);
    return 0;
  }
  return RUN_ALL_TESTS();
}
