// SPDX-License-Identifier: Apache-2.0
#include <endian.h>
#include <gtest/gtest.h>

#include "probes/cq_layout.h"
#include "tests/unit/probes_synthetic_memory.h"

namespace pollgap {
namespace {

using Memory = SyntheticMemory;

class CqLayouts : public testing::TestWithParam<const CqLayout*> {
 protected:
  static constexpr uint64_t context = Memory::heap + 0x1000, cq = Memory::heap + 0x3000,
                            buffer = Memory::heap + 0x4000, doorbell = Memory::heap + 0x4800,
                            ring = Memory::heap + 0x8000;
  static constexpr uint32_t consumed = 0x1234567;

  void SetUp() override {
    memory.put_cq(cq, context, 0, false);
    memory.put(cq + layout.consumer_index, consumed);
    memory.put(cq + layout.active_buffer, buffer);
    memory.put(cq + layout.doorbell_record, doorbell);
    memory.put(cq + layout.entry_bytes, 64);
    memory.put(buffer, ring);
    memory.put(doorbell, htobe32(consumed & 0xffffff));
    info.provider = provider;
    info.cqs.push_back({.address = cq, .context = context, .handle = 3, .cqe = 255});
  }

  bool holds() { return has_layout(memory, memory.map(), info.cqs[0], layout); }
  const CqLayout* found() {
    return find_cq_layout(memory, memory.map(), std::span(&info, 1), provider);
  }

  const CqLayout& layout = *GetParam();
  const std::string provider = "/usr/lib/libmlx5.so.1.24.44.0";
  Memory memory;
  ContextInfo info;
};

TEST_P(CqLayouts, HasAllItsInvariants) {
  EXPECT_TRUE(holds());
  EXPECT_EQ(found(), &layout);
}

TEST_P(CqLayouts, ThePollFunctionMayBeAheadOfItsDoorbellByLessThanTheCqHas) {
  memory.put(doorbell, htobe32((consumed - 255) & 0xffffff));
  EXPECT_TRUE(holds());
  memory.put(doorbell, htobe32((consumed - 256) & 0xffffff));
  EXPECT_FALSE(holds());
  memory.put(doorbell, htobe32((consumed + 1) & 0xffffff));
  EXPECT_FALSE(holds());
}

TEST_P(CqLayouts, EachInvariantCounts) {
  memory.put(cq + layout.entry_bytes, 32);
  EXPECT_FALSE(holds());
  memory.put(cq + layout.entry_bytes, 128);
  EXPECT_TRUE(holds());
  memory.put(buffer, Memory::heap + (1 << 16) - 4096);
  EXPECT_FALSE(holds()) << "the ring does not end in its mapping";
  memory.put(buffer, Memory::provider);
  EXPECT_FALSE(holds()) << "the ring is not writable";
  memory.put(buffer, ring);
  memory.put<uint64_t>(cq + layout.active_buffer, 0);
  EXPECT_FALSE(holds());
  memory.put(cq + layout.active_buffer, buffer);
  memory.put<uint64_t>(cq + layout.doorbell_record, 16);
  EXPECT_FALSE(holds());
  memory.put(cq + layout.doorbell_record, doorbell);
  info.cqs[0].cqe = 200;
  EXPECT_FALSE(holds()) << "a CQ has a power of two of entries";
}

TEST_P(CqLayouts, OneCqThatDiffersIsEnoughToDoubt) {
  info.cqs.push_back({.address = cq + 0x800, .context = context, .handle = 4, .cqe = 255});
  EXPECT_EQ(found(), nullptr);
}

TEST_P(CqLayouts, NotWithoutACqNorOfAnotherProvider) {
  info.cqs.clear();
  EXPECT_EQ(found(), nullptr);
  EXPECT_EQ(find_cq_layout(memory, memory.map(), std::span(&info, 1), "/usr/lib/libefa.so.1"),
            nullptr);
}

std::vector<const CqLayout*> all_layouts() {
  std::vector<const CqLayout*> all;
  for (const CqLayout& layout : mlx5_cq_layouts()) all.push_back(&layout);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Mlx5, CqLayouts, testing::ValuesIn(all_layouts()));

}  // namespace
}  // namespace pollgap
