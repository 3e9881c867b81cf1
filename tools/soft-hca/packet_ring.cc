// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/packet_ring.h"

#include <cstring>

namespace pollgap::soft_hca {
namespace {

constexpr uint64_t kAlignment = sizeof(Packet);

uint64_t record_bytes(uint32_t length) {
  return sizeof(Packet) + (uint64_t{length} + kAlignment - 1) / kAlignment * kAlignment;
}

uint64_t offset_of(uint64_t position) { return position % PacketRing::kBytes; }

void store_header(PacketRing* ring, uint64_t position, const Packet& header) {
  std::memcpy(&ring->data[offset_of(position)], &header, sizeof(header));
}

}  // namespace

// A record does not wrap: what is left at the end of the ring is skipped with a padding record.
std::byte* PacketSender::reserve(uint32_t length) {
  const uint64_t bytes = record_bytes(length);
  const uint64_t to_end = PacketRing::kBytes - offset_of(written_);
  const uint64_t padding = to_end < bytes ? to_end : 0;
  const auto fits = [&] { return written_ + padding + bytes - taken_ <= PacketRing::kBytes; };
  if (!fits()) {
    taken_ = ring_->taken.load(std::memory_order_acquire);
    if (!fits()) return nullptr;
  }
  if (padding != 0) {
    Packet skip;
    skip.length = static_cast<uint32_t>(padding - sizeof(Packet));
    store_header(ring_, written_, skip);
  }
  reserved_at_ = written_ + padding;
  return &ring_->data[offset_of(reserved_at_)] + sizeof(Packet);
}

uint64_t PacketSender::send(const Packet& header) {
  store_header(ring_, reserved_at_, header);
  written_ = reserved_at_ + record_bytes(header.length);
  ring_->written.store(written_, std::memory_order_release);
  return written_;
}

bool PacketReceiver::front(Packet* header, const std::byte** payload) {
  for (; !broken_; pop()) {
    if (taken_ == written_) {
      written_ = ring_->written.load(std::memory_order_acquire);
      if (taken_ == written_) return false;
    }
    std::memcpy(static_cast<void*>(header), &ring_->data[offset_of(taken_)], sizeof(*header));
    front_bytes_ = record_bytes(header->length);
    const bool padding = header->kind == PacketKind::padding;
    broken_ = front_bytes_ > written_ - taken_ ||
              offset_of(taken_) + front_bytes_ > PacketRing::kBytes ||
              (!padding && header->length > kRecordBytes);
    if (broken_) break;
    if (padding) continue;
    *payload = &ring_->data[offset_of(taken_)] + sizeof(Packet);
    return true;
  }
  return false;
}

void PacketReceiver::pop() {
  taken_ += front_bytes_;
  ring_->taken.store(taken_, std::memory_order_release);
}

}  // namespace pollgap::soft_hca
