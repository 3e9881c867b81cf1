// SPDX-License-Identifier: Apache-2.0
// A shared receive queue: WQEs in a linked list, which the adapter takes from its head while
// libmlx5 adds to its tail (struct mlx5_wqe_srq_next_seg of infiniband/mlx5dv.h;
// providers/mlx5/srq.c).
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstdint>
#include <memory>

#include "tools/soft-hca/event_pipe.h"
#include "tools/soft-hca/work_queues.h"

namespace pollgap::soft_hca {

// All functions but the constructor and config() are for the device thread.
class SharedReceiveQueue {
 public:
  struct Config {
    uint32_t number = 0;
    uint32_t pd = 0;
    uint64_t user_handle = 0;
    uint64_t buffer = 0;
    uint64_t doorbell = 0;  // one word: how many were posted
    uint32_t entries = 0;   // a power of two
    uint32_t shift = 0;     // of a WQE's size in bytes
    uint32_t max_requests = 0;
    uint32_t max_sge = 0;
    std::shared_ptr<EventPipe> async;
  };

  explicit SharedReceiveQueue(const Config& config) : config_(config) {}

  const Config& config() const { return config_; }

  // Takes the oldest posted receive; its `index` names it until its CQE is written. False: none.
  bool take(uint16_t* index);
  void decode(uint16_t index, SegmentList* segments) const;

  // Asks for one event when fewer than `limit` receives are posted; 0: for none.
  void arm(uint32_t limit) { limit_ = limit; }
  uint32_t limit() const { return limit_; }

  // Withdraws unread events, at destruction; returns how many events the program did read.
  uint32_t async_events_read();

 private:
  uint16_t posted() const;

  Config config_;
  uint16_t head_ = 0;
  uint16_t taken_ = 0;  // so far, modulo 2^16
  uint32_t limit_ = 0;
  uint32_t async_events_ = 0;
};

}  // namespace pollgap::soft_hca
