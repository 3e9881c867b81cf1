// SPDX-License-Identifier: Apache-2.0
// The responder's half of the transport: carries out the requests that arrive, in order, and
// answers. Rules: InfiniBand specification volume 1, chapter 9.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tools/soft-hca/completion_writer.h"
#include "tools/soft-hca/counters.h"
#include "tools/soft-hca/faults.h"
#include "tools/soft-hca/link.h"
#include "tools/soft-hca/memory_table.h"
#include "tools/soft-hca/packet.h"
#include "tools/soft-hca/program_pieces.h"
#include "tools/soft-hca/queue_pair.h"
#include "tools/soft-hca/requester.h"

namespace pollgap::soft_hca {

// For the device thread.
class Responder {
 public:
  Responder(const MemoryTable* memory, CompletionWriter* completions, Counters* counters,
            Faults* faults, Requester* requester)
      : memory_(memory),
        completions_(completions),
        counters_(counters),
        faults_(faults),
        requester_(requester) {}

  // A request has come for `qp` over `link`, which has room for a response of kRecordBytes.
  void take_request(QueuePair* qp, Link* link, const Packet& packet, const std::byte* payload,
                    uint64_t now_ns);

 private:
  void take_datagram(QueuePair* qp, const Packet& packet, const std::byte* payload);
  void carry_out(const Packet& packet, const std::byte* payload);
  void answer_again(const Packet& packet);
  bool receive(const Packet& packet, const std::byte* payload);
  bool write(const Packet& packet, const std::byte* payload);
  bool read(const Packet& packet);
  bool atomic(const Packet& packet);
  bool find_receive(const Packet& packet);
  std::byte* remote_memory(const Packet& packet, uint64_t length, uint32_t access);
  void acknowledge(uint32_t psn);
  void refuse(const Packet& packet, Nak why);
  void fail_receive(const WorkError& error);
  void deny(const Packet& packet, Nak why);
  void respond(Packet* response);

  const MemoryTable* memory_;
  CompletionWriter* completions_;
  Counters* counters_;
  Faults* faults_;
  Requester* requester_;
  // Of the packet at hand.
  QueuePair* qp_ = nullptr;
  Link* link_ = nullptr;
  uint64_t now_ns_ = 0;
  SegmentList scatter_;
  ProgramPieces pieces_;
};

}  // namespace pollgap::soft_hca
