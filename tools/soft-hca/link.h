// SPDX-License-Identifier: Apache-2.0
// The wires to one process, this one included. Requests and responses have rings of their own, so
// that responses, which a device thread takes without having to write anything, are never stuck
// behind requests.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tools/soft-hca/packet_ring.h"

namespace pollgap::soft_hca {

// What the two ends of a link share, in memory; `a` is the end that made it.
struct LinkMemory {
  PacketRing requests_from_a;
  PacketRing responses_from_a;
  PacketRing requests_from_b;
  PacketRing responses_from_b;
};

class Link {
 public:
  // To itself: what goes out comes in. Throws std::bad_alloc without memory.
  explicit Link(uint32_t process);
  // To `process`, over the shared memory `fd` of sizeof(LinkMemory). valid() tells whether it could
  // be mapped.
  Link(uint32_t process, int fd, bool made_here);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  bool valid() const { return memory_ != nullptr; }
  uint32_t process() const { return process_; }

  void set_paused(bool paused) {
    requests_in.set_paused(paused);
    responses_in.set_paused(paused);
  }

 private:
  LinkMemory* memory_;
  uint32_t process_;

 public:
  PacketSender requests_out;
  PacketSender responses_out;
  PacketReceiver requests_in;
  PacketReceiver responses_in;
};

}  // namespace pollgap::soft_hca
