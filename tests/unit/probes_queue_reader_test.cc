// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>

#include "probes/queue_reader.h"
#include "probes/readable_queues.h"
#include "tests/unit/probes_synthetic_mlx5.h"

namespace pollgap {
namespace {

// Reads the memory of the test, which outlives it.
class Borrowed : public MemoryReader {
 public:
  explicit Borrowed(MemoryReader& memory) : memory_(memory) {}
  size_t read(uint64_t address, std::span<std::byte> out) override {
    return memory_.read(address, out);
  }

 private:
  MemoryReader& memory_;
};

struct Layouts {
  const CqLayout* cq;
  const SendQueueLayout* sends;
  uint32_t entry_bytes;
};

class QueueReaderTest : public testing::TestWithParam<Layouts> {
 protected:
  static constexpr uint32_t consumed = 0xffffff00;

  void SetUp() override {
    mlx5.put_all(consumed);
    ContextInfo context;
    context.provider = "/usr/lib/libmlx5.so.1.24.44.0";
    context.cqs.push_back(mlx5.cq_info());
    context.qps.push_back(mlx5.qp_info());
    const auto found = find_readable_queues(memory, memory.map(), std::span(&context, 1));
    ASSERT_EQ(found.cqs.size(), 1u);
    queues = found.cqs[0];
    ASSERT_EQ(queues.layout, GetParam().cq);
    ASSERT_EQ(queues.sends.size(), 1u);
    reader.add(queues.ring, *queues.layout, queues.sends);
  }

  CqReading look() {
    reader.read();
    return reader.cq(0);
  }

