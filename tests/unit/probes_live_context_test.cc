// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>

#include "probes/live_context.h"
#include "tests/unit/probes_synthetic_memory.h"

namespace pollgap {
namespace {

using Memory = SyntheticMemory;

class LiveContexts : public testing::Test {
 protected:
  static constexpr uint64_t context = Memory::heap + 0x1000, device = Memory::heap + 0x2000,
                            cq = Memory::heap + 0x3000, extended_cq = Memory::heap + 0x4000,
                            qp = Memory::heap + 0x5000, domain = Memory::heap + 0x6000,
                            channel = Memory::heap + 0x7000;

  void SetUp() override {
    memory.put_context(context, device);
    memory.put(domain, context);
    memory.put(channel, context);
    memory.put(channel + offsetof(ibv_comp_channel, fd), Memory::channel_fd);
    memory.put_cq(cq, context, 0, false);
    memory.put_cq(extended_cq, context, channel, true);
    memory.put_qp(qp, context, domain, cq);
  }

  LiveScan scan(const LiveScanOptions& options = {}) {
    const MemoryMap map = memory.map();
    return scan_live_contexts(memory, map, {Memory::command_fd, Memory::channel_fd}, options);
  }

  Memory memory;
};

TEST_F(LiveContexts, FindsContextQueuesAndPairs) {
  const LiveScan found = scan();
  ASSERT_EQ(found.contexts.size(), 1u);
  const ContextInfo& info = found.contexts[0].info;
  EXPECT_EQ(info.address, context);
  EXPECT_EQ(info.device, "mlx5_0");
  EXPECT_EQ(info.provider, "/usr/lib/libmlx5.so.1.24.44.0");
  EXPECT_EQ(info.poll_cq, Memory::provider + 0x100);
  EXPECT_EQ(info.post_send, Memory::provider + 0x200);
  EXPECT_EQ(info.post_recv, Memory::provider + 0x300);
  EXPECT_EQ(info.cmd_fd, Memory::command_fd);
  ASSERT_EQ(info.cqs.size(), 2u);
  EXPECT_EQ(info.cqs[0].address, cq);
  EXPECT_EQ(info.cqs[0].cqe, 255);
  EXPECT_EQ(info.cqs[0].handle, 3u);
  EXPECT_FALSE(info.cqs[0].extended);
  EXPECT_EQ(info.cqs[1].address, extended_cq);
  EXPECT_EQ(info.cqs[1].channel, channel);
  EXPECT_TRUE(info.cqs[1].extended);
  ASSERT_EQ(info.qps.size(), 1u);
  EXPECT_EQ(info.qps[0].address, qp);
  EXPECT_EQ(info.qps[0].qp_num, 77u);
  EXPECT_EQ(info.qps[0].send_cq, cq);
  EXPECT_EQ(info.qps[0].state, IBV_QPS_RTS);
  EXPECT_EQ(info.qps[0].type, IBV_QPT_RC);
  ASSERT_EQ(found.contexts[0].extended.size(), 1u);
  EXPECT_EQ(found.contexts[0].extended[0].start_poll, Memory::provider + 0x400);
  EXPECT_EQ(found.contexts[0].extended[0].next_poll, Memory::provider + 0x500);
  EXPECT_EQ(found.contexts[0].extended[0].end_poll, Memory::provider + 0x600);
  EXPECT_TRUE(found.notes.empty());
}

// Each invariant alone rules a context out.
TEST_F(LiveContexts, EveryInvariantCounts) {
  struct Damage {
    const char* what;
    uint64_t address, value;
  };
  const Damage damages[] = {
      {"size", context - 8, 12345},
      {"odd size", context - 8, 649},
      {"poll_cq nowhere", context + offsetof(ibv_context, ops.poll_cq), 0},
      {"poll_cq in data", context + offsetof(ibv_context, ops.poll_cq), Memory::provider + 0x10100},
      {"dummy post_send", context + offsetof(ibv_context, ops.post_send),
       Memory::libibverbs + 0x100},
      {"device", context + offsetof(ibv_context, device), 0xdead},
      {"device name", device + offsetof(ibv_device, name), 0x0102030405060708},
      {"no device name", device + offsetof(ibv_device, name), 0},
      {"vectors", context + offsetof(ibv_context, num_comp_vectors), UINT64_MAX},
      {"abi", context + offsetof(ibv_context, abi_compat), 0},
  };
  for (const Damage& damage : damages) {
    memory.clear();
    SetUp();
    memory.put(damage.address, damage.value);
    EXPECT_TRUE(scan().contexts.empty()) << damage.what;
  }
}

TEST_F(LiveContexts, ClosedContextIsPassedOver) {
  memory.put<int>(context + offsetof(ibv_context, cmd_fd), 99);
  const LiveScan found = scan();
  EXPECT_TRUE(found.contexts.empty());
  ASSERT_EQ(found.notes.size(), 1u);
  EXPECT_NE(found.notes[0].find("closed"), std::string::npos);
}

TEST_F(LiveContexts, OtherObjectsOfTheContextAreNoQueues) {
  const uint64_t mr = Memory::heap + 0x8000, pair = Memory::heap + 0x9000;
  // ibv_mr: context, pd, addr, length, handle, lkey, rkey; longer than 4 GiB.
  memory.put(mr, context);
  memory.put(mr + 8, domain);
  memory.put<uint64_t>(mr + 24, uint64_t{5} << 32);
  memory.put<uint32_t>(mr + 32, 1);
  memory.put<uint32_t>(mr + 36, 0x1234);
  // A QP whose queues are no CQs.
  memory.put_qp(pair, context, domain, mr);
  const LiveScan found = scan();
  ASSERT_EQ(found.contexts.size(), 1u);
  EXPECT_EQ(found.contexts[0].info.cqs.size(), 2u);
  EXPECT_EQ(found.contexts[0].info.qps.size(), 1u);
}

TEST_F(LiveContexts, ChannelMustBeOne) {
  memory.put(channel + offsetof(ibv_comp_channel, fd), 99);
  const LiveScan found = scan();
  ASSERT_EQ(found.contexts.size(), 1u);
  EXPECT_EQ(found.contexts[0].info.cqs.size(), 1u);
}

TEST_F(LiveContexts, LimitsAreKeptAndSaid) {
  Memory large(uint64_t{8} << 20);
  large.put_context(Memory::heap + (7 << 20), Memory::heap + 0x2000);
  const MemoryMap map = large.map();
  LiveScanOptions options;
  options.max_bytes = 2 << 20;
  const LiveScan found = scan_live_contexts(large, map, {Memory::command_fd}, options);
  EXPECT_TRUE(found.contexts.empty());
  EXPECT_LE(found.scanned_bytes, options.max_bytes);
  EXPECT_LE(large.bytes_read, options.max_bytes);
  ASSERT_EQ(found.notes.size(), 1u);
  EXPECT_NE(found.notes[0].find("2 MiB"), std::string::npos);
  options.max_bytes = 64 << 20;
  EXPECT_EQ(scan_live_contexts(large, map, {Memory::command_fd}, options).contexts.size(), 1u);
}

// Reservations of terabytes, as sanitizers make, must not be walked page by page.
TEST_F(LiveContexts, LimitOfAddressSpace) {
  memory.reserve(uint64_t{1} << 44);
  LiveScanOptions options;
  options.max_span_bytes = uint64_t{1} << 30;
  const LiveScan found = scan(options);
  EXPECT_EQ(found.contexts.size(), 1u);  // in the heap, which comes first
  ASSERT_EQ(found.notes.size(), 1u);
  EXPECT_NE(found.notes[0].find("beyond"), std::string::npos);
  EXPECT_LE(memory.resident_asked, 2 * options.max_span_bytes + (2 << 20));
}

TEST_F(LiveContexts, TooManyObjectsAreCutOff) {
  LiveScanOptions options;
  options.max_objects = 2;
  const LiveScan found = scan(options);
  ASSERT_EQ(found.contexts.size(), 1u);
  EXPECT_EQ(found.contexts[0].info.cqs.size() + found.contexts[0].info.qps.size(), 2u);
  EXPECT_FALSE(found.notes.empty());
}

TEST_F(LiveContexts, HostileMemoryDoesNoHarm) {
  std::mt19937_64 random(7);
  const uint64_t tempting[] = {
      ~uint64_t{0}, context,        Memory::heap, Memory::provider,      cq, qp,
      648,          UINT64_MAX - 7, channel,      Memory::heap + 0xfff8, 1,  0};
  for (int round = 0; round < 300; ++round) {
    memory.clear();
    SetUp();
    for (int i = 0; i < 2000; ++i) {
      const uint64_t address = Memory::heap + random() % (memory.bytes().size() / 8) * 8;
      memory.put(address, tempting[random() % std::size(tempting)]);
    }
    const LiveScan found = scan();
    EXPECT_LE(found.contexts.size(), 64u);
  }
}

TEST(LiveContextsAtTheEdge, ObjectsCutOffByTheEndOfMemory) {
  for (uint64_t end = 8; end <= 0x400; end += 8) {
    Memory memory(0x2000);
    const uint64_t context = Memory::heap + 0x1000;
    memory.put_context(context, Memory::heap + 0x100);
    memory.bytes().resize(0x1000 + end - 8);
    const MemoryMap map = memory.map();
    const LiveScan found = scan_live_contexts(memory, map, {Memory::command_fd});
    EXPECT_EQ(found.contexts.size(), end - 8 >= sizeof(ibv_context) ? 1u : 0u) << end;
  }
  // And at the very first words of memory, where what is looked for lies before them.
  Memory memory(0x1000);
  memory.put(Memory::heap, ~uint64_t{0});
  const MemoryMap map = memory.map();
  EXPECT_TRUE(scan_live_contexts(memory, map, {}).contexts.empty());
}

}  // namespace
}  // namespace pollgap
