// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>

#include "probes/queue_reader.h"
#include "probes/readable_queues.h"
#include "tests/unit/probes_synthetic_mlx5.h"
#include "tests/unit/probes_synthetic_rxe.h"

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

class Mlx5QueueReader : public testing::TestWithParam<Layouts> {
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
    ASSERT_EQ(queues.layout, GetParam().cq->name);
    ASSERT_EQ(queues.sends.size(), 1u);
    reader.add(queues);
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

TEST_P(Mlx5QueueReader, WhoOwnsTheNextEntry) {
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
  mlx5.put_error(consumed, {.syndrome = 0x15, .vendor = 0x81, .qp_num = 0xabcdef});
  const CqReading error = look();
  EXPECT_EQ(error.next, NextCqe::error);
  EXPECT_EQ(
      error.error,
      (CompletionError{
          .status = IBV_WC_RETRY_EXC_ERR, .vendor_error = 0x81, .qp_num = 0xabcdef, .wr_id = 0}));
  mlx5.put_consumed(consumed + 300);  // past 2^32, into another round
  EXPECT_EQ(look().next, NextCqe::unknown);
  mlx5.put_entry(consumed + 300, 2);
  EXPECT_EQ(look().next, NextCqe::ready);
}

TEST_P(Mlx5QueueReader, TheStampOfTheNextEntry) {
  const auto put = [this](uint32_t index, uint64_t stamp) {
    mlx5.put_stamp(index, stamp);
    mlx5.put_entry(index, 0);
  };
  put(consumed, 70);
  EXPECT_FALSE(look().next_stamp) << "the first look does not know which is next";
  EXPECT_EQ(look().next_stamp, 70u) << "ready";
  put(consumed + 1, 71);
  mlx5.put_consumed(consumed + 2);
  EXPECT_EQ(look().next_stamp, 70u) << "consumed meanwhile, as the one after it";
  EXPECT_FALSE(look().next_stamp) << "the next is not there";
  put(consumed + 2, 0);
  EXPECT_FALSE(look().next_stamp) << "an entry without one";
  put(consumed + 2, uint64_t{1'800'000'000} << 32 | 999'999'999);
  EXPECT_EQ(look().next_stamp, 1'800'000'000'999'999'999u) << "UTC";
  put(consumed + 2, uint64_t{1'800'000'000} << 32 | 1'000'000'000);
  EXPECT_EQ(look().next_stamp, uint64_t{1'800'000'000} << 32 | 1'000'000'000) << "not UTC";
  mlx5.put_entry(consumed + 2, 0, 3);
  EXPECT_FALSE(look().next_stamp) << "compressed";
  mlx5.put_entry(consumed + 2, 13);
  EXPECT_FALSE(look().next_stamp) << "of an error: other things lie there";
  put(consumed + 2, 73);
  mlx5.put_consumed(consumed + 2 + SyntheticMlx5::cq_entries);
  EXPECT_FALSE(look().next_stamp) << "a round later: it may be another's";
}

// Entries come one after the other, and are consumed in any steps.
TEST_P(Mlx5QueueReader, NewStampsAreOfEntriesThatLooksSawCome) {
  constexpr uint32_t entries = SyntheticMlx5::cq_entries;
  for (uint32_t index = consumed - entries; index != consumed; ++index) mlx5.put_entry(index, 0);
  uint32_t produced = consumed, taken = consumed;
  uint64_t stamps = 0;
  uint32_t before = produced, random = 1;
  for (int i = 0; i < 4000; ++i) {
    random = random * 1664525 + 1013904223;
    // Slow, fast, and more than a round at a time.
    const uint32_t most = i < 1000 ? 2 : i < 3000 ? 60 : 2 * entries;
    for (uint32_t n = (random >> 8) % most; n > 0; --n) {
      if (produced - taken == entries) ++taken;
      mlx5.put_stamp(produced, uint64_t{produced - consumed} + 1);
      mlx5.put_entry(produced++, 0);
    }
    taken += (random >> 20) % (produced - taken + 1);
    mlx5.put_consumed(taken);
    const CqReading reading = look();
    if (reading.new_stamp) {
      ++stamps;
      const auto index = static_cast<uint32_t>(consumed + *reading.new_stamp - 1);
      EXPECT_GE(index - before, 0u);
      EXPECT_LT(index - before, produced - before) << "it had come before, or has not come";
    }
    if (i == 1000 || i == 3000) {
      EXPECT_GT(stamps, 100u) << "up to look " << i;
      stamps = 0;
    }
    before = produced;
  }
}

TEST_P(Mlx5QueueReader, ACqThatIsNotAsItWasVerified) {
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
  EXPECT_EQ(again->ring.entries, 128u);
  memory.put(SyntheticMlx5::cq, SyntheticMlx5::context + 8);
  EXPECT_FALSE(find_again(memory, memory.map(), queues));
}

TEST_P(Mlx5QueueReader, UnmappedMemory) {
  EXPECT_TRUE(look().intact);
  memory.bytes().resize(SyntheticMlx5::ring - SyntheticMemory::heap);
  EXPECT_FALSE(look().intact);
  memory.bytes().clear();
  EXPECT_FALSE(look().intact);
  EXPECT_FALSE(reader.signaled(0, 0));
}

TEST_P(Mlx5QueueReader, IndicesOfSends) {
  mlx5.put_indices(5, 0xfffffffe);
  look();
  ASSERT_EQ(reader.sends(0).size(), 1u);
  EXPECT_EQ(reader.sends(0)[0].outstanding(), 7u);
  mlx5.put_indices(70, 0);
  look();
  EXPECT_EQ(reader.sends(0)[0].outstanding(), 0u) << "more than the queue takes";
}

TEST_P(Mlx5QueueReader, SendsThatAskForACompletion) {
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

TEST_P(Mlx5QueueReader, EachInvariantOfASendQueueCounts) {
  const SendQueueLayout& layout = *GetParam().sends;
  const uint64_t queue = SyntheticMlx5::qp + layout.send_queue;
  const auto holds = [&] {
    return find_mlx5_send_queue(memory, memory.map(), mlx5.qp_info(), layout).has_value();
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
  std::array<ContextInfo, 3> contexts;
  contexts[0].provider = "/usr/lib/libmlx5.so.1";
  contexts[1].provider = "/usr/lib/libefa.so.1";
  contexts[2].provider = "/usr/lib/libibverbs/librxe-rdmav34.so";
  for (ContextInfo& context : contexts) context.cqs.push_back({.address = SyntheticMlx5::cq});
  const auto found = find_readable_queues(memory, memory.map(), contexts);
  EXPECT_TRUE(found.cqs.empty());
  ASSERT_EQ(found.refused.size(), 3u);
  EXPECT_NE(found.refused[0].reason.find("libefa"), std::string::npos);
  EXPECT_NE(found.refused[1].reason.find("ring of rxe's"), std::string::npos);
  EXPECT_NE(found.refused[2].reason.find("layouts of mlx5's CQs"), std::string::npos);
}

std::vector<Layouts> all_layouts() {
  std::vector<Layouts> all;
  for (const SendQueueLayout& sends : mlx5_send_queue_layouts())
    for (const uint32_t entry_bytes : {64u, 128u})
      all.push_back({&mlx5_cq_layouts()[0], &sends, entry_bytes});
  all.push_back({&mlx5_cq_layouts()[1], &mlx5_send_queue_layouts().back(), 64});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Layouts, Mlx5QueueReader, testing::ValuesIn(all_layouts()));

// ---- rxe ----

class RxeQueueReader : public testing::Test {
 protected:
  RxeQueueReader() { rxe.put_all(); }

  ReadableQueues find() {
    ContextInfo context;
    context.provider = "/usr/lib/libibverbs/librxe-rdmav34.so";
    context.cqs.push_back(rxe.cq_info());
    context.qps.push_back(rxe.qp_info());
    return find_readable_queues(memory, SyntheticRxe::map(), std::span(&context, 1));
  }
  void add() {
    const auto found = find();
    ASSERT_EQ(found.cqs.size(), 1u);
    queues = found.cqs[0];
    ASSERT_EQ(queues.sends.size(), 1u);
    reader.add(queues);
  }
  CqReading look() {
    reader.read();
    return reader.cq(0);
  }
  SendIndices sends() { return reader.sends(0)[0]; }
  // Posts, completes and consumes a send, as `packet`.
  void send(uint32_t packet, bool consume = true) {
    rxe.post(IBV_SEND_SIGNALED);
    rxe.complete(packet);
    rxe.add_entry(SyntheticRxe::send);
    if (consume) rxe.consume();
  }

  SyntheticMemory memory{SyntheticRxe::bytes};
  SyntheticRxe rxe{memory};
  ReadableCq queues;
  QueueReader reader{std::make_unique<Borrowed>(memory)};
};

TEST_F(RxeQueueReader, WhereverTheProviderKeepsItsPointers) {
  for (const uint64_t in_cq : {144, 304, 480})
    for (const uint64_t in_qp : {144, 304, 480}) {
      memory.clear();
      rxe.in_cq = in_cq;
      rxe.in_qp = in_qp;
      rxe.put_all();
      const auto found = find();
      ASSERT_EQ(found.cqs.size(), 1u);
      EXPECT_EQ(found.cqs[0].ring.entries, SyntheticRxe::cq_entries);
      EXPECT_EQ(found.cqs[0].ring.ring, SyntheticRxe::cq_ring + 384);
      ASSERT_EQ(found.cqs[0].sends.size(), 1u);
      EXPECT_EQ(found.cqs[0].sends[0].ring, SyntheticRxe::send_ring + 384);
    }
}

TEST_F(RxeQueueReader, EachInvariantCounts) {
  const auto found_both = [this] {
    const auto found = find();
    return found.cqs.size() == 1 && found.cqs[0].sends.size() == 1;
  };
  const auto differs = [&](uint64_t address, auto value) {
    const auto before = *memory.load<decltype(value)>(address);
    memory.put(address, value);
    const bool found = found_both();
    memory.put(address, before);
    return !found;
  };
  ASSERT_TRUE(found_both());
  for (const auto& [pointer, ring] :
       {std::pair(SyntheticRxe::cq + rxe.in_cq, SyntheticRxe::cq_ring),
        std::pair(SyntheticRxe::qp + rxe.in_qp + 40, SyntheticRxe::send_ring)}) {
    EXPECT_TRUE(differs(pointer, ring + 8)) << "not where the mapping begins";
    EXPECT_TRUE(differs(pointer, SyntheticMemory::heap)) << "not a mapping of the device";
    EXPECT_TRUE(differs(pointer - 16, uint64_t{0x77000})) << "not what the kernel has given";
    EXPECT_TRUE(differs(pointer - 8, uint32_t{0x10000})) << "more than is mapped";
    EXPECT_TRUE(differs(ring, uint32_t{5})) << "entries too small";
    EXPECT_TRUE(differs(ring, uint32_t{40}));
    EXPECT_TRUE(differs(ring + 4, uint32_t{6})) << "no power of two";
    EXPECT_TRUE(differs(ring + 4, UINT32_MAX));
    EXPECT_TRUE(differs(ring + 4, uint32_t{1023})) << "does not fit";
    EXPECT_TRUE(differs(ring + 128, uint32_t{8})) << "producer outside of the ring";
    EXPECT_TRUE(differs(ring + 256, uint32_t{8}));
  }
  EXPECT_TRUE(differs(SyntheticRxe::cq_ring + 4, uint32_t{3})) << "not the entries of the ibv_cq";
  EXPECT_TRUE(differs(SyntheticRxe::qp + rxe.in_qp, uint64_t{0})) << "no receives, no shared queue";
}

TEST_F(RxeQueueReader, AQpWithASharedReceiveQueueHasOnlySends) {
  memory.put(SyntheticRxe::qp + offsetof(ibv_qp, srq), SyntheticMemory::heap + 64);
  memory.put(SyntheticRxe::qp + rxe.in_qp, uint64_t{0});
  add();
  EXPECT_EQ(queues.sends[0].ring, SyntheticRxe::send_ring + 384);
}

TEST_F(RxeQueueReader, TheNextEntry) {
  add();
  EXPECT_EQ(look().next, NextCqe::absent);
  rxe.add_entry(SyntheticRxe::receive);
  const CqReading ready = look();
  EXPECT_TRUE(ready.intact);
  EXPECT_EQ(ready.next, NextCqe::ready);
  EXPECT_EQ(ready.round_ns, SyntheticRxe::cq_entries * 500u);
  rxe.add_entry({.status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV, .qp_num = 77});
  rxe.consume();
  EXPECT_EQ(look().next, NextCqe::unknown) << "another entry was read";
  const CqReading error = look();
  EXPECT_EQ(error.next, NextCqe::error);
  EXPECT_EQ(error.error.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(error.error.qp_num, 77u);
  rxe.consume();
  EXPECT_EQ(look().next, NextCqe::absent);
}

TEST_F(RxeQueueReader, CountsAroundTheRing) {
  add();
  const uint32_t first = look().consumer_index;
  uint32_t consumed = 0;
  for (uint32_t packet = 0; packet < 50; ++packet) {
    for (uint32_t i = 0; i < packet % SyntheticRxe::cq_entries; ++i, ++consumed) send(packet + i);
    EXPECT_EQ(look().consumer_index - first, consumed);
    EXPECT_EQ(sends().outstanding(), 0u);
  }
}

// A thread that consumes nothing, and one that consumes whole rounds between two looks, whose
// entries all have the same contents.
TEST_F(RxeQueueReader, NothingConsumedIsToldFromAWholeRound) {
  add();
  send(100);
  send(101);
  look();
  EXPECT_FALSE(look().unmoved) << "no look before has read the last one consumed";
  EXPECT_TRUE(look().unmoved);
  send(102, false);
  EXPECT_FALSE(look().unmoved) << "it has not been consumed, but neither is that told yet";
  EXPECT_FALSE(look().unmoved);
  const CqReading before = look();
  EXPECT_TRUE(before.unmoved);
  for (uint32_t packet = 103; packet < 103 + SyntheticRxe::cq_entries; ++packet) send(packet);
  const CqReading after = look();
  EXPECT_EQ(after.consumer_index, before.consumer_index);
  EXPECT_FALSE(after.unmoved);
}

TEST_F(RxeQueueReader, ReceivesThatComeInAreNoMovement) {
  add();
  send(100);
  for (int i = 0; i < 3; ++i) look();
  rxe.add_entry(SyntheticRxe::receive);
  rxe.post(IBV_SEND_SIGNALED);
  EXPECT_TRUE(look().unmoved);
  EXPECT_EQ(sends().outstanding(), 1u);
  EXPECT_TRUE(sends().exact);
}

TEST_F(RxeQueueReader, WhatIsNoEvidence) {
  add();
  const auto settles = [this] {
    for (int i = 0; i < 3; ++i) look();
    return look().unmoved;
  };
  send(100);
  EXPECT_TRUE(settles());
  rxe.add_entry(SyntheticRxe::receive);
  rxe.consume();
  EXPECT_FALSE(settles()) << "the last one consumed is a receive";
  send(101);
  EXPECT_TRUE(settles());
  rxe.add_entry({.status = 0, .opcode = IBV_WC_SEND, .qp_num = 78});
  rxe.consume();
  EXPECT_FALSE(settles()) << "of a QP that is not known";
  rxe.add_entry({.status = IBV_WC_RETRY_EXC_ERR, .opcode = IBV_WC_SEND, .qp_num = 77});
  rxe.consume();
  EXPECT_FALSE(settles()) << "of a QP that completes without sending";
  rxe.post(IBV_SEND_SIGNALED, IBV_WR_BIND_MW);
  rxe.complete(0);
  rxe.add_entry({.status = 0, .opcode = IBV_WC_BIND_MW, .qp_num = 77});
  rxe.consume();
  EXPECT_FALSE(settles()) << "a request without a packet";
}

TEST_F(RxeQueueReader, AnotherEntryInThePlaceOfTheLastIsARound) {
  add();
  const auto receive = [this](uint64_t number) {
    rxe.add_entry({.number = number, .status = 0, .opcode = IBV_WC_RECV, .qp_num = 77});
    rxe.consume();
  };
  receive(1);
  look();
  const uint32_t before = look().consumer_index;
  for (uint64_t number = 2; number < 2 + SyntheticRxe::cq_entries; ++number) receive(number);
  EXPECT_EQ(look().consumer_index - before, SyntheticRxe::cq_entries);
}

TEST_F(RxeQueueReader, SendsCompletedByAWholeRound) {
  add();
  send(100);
  for (int i = 0; i < 3; ++i) look();
  rxe.post(0);
  look();
  EXPECT_TRUE(sends().exact);
  EXPECT_EQ(sends().outstanding(), 1u);
  for (uint32_t packet = 101; packet < 101 + SyntheticRxe::send_entries; ++packet) {
    rxe.complete(packet);
    rxe.post(0);
  }
  look();
  EXPECT_EQ(sends().outstanding(), 1u);
  EXPECT_FALSE(sends().exact);
}

TEST_F(RxeQueueReader, SendsThatAskForACompletion) {
  add();
  for (uint32_t packet = 0; packet < 6; ++packet) send(packet);  // the next are around the end
  EXPECT_EQ(reader.signaled(0, 0)->count, 0u) << "none is outstanding";
  rxe.post(0);
  rxe.post(IBV_SEND_INLINE);
  EXPECT_FALSE(reader.signaled(0, 0)) << "the QP may have all of them ask for one";
  rxe.post(IBV_SEND_SIGNALED);
  rxe.post(IBV_SEND_SIGNALED | IBV_SEND_INLINE);
  const auto sends = reader.signaled(0, 0);
  ASSERT_TRUE(sends);
  EXPECT_EQ(sends->count, 2u);
  EXPECT_EQ(sends->oldest, 2u);
  memory.put(SyntheticRxe::qp, uint64_t{0});
  EXPECT_FALSE(reader.signaled(0, 0)) << "freed memory";
}

TEST_F(RxeQueueReader, ACqThatIsNotAsItWasVerified) {
  add();
  const auto differs = [this](uint64_t address, auto value) {
    const auto before = *memory.load<decltype(value)>(address);
    memory.put(address, value);
    const bool intact = look().intact;
    memory.put(address, before);
    return !intact && look().intact;
  };
  EXPECT_TRUE(look().intact);
  EXPECT_TRUE(differs(SyntheticRxe::cq, uint64_t{0}));
  EXPECT_TRUE(differs(SyntheticRxe::cq + offsetof(ibv_cq, cqe), 15));
  EXPECT_TRUE(differs(SyntheticRxe::cq + rxe.in_cq, SyntheticRxe::send_ring));
  EXPECT_TRUE(differs(SyntheticRxe::cq_ring, uint32_t{6}));
  EXPECT_TRUE(differs(SyntheticRxe::cq_ring + 4, uint32_t{3}));
  EXPECT_TRUE(differs(SyntheticRxe::cq_ring + 128, uint32_t{8}));
  EXPECT_TRUE(differs(SyntheticRxe::cq_ring + 256, uint32_t{8}));
  rxe.post(IBV_SEND_SIGNALED);
  look();
  EXPECT_EQ(sends().outstanding(), 1u);
  EXPECT_TRUE(reader.signaled(0, 0));
  memory.put(SyntheticRxe::qp + rxe.in_qp + 40, uint64_t{0});
  EXPECT_FALSE(reader.signaled(0, 0)) << "a QP that was destroyed";
  memory.put(SyntheticRxe::send_ring + 4, uint32_t{3});
  EXPECT_TRUE(look().intact);
  EXPECT_EQ(sends().outstanding(), 0u) << "another QP's ring";
}

TEST_F(RxeQueueReader, ACqThatWasResized) {
  add();
  memory.put<int>(SyntheticRxe::cq + offsetof(ibv_cq, cqe), 3);
  EXPECT_FALSE(find_again(memory, SyntheticRxe::map(), queues)) << "in the middle of it";
  memory.put(SyntheticRxe::cq_ring + 4, uint32_t{3});
  const auto again = find_again(memory, SyntheticRxe::map(), queues);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->ring.entries, 4u);
  EXPECT_EQ(again->sends.size(), 1u);
  memory.bytes().resize(SyntheticRxe::cq_ring - SyntheticMemory::heap);
  EXPECT_FALSE(find_again(memory, SyntheticRxe::map(), queues));
  EXPECT_FALSE(look().intact);
}

}  // namespace
}  // namespace pollgap
