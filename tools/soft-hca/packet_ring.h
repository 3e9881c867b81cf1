// SPDX-License-Identifier: Apache-2.0
// A ring of packets from one device thread to another, perhaps in another process: the wire.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tools/soft-hca/packet.h"

namespace pollgap::soft_hca {

// In memory that both ends share. All zeros is an empty ring.
struct PacketRing {
  static constexpr uint64_t kBytes = 1 << 20;

  alignas(64) std::atomic<uint64_t> written;  // bytes so far
  alignas(64) std::atomic<uint64_t> taken;
  // The taker lets records lie on purpose (a paused port), not for want of CPU time.
  std::atomic<bool> paused;
  alignas(64) std::array<std::byte, kBytes> data;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// The one writer of a ring.
class PacketSender {
 public:
  explicit PacketSender(PacketRing* ring) : ring_(ring) {}

  // Room for a record with `length` bytes after its header, or null when the ring is too full.
  std::byte* reserve(uint32_t length);
  // Sends what was reserved. Returns a mark for taken().
  uint64_t send(const Packet& header);

  // Whether the other end has taken everything up to `mark`.
  bool taken(uint64_t mark) const { return ring_->taken.load(std::memory_order_acquire) >= mark; }
  bool receiver_paused() const { return ring_->paused.load(std::memory_order_relaxed); }

 private:
  PacketRing* ring_;
  uint64_t written_ = 0;
  uint64_t taken_ = 0;  // as last seen
  uint64_t reserved_at_ = 0;
};

// The one reader of a ring.
class PacketReceiver {
 public:
  explicit PacketReceiver(PacketRing* ring) : ring_(ring) {}

  // The oldest record: false when there is none. `payload` is good until pop().
  bool front(Packet* header, const std::byte** payload);
  void pop();

  // The other end wrote what is no record; nothing more is read.
  bool broken() const { return broken_; }
  void set_paused(bool paused) { ring_->paused.store(paused, std::memory_order_relaxed); }

 private:
  PacketRing* ring_;
  uint64_t taken_ = 0;
  uint64_t written_ = 0;  // as last seen
  uint64_t front_bytes_ = 0;
  bool broken_ = false;
};

}  // namespace pollgap::soft_hca
