// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <thread>

#include "tools/soft-hca/packet_ring.h"

namespace pollgap::soft_hca {
namespace {

Packet packet_of(uint32_t number, uint32_t length) {
  Packet packet;
  packet.kind = PacketKind::send;
  packet.psn = number;
  packet.length = length;
  return packet;
}

class PacketRingTest : public testing::Test {
 protected:
  bool send(uint32_t number, uint32_t length) {
    std::byte* room = sender.reserve(length);
    if (room == nullptr) return false;
    std::memset(room, static_cast<int>(number & 0xff), length);
    sender.send(packet_of(number, length));
    return true;
  }
  std::unique_ptr<PacketRing> ring = std::make_unique<PacketRing>();
  PacketSender sender{ring.get()};
  PacketReceiver receiver{ring.get()};
  Packet packet;
  const std::byte* payload = nullptr;
};

TEST_F(PacketRingTest, RecordsOfAnyLengthComeWholeAndInOrder) {
  std::mt19937 random(3);
  std::deque<uint32_t> lengths;
  uint32_t sent = 0;
  uint32_t taken = 0;
  while (taken < 20'000) {
    for (uint32_t i = random() % 40; i != 0; --i) {
      const uint32_t length = random() % 3 == 0 ? random() % (kRecordBytes + 1) : random() % 100;
      if (!send(sent, length)) break;
      lengths.push_back(length);
      ++sent;
    }
    for (uint32_t i = random() % 40; i != 0 && receiver.front(&packet, &payload); --i) {
      ASSERT_EQ(packet.psn, taken++);
      ASSERT_EQ(packet.length, lengths.front());
      lengths.pop_front();
      for (uint32_t at = 0; at < packet.length; ++at) {
        ASSERT_EQ(payload[at], static_cast<std::byte>(packet.psn & 0xff));
      }
      receiver.pop();
    }
  }
  while (receiver.front(&packet, &payload)) receiver.pop(), ++taken;
  EXPECT_EQ(taken, sent);
}

TEST_F(PacketRingTest, AFullRingRefusesUntilSomeIsTaken) {
  uint32_t count = 0;
  while (send(count, kRecordBytes)) ++count;
  EXPECT_GE(count, PacketRing::kBytes / (kRecordBytes + 1024));
  ASSERT_TRUE(receiver.front(&packet, &payload));
  receiver.pop();
  EXPECT_TRUE(send(count, kRecordBytes));
}

TEST_F(PacketRingTest, AMarkTellsWhatWasTaken) {
  ASSERT_NE(sender.reserve(10), nullptr);
  const uint64_t mark = sender.send(packet_of(1, 10));
  EXPECT_FALSE(sender.taken(mark));
  ASSERT_TRUE(receiver.front(&packet, &payload));
  EXPECT_FALSE(sender.taken(mark));
  receiver.pop();
  EXPECT_TRUE(sender.taken(mark));
}

TEST_F(PacketRingTest, NonsenseFromTheOtherEndBreaksTheRing) {
  for (const uint32_t length : {kRecordBytes + 1, 0xffffffffU}) {
    auto other = std::make_unique<PacketRing>();
    PacketReceiver reader(other.get());
    const Packet bad = packet_of(0, length);
    std::memcpy(other->data.data(), &bad, sizeof(bad));
    other->written.store(uint64_t{2} * kRecordBytes);
    EXPECT_FALSE(reader.front(&packet, &payload));
    EXPECT_TRUE(reader.broken());
  }
  auto other = std::make_unique<PacketRing>();
  PacketReceiver reader(other.get());
  const Packet cut_off = packet_of(0, 1000);
  std::memcpy(other->data.data(), &cut_off, sizeof(cut_off));
  other->written.store(64);
  EXPECT_FALSE(reader.front(&packet, &payload));
  EXPECT_TRUE(reader.broken());
}

TEST_F(PacketRingTest, TwoThreads) {
  constexpr uint32_t kPackets = 100'000;
  std::thread writer([&] {
    for (uint32_t number = 0; number < kPackets;) {
      if (send(number, number % 5000)) {
        ++number;
      } else {
        std::this_thread::yield();
      }
    }
  });
  for (uint32_t number = 0; number < kPackets;) {
    if (!receiver.front(&packet, &payload)) {
      std::this_thread::yield();
      continue;
    }
    EXPECT_EQ(packet.psn, number);
    EXPECT_EQ(packet.length, number % 5000);
    if (packet.length != 0) {
      EXPECT_EQ(payload[packet.length - 1], static_cast<std::byte>(number & 0xff));
    }
    receiver.pop();
    ++number;
  }
  writer.join();
}

}  // namespace
}  // namespace pollgap::soft_hca
