// SPDX-License-Identifier: Apache-2.0
// Turns the end of a work request into a CQE. Fields as libmlx5 reads them (providers/mlx5/cq.c).
#pragma once

#include <cstdint>

#include "tools/soft-hca/queue_pair.h"
#include "tools/soft-hca/work_queues.h"

namespace pollgap::soft_hca {

// For the device thread.
class CompletionWriter {
 public:
  // While gathering, CQEs are written but not handed over; the caller publishes the queues.
  void set_gathering(bool gathering) { gathering_ = gathering; }

  // A send, write or read that ended well, at the requester.
  void send_done(const QueuePair& qp, const SendRequest& request);

  // A receive that a message of `requester` filled, at the responder. `opcode`: MLX5_CQE_RESP_*.
  void receive_done(const QueuePair& qp, const QueuePair& requester, uint8_t opcode,
                    const SendRequest& request);

  // Ends every unfinished request of `qp`, which is in the error state: its pending error first, if
  // there is one, then flush errors, sends before receives. Returns the number of CQEs.
  uint32_t flush(QueuePair* qp);

  // How many CQEs flush() would write now.
  static uint32_t count_unfinished(const QueuePair& qp);

 private:
  uint32_t flush_sends(QueuePair* qp, const WorkError& error);
  uint32_t flush_receives(QueuePair* qp, const WorkError& error);
  void publish(CompletionQueue* queue) const {
    if (!gathering_) queue->publish();
  }

  bool gathering_ = false;
};

}  // namespace pollgap::soft_hca