  SyntheticMemory memory;
  SyntheticMlx5 mlx5{memory, *GetParam().cq, *GetParam().sends, GetParam().entry_bytes};
  ReadableCq queues;
  QueueReader reader{std::make_unique<Borrowed>(memory)};
};

TEST_P(QueueReaderTest, WhoOwnsTheNextEntry) {
  EXPECT_EQ(look().next, NextCqe::unknown) << "the first look does not know which is next";
  mlx5.put_entry(consumed, 15);
  EXPECT_EQ(look().next, NextCqe::absent) << "invalid: never written";
  mlx5.put_entry(consumed + SyntheticMlx5::cq_entries, 0);
  EXPECT_EQ(look().next, NextCqe::absent) << "of the round before";
  mlx5.put_entry(consumed, 0);
  const CqReading ready = look();
  EXPECT_TRUE(ready.intact);
  EXPECT_EQ(ready.consumer_index, consumed);
  EXPECT_EQ(ready.next, NextCqe::ready);
  mlx5.put_entry(consumed, 13);
  EXPECT_EQ(look().next, NextCqe::error);
  mlx5.put_consumed(consumed + 300);  // past 2^32, into another round
  EXPECT_EQ(look().next, NextCqe::unknown);
  mlx5.put_entry(consumed + 300, 2);
  EXPECT_EQ(look().next, NextCqe::ready);
}

TEST_P(QueueReaderTest, ACqThatIsNotAsItWasVerified) {
  EXPECT_TRUE(look().intact);
  memory.put(SyntheticMlx5::buffer, SyntheticMlx5::ring + 0x100);
  EXPECT_FALSE(look().intact) << "another ring";
  memory.put(SyntheticMlx5::buffer, SyntheticMlx5::ring);
  EXPECT_TRUE(look().intact);
  memory.put(SyntheticMlx5::cq, uint64_t{0});
  EXPECT_FALSE(look().intact) << "freed memory";
  memory.put(SyntheticMlx5::cq, SyntheticMlx5::context);
  memory.put<int>(SyntheticMlx5::cq + 28, 1023);
  EXPECT_FALSE(look().intact) << "resized";
  EXPECT_FALSE(find_again(memory, memory.map(), queues))
      << "the ring does not fit into its mapping";
  memory.put<int>(SyntheticMlx5::cq + 28, 127);
  const auto again = find_again(memory, memory.map(), queues);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->entries, 128u);
  memory.put(SyntheticMlx5::cq, SyntheticMlx5::context + 8);
  EXPECT_FALSE(find_again(memory, memory.map(), queues));
}

TEST_P(QueueReaderTest, UnmappedMemory) {
  EXPECT_TRUE(look().intact);
  memory.bytes().resize(SyntheticMlx5::ring - SyntheticMemory::heap);
  EXPECT_FALSE(look().intact);
  memory.bytes().clear();
  EXPECT_FALSE(look().intact);
  EXPECT_FALSE(reader.signaled(0, 0));
}

TEST_P(QueueReaderTest, IndicesOfSends) {
  mlx5.put_indices(5, 0xfffffffe);
  look();
  ASSERT_EQ(reader.sends(0).size(), 1u);
  EXPECT_EQ(reader.sends(0)[0].outstanding(), 7u);
  mlx5.put_indices(70, 0);
  look();
  EXPECT_EQ(reader.sends(0)[0].outstanding(), 0u) << "more than the queue takes";
}

TEST_P(QueueReaderTest, SendsThatAskForACompletion) {
  // Requests 0 to 9, of two blocks each, the last three outstanding; around the ring's end.
  const uint32_t first = 0xfff4;
  for (uint32_t i = 0; i < 10; ++i) mlx5.put_request(i, first + 2 * i, i % 2 == 0);
  mlx5.put_next_block(first + 20);
  mlx5.put_indices(10, 7);
  auto sends = reader.signaled(0, 0);
  ASSERT_TRUE(sends);
  EXPECT_EQ(sends->count, 1u);
  EXPECT_EQ(sends->oldest, 1u);
  mlx5.put_indices(10, 10);
  EXPECT_EQ(reader.signaled(0, 0)->count, 0u);
  mlx5.put_indices(10, 0);
  EXPECT_EQ(reader.signaled(0, 0)->count, 5u);
  // What lies in the list by chance is no request.
  memory.put(SyntheticMlx5::heads + uint64_t{(first + 1) % 64} * 4, uint32_t{8});
  memory.put(SyntheticMlx5::send_ring + uint64_t{(first + 1) % 64} * 64 + 11, uint8_t{2 << 2});
  EXPECT_EQ(reader.signaled(0, 0)->count, 5u);
  memory.put(SyntheticMlx5::qp, uint64_t{0});
  EXPECT_FALSE(reader.signaled(0, 0)) << "freed memory";
}

TEST_P(QueueReaderTest, EachInvariantOfASendQueueCounts) {
  const SendQueueLayout& layout = *GetParam().sends;
  const uint64_t queue = SyntheticMlx5::qp + layout.send_queue;
  const auto holds = [&] {
    return find_send_queue(memory, memory.map(), mlx5.qp_info(), layout).has_value();
  };
  EXPECT_TRUE(holds());
  for (const uint32_t blocks : {0u, 48u, 1u << 17}) {
    memory.put(queue + 28, blocks);
    EXPECT_FALSE(holds()) << blocks << " blocks";
  }
  memory.put(queue + 28, SyntheticMlx5::send_blocks);
  mlx5.put_indices(66, 1);
  EXPECT_FALSE(holds());
  mlx5.put_indices(3, 1);
  mlx5.put_next_block(0x10000 + 20);
  EXPECT_TRUE(holds());
  memory.put(queue + 44, 0x10000 + 20 + 65);
  EXPECT_FALSE(holds()) << "too far ahead of its doorbell";
  mlx5.put_next_block(20);
  memory.put(queue - 8, SyntheticMemory::provider);
  EXPECT_FALSE(holds());
  memory.put(queue - 8, SyntheticMlx5::send_ring);
  memory.put(queue + 8, uint64_t{16});
  EXPECT_FALSE(holds());
}

TEST(ReadableQueues, WhereNoLayoutFitsTheReasonIsTold) {
  SyntheticMemory memory;
  std::array<ContextInfo, 2> contexts;
  contexts[0].provider = "/usr/lib/libmlx5.so.1";
  contexts[1].provider = "/usr/lib/libefa.so.1";
  for (ContextInfo& context : contexts) context.cqs.push_back({.address = SyntheticMlx5::cq});
  const auto found = find_readable_queues(memory, memory.map(), contexts);
  EXPECT_TRUE(found.cqs.empty());
  ASSERT_EQ(found.refused.size(), 2u);
  EXPECT_NE(found.refused[0].reason.find("libefa"), std::string::npos);
  EXPECT_NE(found.refused[1].reason.find("layouts of mlx5's CQs"), std::string::npos);
}

std::vector<Layouts> all_layouts() {
  std::vector<Layouts> all;
  for (const SendQueueLayout& sends : mlx5_send_queue_layouts())
    for (const uint32_t entry_bytes : {64u, 128u})
      all.push_back({&mlx5_cq_layouts()[0], &sends, entry_bytes});
  all.push_back({&mlx5_cq_layouts()[1], &mlx5_send_queue_layouts().back(), 64});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Mlx5, QueueReaderTest, testing::ValuesIn(all_layouts()));

}  // namespace
}  // namespace pollgap
