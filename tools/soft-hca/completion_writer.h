// SPDX-License-Identifier: Apache-2.0
// Turns the end of a work request into a CQE. Fields as libmlx5 reads them (providers/mlx5/cq.c).
#pragma once

#include <cstdint>

#include "tools/soft-hca/counters.h"
#include "tools/soft-hca/faults.h"
#include "tools/soft-hca/packet.h"
#include "tools/soft-hca/queue_pair.h"
#include "tools/soft-hca/work_queues.h"

namespace pollgap::soft_hca {

// For the device thread.
class CompletionWriter {
 public:
  CompletionWriter(Faults* faults, Counters* counters) : faults_(faults), counters_(counters) {}

  // A send, write, read or atomic operation that ended well, at the requester.
  void send_done(const QueuePair& qp, const Message& message);

  // A receive that a message filled with `bytes`, at the responder. `opcode`: MLX5_CQE_RESP_*;
  // `packet`: the message's last.
  void receive_done(const QueuePair& qp, uint8_t opcode, const Packet& packet, uint32_t bytes);

  // Ends every unfinished request of `qp`, which is in the error state: its pending error first, if
  // there is one, then flush errors, sends before receives; unless its CQEs are held at
  // time_ns, the round's, so that one end of a hold lets all go. The caller publishes the CQs.
  // Returns the number of CQEs.
  uint32_t flush(QueuePair* qp, uint64_t time_ns);

  // How many CQEs flush() would write now.
  static uint32_t count_unfinished(const QueuePair& qp);

  // Until when flush() has to wait for CQEs that are held; 0: it has not.
  uint64_t held_until_ns(const QueuePair& qp) const;

 private:
  static bool has_held(const QueuePair& qp);
  void write(CompletionQueue* queue, const QueuePair& qp, const mlx5_cqe64& cqe, uint8_t opcode,
             bool solicited);
  uint32_t flush_sends(QueuePair* qp, const WorkError& error);
  uint32_t flush_receives(QueuePair* qp, const WorkError& error);
  void flush_receive(const QueuePair& qp, uint16_t counter, const WorkError& error);

  Faults* faults_;
  Counters* counters_;
};

}  // namespace pollgap::soft_hca
