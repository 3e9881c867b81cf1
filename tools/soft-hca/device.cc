// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/device.h"

#include <algorithm>
#include <limits>

namespace pollgap::soft_hca {
namespace {

// How many requests of one queue pair are carried out before the others get their turn.
constexpr int kRequestsPerRound = 16;

template <typename T>
void erase(std::vector<T*>* list, T* item) {
  const auto at = std::find(list->begin(), list->end(), item);
  if (at == list->end()) return;
  *at = list->back();
  list->pop_back();
}

}  // namespace

Device::Device(uint64_t completion_delay_ns)
    : completion_delay_ns_(completion_delay_ns),
      memory_(kMaxMemoryRegions),
      transport_(this, &memory_, &completions_) {
  queue_pairs_.reserve(kMaxQueuePairs);
  completion_queues_.reserve(kMaxCompletionQueues);
}

void Device::add(QueuePair* queue_pair) {
  queue_pairs_.push_back(queue_pair);
  by_slot_[queue_pair->number() % kMaxQueuePairs] = queue_pair;
}

void Device::remove(QueuePair* queue_pair) {
  erase(&queue_pairs_, queue_pair);
  by_slot_[queue_pair->number() % kMaxQueuePairs] = nullptr;
}

void Device::add(CompletionQueue* queue) { completion_queues_.push_back(queue); }

void Device::remove(CompletionQueue* queue) { erase(&completion_queues_, queue); }

QueuePair* Device::find(uint32_t number) {
  QueuePair* queue_pair = by_slot_[number % kMaxQueuePairs];
  return queue_pair != nullptr && queue_pair->number() == number ? queue_pair : nullptr;
}

int Device::modify(QueuePair* queue_pair, const ib_uverbs_modify_qp& change) {
  return queue_pair->modify(change);  // a move to ERR is flushed in the next round
}

uint64_t Device::hold_until(uint64_t time_ns) {
  hold_until_ns_ = std::max(hold_until_ns_, time_ns);
  return hold_until_ns_;
}

int64_t Device::fail(uint32_t queue_pair_number, uint8_t syndrome, uint8_t vendor,
                     uint64_t time_ns) {
  QueuePair* queue_pair = find(queue_pair_number);
  if (queue_pair == nullptr) return -1;
  if (queue_pair->state() == IBV_QPS_RESET) return 0;
  WorkError error;
  if (syndrome != 0) error = {WorkError::On::send, syndrome, vendor};
  queue_pair->fail(error);
  if (time_ns < hold_until_ns_) return CompletionWriter::count_unfinished(*queue_pair);
  return completions_.flush(queue_pair);
}

// What is due of one queue pair. In the error state everything is, at once.
bool Device::progress(QueuePair* queue_pair, uint64_t time_ns) {
  if (queue_pair->state() == IBV_QPS_ERR) return completions_.flush(queue_pair) != 0;
  bool worked = false;
  for (int done = 0; done < kRequestsPerRound && !queue_pair->doorbells.empty(); ++done) {
    const DoorbellLog::Entry next = queue_pair->doorbells.front();
    const uint64_t due = std::max(next.due_ns, queue_pair->attempts().next_ns);
    if (due > time_ns) {
      note_due(due);
      return worked;
    }
    worked = true;
    if (!transport_.carry_out(queue_pair)) {
      note_due(queue_pair->attempts().next_ns);
      return true;
    }
    if (!queue_pair->doorbells.empty() && queue_pair->send_queue.consumer() == next.producer) {
      queue_pair->doorbells.pop();
    }
  }
  return worked;
}

// While completions are held nothing is carried out, but doorbells are noted, so that delays run
// on. All that fell due meanwhile is handed over together at the end of the first free round.
bool Device::round(uint64_t time_ns) {
  const bool held = time_ns < hold_until_ns_;
  const bool released = was_held_ && !held;
  was_held_ = held;
  next_due_ns_ = held ? hold_until_ns_ : std::numeric_limits<uint64_t>::max();
  completions_.set_gathering(released);

  const uint64_t delay = completion_delay_ns_.load(std::memory_order_relaxed);
  bool worked = false;
  for (QueuePair* queue_pair : queue_pairs_) {
    const ibv_qp_state state = queue_pair->state();
    if (state == IBV_QPS_RTS && queue_pair->observe(delay)) worked = true;
    if (!held && (state == IBV_QPS_RTS || state == IBV_QPS_ERR)) {
      worked |= progress(queue_pair, time_ns);
    }
  }
  if (released) {
    completions_.set_gathering(false);
    for (CompletionQueue* queue : completion_queues_) queue->publish();
  }
  for (CompletionQueue* queue : completion_queues_) queue->deliver_event();
  return worked;
}

}  // namespace pollgap::soft_hca
