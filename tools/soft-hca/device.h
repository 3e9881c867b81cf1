// SPDX-License-Identifier: Apache-2.0
// The adapter proper: it knows the queues, looks for work in them round by round, and carries it
// out when it is due. It belongs to the device thread alone and neither locks, allocates nor waits.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "tools/soft-hca/adapter_identity.h"
#include "tools/soft-hca/completion_writer.h"
#include "tools/soft-hca/memory_table.h"
#include "tools/soft-hca/queue_pair.h"
#include "tools/soft-hca/transport.h"

namespace pollgap::soft_hca {

// All functions but set_completion_delay() and the constructor are for the device thread. Objects
// added are the caller's, who removes them before freeing them.
class Device : private PeerDirectory {
 public:
  explicit Device(uint64_t completion_delay_ns);

  // A queue pair's number is a place in a table (its low 12 bits) and above it a generation, so
  // that a new queue pair is not taken for an old one.
  static constexpr uint32_t kSlotBits = 12;
  static_assert(kMaxQueuePairs == 1u << kSlotBits);

  void add(QueuePair* queue_pair);
  void remove(QueuePair* queue_pair);
  void add(CompletionQueue* queue);
  void remove(CompletionQueue* queue);
  MemoryTable& memory() { return memory_; }

  // ibv_modify_qp: 0 or an errno value.
  int modify(QueuePair* queue_pair, const ib_uverbs_modify_qp& change);

  // One look at every queue, at a time that may be a little past. Returns whether there was
  // anything to do.
  bool round(uint64_t time_ns);

  // The next time at which something known is due; UINT64_MAX when nothing is.
  uint64_t next_due_ns() const { return next_due_ns_; }

  // Nothing to look at: no queue pair and no completion queue.
  bool idle() const { return queue_pairs_.empty() && completion_queues_.empty(); }

  // Faults: see soft_hca.h.
  void set_completion_delay(uint64_t delay_ns) { completion_delay_ns_.store(delay_ns); }
  uint64_t hold_until(uint64_t time_ns);
  int64_t fail(uint32_t queue_pair_number, uint8_t syndrome, uint8_t vendor, uint64_t time_ns);

 private:
  QueuePair* find(uint32_t number) override;
  bool progress(QueuePair* queue_pair, uint64_t time_ns);
  void note_due(uint64_t time_ns) {
    if (time_ns < next_due_ns_) next_due_ns_ = time_ns;
  }

  std::atomic<uint64_t> completion_delay_ns_;
  uint64_t hold_until_ns_ = 0;
  bool was_held_ = false;
  uint64_t next_due_ns_ = 0;
  std::vector<QueuePair*> queue_pairs_;
  std::vector<CompletionQueue*> completion_queues_;
  std::array<QueuePair*, kMaxQueuePairs> by_slot_{};
  MemoryTable memory_;
  CompletionWriter completions_;
  Transport transport_;
};

}  // namespace pollgap::soft_hca
