// SPDX-License-Identifier: Apache-2.0
// Commands about shared receive queues. The driver's part: rdma/mlx5-abi.h and the kernel's
// drivers/infiniband/hw/mlx5/srq.c.
#include <infiniband/verbs.h>
#include <rdma/mlx5-abi.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "tools/soft-hca/adapter_identity.h"
#include "tools/soft-hca/uverbs.h"

namespace pollgap::soft_hca {

// A WQE is a link, of 16 bytes, and the scatter list, together a power of two of at least 32 bytes
// (create_srq_user).
int Uverbs::create_srq(Context& context, const WriteRequest& request) {
  const auto core = read_input<ib_uverbs_create_srq>(request.in);
  const auto driver = read_input<mlx5_ib_create_srq>(request.driver_in);
  if (request.driver_in.size() < offsetof(mlx5_ib_create_srq, uidx) || driver.reserved0 != 0 ||
      driver.reserved1 != 0 || driver.flags != 0 ||
      !rest_is_zero(request.driver_in, sizeof(driver)) || driver.buf_addr == 0 ||
      driver.buf_addr % 64 != 0 || driver.db_addr == 0 || driver.db_addr % 4 != 0) {
    return EINVAL;
  }
  if (core.max_wr == 0 || core.max_wr > kMaxSharedReceives || core.max_sge == 0 ||
      core.max_sge > kMaxReceiveWqeBytes / sizeof(mlx5_wqe_data_seg)) {
    return EINVAL;
  }
  const std::lock_guard lock(mutex_);
  if (shared_receives_.size() >= kMaxSharedReceiveQueues) return ENOMEM;
  ProtectionDomain* pd = find(protection_domains_, core.pd_handle, context);
  if (pd == nullptr) return EINVAL;
  SharedReceiveQueue::Config config;
  config.number = next_srq_number_++;
  config.pd = core.pd_handle;
  config.user_handle = core.user_handle;
  config.buffer = driver.buf_addr;
  config.doorbell = driver.db_addr;
  config.entries = std::bit_ceil(core.max_wr + 1);
  const auto bytes = static_cast<uint32_t>(sizeof(mlx5_wqe_srq_next_seg) +
                                           core.max_sge * sizeof(mlx5_wqe_data_seg));
  config.shift = static_cast<uint32_t>(std::countr_zero(std::bit_ceil(std::max(32U, bytes))));
  config.max_requests = config.entries - 1;
  config.max_sge = core.max_sge;
  config.async = context.async;
  auto queue = std::make_unique<SharedReceiveQueue>(config);
  queue->arm(core.srq_limit);

  ib_uverbs_create_srq_resp answer{};
  answer.srq_handle = new_handle();
  answer.max_wr = config.max_requests;
  answer.max_sge = config.max_sge;
  answer.srqn = config.number;
  SharedReceives& entry = shared_receives_[answer.srq_handle];
  entry.owner = &context;
  entry.queue = std::move(queue);
  entry.pd = core.pd_handle;
  ++pd->users;
  write_output(request.out, answer);
  write_output(request.driver_out, mlx5_ib_create_srq_resp{config.number, 0});
  return 0;
}

// mlx5 cannot resize one (mlx5_ib_modify_srq).
int Uverbs::modify_srq(Context& context, const WriteRequest& request) {
  const auto core = read_input<ib_uverbs_modify_srq>(request.in);
  if ((core.attr_mask & ~uint32_t{IBV_SRQ_LIMIT}) != 0) return EINVAL;
  const std::lock_guard lock(mutex_);
  const SharedReceives* srq = find(shared_receives_, core.srq_handle, context);
  if (srq == nullptr) return EINVAL;
  if ((core.attr_mask & IBV_SRQ_LIMIT) == 0) return 0;
  const uint32_t limit = core.srq_limit;  // a lambda cannot capture core: its array is flexible
  if (limit > srq->queue->config().max_requests) return EINVAL;
  return device_->run([&](Device*) { srq->queue->arm(limit); }) ? 0 : EIO;
}

int Uverbs::query_srq(Context& context, const WriteRequest& request) {
  const auto core = read_input<ib_uverbs_query_srq>(request.in);
  const std::lock_guard lock(mutex_);
  const SharedReceives* srq = find(shared_receives_, core.srq_handle, context);
  if (srq == nullptr) return EINVAL;
  ib_uverbs_query_srq_resp answer{};
  answer.max_wr = srq->queue->config().max_requests;
  answer.max_sge = srq->queue->config().max_sge;
  if (!device_->run([&](Device*) { answer.srq_limit = srq->queue->limit(); })) return EIO;
  write_output(request.out, answer);
  return 0;
}

int Uverbs::destroy_srq(Context& context, const WriteRequest& request) {
  const auto core = read_input<ib_uverbs_destroy_srq>(request.in);
  const std::lock_guard lock(mutex_);
  const SharedReceives* srq = find(shared_receives_, core.srq_handle, context);
  if (srq == nullptr) return EINVAL;
  if (srq->users != 0) return EBUSY;
  const ib_uverbs_destroy_srq_resp answer{srq->queue->async_events_read()};
  --protection_domains_[srq->pd].users;
  shared_receives_.erase(core.srq_handle);
  write_output(request.out, answer);
  return 0;
}

}  // namespace pollgap::soft_hca
