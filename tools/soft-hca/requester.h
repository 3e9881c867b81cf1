// SPDX-License-Identifier: Apache-2.0
// The requester's half of the transport: sends work requests as packets, keeps them until they are
// acknowledged, and sends again what was lost. Rules: InfiniBand specification volume 1, chapter 9.
#pragma once

#include <cstdint>

#include "tools/soft-hca/completion_writer.h"
#include "tools/soft-hca/counters.h"
#include "tools/soft-hca/faults.h"
#include "tools/soft-hca/link.h"
#include "tools/soft-hca/memory_table.h"
#include "tools/soft-hca/packet.h"
#include "tools/soft-hca/program_pieces.h"
#include "tools/soft-hca/queue_pair.h"
#include "tools/soft-hca/timer_wheel.h"

namespace pollgap::soft_hca {

// The way to another queue pair.
struct Route {
  enum class State : uint8_t { up, pending, nowhere };
  State state = State::nowhere;
  Link* link = nullptr;  // when up
};
class Routes {
 public:
  virtual ~Routes() = default;
  virtual Route route_to(uint32_t queue_pair, uint64_t now_ns) = 0;
};

// For the device thread. A queue pair's timer runs while packets are out, for their acknowledgement
// to come, or after a receiver-not-ready NAK, until the next try.
class Requester {
 public:
  Requester(Routes* routes, const MemoryTable* memory, CompletionWriter* completions,
            Counters* counters, Faults* faults, TimerWheel* timers)
      : routes_(routes),
        memory_(memory),
        completions_(completions),
        counters_(counters),
        faults_(faults),
        timers_(timers) {}

  // Sends the next packets of `qp`, if there are any that may be sent. Returns whether it did
  // something; call it again in the next round in either case.
  bool send_some(QueuePair* qp, uint64_t now_ns);

  // A response has come for `qp`.
  void take_response(QueuePair* qp, const Packet& packet, const std::byte* payload,
                     uint64_t now_ns);

  // The timer of `qp` has ended.
  void time_out(QueuePair* qp, uint64_t now_ns);

  // Puts `qp` into the error state with an error on its oldest request and flushes it.
  void fail(QueuePair* qp, const WorkError& error);

  // Stops all that is going on, for a queue pair that leaves the RTS state or is destroyed.
  void abandon(QueuePair* qp);

 private:
  bool next_message(QueuePair* qp, Message** message);
  bool new_message(QueuePair* qp, Message** message);
  bool check(const QueuePair& qp, WorkError* error);
  bool send_packet(QueuePair* qp, const Message& message, uint64_t now_ns);
  bool send_datagram(QueuePair* qp, const Message& message, uint64_t now_ns);
  void advance(QueuePair* qp, const Message& message, uint32_t length);
  void lose(QueuePair* qp, uint32_t psn, uint32_t fault, uint64_t now_ns);
  bool acknowledge(QueuePair* qp, uint32_t psn, uint64_t now_ns);
  void complete_oldest(QueuePair* qp);
  void progressed(QueuePair* qp, uint64_t now_ns);
  void take_data(QueuePair* qp, const Packet& packet, const std::byte* payload, uint64_t now_ns);
  void take_nak(QueuePair* qp, const Packet& packet, uint64_t now_ns);
  void go_back(QueuePair* qp, uint32_t psn);
  void start_ack_timer(QueuePair* qp, uint64_t now_ns);
  bool still_on_the_wire(const QueuePair& qp, uint64_t now_ns);

  Routes* routes_;
  const MemoryTable* memory_;
  CompletionWriter* completions_;
  Counters* counters_;
  Faults* faults_;
  TimerWheel* timers_;
  SendRequest request_;  // decoded for the message at hand
  ProgramPieces local_;
};

}  // namespace pollgap::soft_hca
