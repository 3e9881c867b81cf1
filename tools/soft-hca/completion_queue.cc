// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/completion_queue.h"

#include <endian.h>
#include <rdma/ib_user_verbs.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "tools/soft-hca/clock.h"
#include "tools/soft-hca/program_memory.h"

namespace pollgap::soft_hca {
namespace {

// libmlx5 gives indices modulo 2^24 (update_cons_index and mlx5_arm_cq, providers/mlx5/cq.c).
constexpr uint32_t kIndexMask = 0xffffff;
constexpr uint32_t kNeverArmed = 0xffffffff;
constexpr uint32_t kNoSequence = 4;  // real ones have two bits

uint32_t load_word(uint32_t* word) {
  return be32toh(std::atomic_ref<uint32_t>(*word).load(std::memory_order_acquire));
}

void store_owner(mlx5_cqe64* cqe, uint8_t op_own) {
  std::atomic_ref<uint8_t>(cqe->op_own).store(op_own, std::memory_order_release);
}

// Is index `a` later than `b`, both modulo 2^24?
bool later(uint32_t a, uint32_t b) {
  const uint32_t distance = (a - b) & kIndexMask;
  return distance != 0 && distance < (kIndexMask + 1) / 2;
}

}  // namespace

// The program's first arm request is a word of zeros when nothing was polled yet, as is the record
// before any request: all ones, which no request has, tell them apart.
CompletionQueue::CompletionQueue(const Config& config)
    : config_(config), fired_sequence_(kNoSequence) {
  std::atomic_ref<uint32_t>(*arm_word()).store(kNeverArmed, std::memory_order_relaxed);
}

// In a 128-byte CQE the second half is what a 64-byte one is (get_sw_cqe in libmlx5).
mlx5_cqe64* CompletionQueue::slot(uint32_t index) const {
  const uint64_t at = config_.buffer + uint64_t{index & (config_.entries - 1)} * config_.cqe_size +
                      (config_.cqe_size - sizeof(mlx5_cqe64));
  return at_address<mlx5_cqe64>(at);
}

uint32_t CompletionQueue::outstanding() const {
  return (producer_ - load_word(consumer_word())) & kIndexMask;
}

bool CompletionQueue::overrun() {
  if (failed_) return false;
  failed_ = new_failure_ = true;
  ib_uverbs_async_event_desc event{};
  event.element = config_.user_handle;
  event.event_type = IBV_EVENT_CQ_ERR;
  if (config_.async->post(&event, sizeof(event))) ++async_events_;
  return true;
}

uint64_t CompletionQueue::last_release_ns(uint32_t queue_pair) const {
  uint64_t last = 0;
  for (const Held& held : held_) {
    if (held.queue_pair == queue_pair) last = held.release_ns;
  }
  return last;
}

void CompletionQueue::forget(uint32_t queue_pair) {
  std::erase_if(held_, [&](const Held& held) { return held.queue_pair == queue_pair; });
}

bool CompletionQueue::append(const mlx5_cqe64& cqe, uint8_t opcode, bool solicited) {
  if (failed_) return false;
  if (!config_.ignore_overrun && outstanding() >= config_.entries) {
    overrun();
    return false;
  }
  mlx5_cqe64* target = slot(producer_);
  const uint8_t hardware_owned = owner_bit(producer_) ^ 1;
  const auto op_own = static_cast<uint8_t>(opcode << 4 | (solicited ? 2 : 0) | hardware_owned);
  std::memcpy(static_cast<void*>(target), &cqe, offsetof(mlx5_cqe64, op_own));
  store_owner(target, op_own);
  ++producer_;
  if (solicited) solicited_ = producer_;
  return true;
}

void CompletionQueue::publish() {
  if (producer_ != published_ && !later(published_, load_word(consumer_word())))
    ready_since_ns_ = now_ns();
  for (uint32_t index = producer_; index != published_; --index) {
    mlx5_cqe64* cqe = slot(index - 1);
    store_owner(cqe, cqe->op_own ^ MLX5_CQE_OWNER_MASK);
  }
  published_ = producer_;
}

// An arm request is sn << 28 | solicited only << 24 | consumer index. It is good for one event, for
// a CQE that is newer than the consumer index it names and than the last event (the
// last_notified_index of the hardware's CQ context). The sequence number sn grows only when the
// program has taken an event (mlx5_cq_event), so that a repeated request is not a new one.
void CompletionQueue::deliver_event() {
  if (config_.channel == nullptr) return;
  const uint32_t request = load_word(arm_word());
  const uint32_t sequence = request >> 28 & 3;
  if (request == kNeverArmed || sequence == fired_sequence_) return;
  const uint32_t newest = (request & MLX5_CQ_DB_REQ_NOT_SOL) != 0 ? solicited_ : published_;
  if (!later(newest, request) || !later(newest, notified_)) return;
  ib_uverbs_comp_event_desc event{};
  event.cq_handle = config_.user_handle;
  if (!config_.channel->post(&event, sizeof(event))) return;  // full: tried again next round
  fired_sequence_ = sequence;
  notified_ = published_;
  ++completion_events_;
}

// libmlx5 then copies the CQEs before this RESIZE entry into the new buffer, one place further on,
// and takes the entry itself as consumed (mlx5_cq_resize_copy_cqes).
int CompletionQueue::resize(uint64_t buffer, uint32_t cqe_size, uint32_t entries) {
  if (failed_ || outstanding() >= config_.entries || outstanding() + 1 > entries) return EINVAL;
  append(mlx5_cqe64{}, MLX5_CQE_RESIZE_CQ, false);
  publish();
  config_.buffer = buffer;
  config_.cqe_size = cqe_size;
  config_.entries = entries;
  return 0;
}

uint32_t CompletionQueue::completion_events_read() {
  if (config_.channel == nullptr) return 0;
  return completion_events_ -
         config_.channel->withdraw(config_.user_handle, sizeof(ib_uverbs_comp_event_desc));
}

uint32_t CompletionQueue::async_events_read() {
  if (async_events_ == 0) return 0;
  return async_events_ -
         config_.async->withdraw(config_.user_handle, sizeof(ib_uverbs_async_event_desc));
}

}  // namespace pollgap::soft_hca
