// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/shared_receive_queue.h"

#include <endian.h>
#include <rdma/ib_user_verbs.h>

#include <cstring>

#include "tools/soft-hca/program_memory.h"

namespace pollgap::soft_hca {

uint16_t SharedReceiveQueue::posted() const { return load_counter(config_.doorbell); }

bool SharedReceiveQueue::take(uint16_t* index) {
  const uint16_t end = posted();
  if (end == taken_) return false;
  *index = static_cast<uint16_t>(head_ & (config_.entries - 1));
  const auto* wqe = at_address<const std::byte>(config_.buffer) + (size_t{*index} << config_.shift);
  mlx5_wqe_srq_next_seg next{};
  std::memcpy(&next, wqe, sizeof(next));
  head_ = be16toh(next.next_wqe_index);
  ++taken_;
  // The limit is met once and then off (InfiniBand specification volume 1, 10.2.9.4.2).
  if (limit_ != 0 && static_cast<uint16_t>(end - taken_) < limit_) {
    limit_ = 0;
    ib_uverbs_async_event_desc event{};
    event.element = config_.user_handle;
    event.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
    if (config_.async->post(&event, sizeof(event))) ++async_events_;
  }
  return true;
}

void SharedReceiveQueue::decode(uint16_t index, SegmentList* segments) const {
  const auto* wqe = at_address<const std::byte>(config_.buffer) + (size_t{index} << config_.shift);
  decode_receive(wqe + sizeof(mlx5_wqe_srq_next_seg),
                 (1u << config_.shift) - sizeof(mlx5_wqe_srq_next_seg), segments);
}

uint32_t SharedReceiveQueue::async_events_read() {
  if (async_events_ == 0) return 0;
  return async_events_ -
         config_.async->withdraw(config_.user_handle, sizeof(ib_uverbs_async_event_desc));
}

}  // namespace pollgap::soft_hca
