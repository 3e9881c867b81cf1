// SPDX-License-Identifier: Apache-2.0
// What goes over the wire between two queue pairs: one record carries one or several consecutive
// packets of a message (InfiniBand specification volume 1, chapter 9), which are kept or lost
// together.
#pragma once

#include <cstdint>

namespace pollgap::soft_hca {

// The most that one record carries: a multiple of every path MTU.
inline constexpr uint32_t kRecordBytes = 32 << 10;

inline constexpr uint32_t kPsnMask = 0xffffff;

// Packet sequence numbers have 24 bits: how far `a` is after `b`, negative if it is before (9.7.1).
inline int32_t psn_distance(uint32_t a, uint32_t b) {
  return static_cast<int32_t>((a - b) << 8) >> 8;
}

// The number of packets that `bytes` take: one at least (9.7.2).
inline uint32_t packets_of(uint64_t bytes, uint8_t path_mtu) {
  const uint64_t mtu = uint64_t{128} << path_mtu;  // IBV_MTU_256 is 1
  return bytes == 0 ? 1 : static_cast<uint32_t>((bytes + mtu - 1) / mtu);
}

enum class PacketKind : uint8_t {
  padding,  // skips the rest of a ring
  // requests
  send,
  write,
  read,
  compare_swap,
  fetch_add,
  datagram,
  // responses
  ack,
  nak,
  read_response,
  atomic_response,
};

// Why a request was not acknowledged (AETH syndromes, 9.7.5.2.2).
enum class Nak : uint8_t {
  sequence_error,
  invalid_request,
  remote_access_error,
  remote_operation_error,
  receiver_not_ready,
};

// A record's header; `length` bytes follow it.
struct Packet {
  PacketKind kind = PacketKind::padding;
  bool first : 1 = false;
  bool last : 1 = false;
  bool immediate : 1 = false;
  bool solicited : 1 = false;
  bool wants_ack : 1 = false;
  bool global : 1 = false;  // a datagram with a global route header
  Nak nak = Nak::sequence_error;
  uint8_t rnr_timer = 0;  // of a receiver_not_ready
  uint32_t to = 0;        // queue pair numbers
  uint32_t from = 0;
  uint32_t psn = 0;  // of the first packet; a response: of the last it is about
  uint32_t packets = 0;
  uint32_t length = 0;          // of what follows
  uint32_t remaining = 0;       // bytes of the message from here on; of a read: bytes wanted here
  uint32_t immediate_data = 0;  // big-endian
  uint32_t key = 0;             // rkey, or the Q_Key of a datagram
  uint32_t service_level = 0;
  uint64_t address = 0;  // remote address of the first byte
  uint64_t operand = 0;  // of an atomic: what to swap in or add; its response: the old value
  uint64_t compare = 0;
};
static_assert(sizeof(Packet) == 64);

inline bool is_response(PacketKind kind) { return kind >= PacketKind::ack; }

}  // namespace pollgap::soft_hca
