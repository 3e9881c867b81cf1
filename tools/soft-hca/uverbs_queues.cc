// SPDX-License-Identifier: Apache-2.0
// Commands about completion channels, completion queues and queue pairs. The driver's part of each:
// rdma/mlx5-abi.h and the kernel's drivers/infiniband/hw/mlx5/{cq,qp}.c.
#include <infiniband/verbs.h>
#include <rdma/mlx5-abi.h>

#include <bit>
#include <cerrno>

#include "tools/soft-hca/adapter_identity.h"
#include "tools/soft-hca/uverbs.h"

namespace pollgap::soft_hca {
namespace {

// Completing into the CQE instead of the buffer (SCATTER_CQE) is something the adapter may do, not
// something it must. All other flags ask for what is not there.
constexpr uint32_t kAcceptedQpFlags = MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE;

bool power_of_two_or_zero(uint32_t value) { return (value & (value - 1)) == 0; }

bool cq_layout_valid(uint64_t buffer, uint32_t cqe_size) {
  return buffer != 0 && buffer % 64 == 0 && (cqe_size == 64 || cqe_size == 128);
}

bool queue_layout_valid(const mlx5_ib_create_qp& driver) {
  return driver.buf_addr != 0 && driver.buf_addr % 64 == 0 && driver.db_addr != 0 &&
         driver.db_addr % 8 == 0 && driver.sq_wqe_count <= kMaxWorkRequests &&
         driver.rq_wqe_count <= kMaxWorkRequests && power_of_two_or_zero(driver.sq_wqe_count) &&
         power_of_two_or_zero(driver.rq_wqe_count) &&
         (driver.rq_wqe_count == 0 ||
          (driver.rq_wqe_shift >= 4 && (1u << (driver.rq_wqe_shift & 31)) <= kMaxReceiveWqeBytes &&
           driver.rq_wqe_shift < 32));
}

}  // namespace

int Uverbs::create_comp_channel(Context& context, const WriteRequest& request) {
  std::shared_ptr<EventPipe> pipe = EventPipe::create();
  if (pipe == nullptr) return errno;
  const int fd = pipe->reader_fd();
  const std::lock_guard lock(mutex_);
  channels_[fd] = {&context, std::move(pipe)};
  track(fd, true);
  write_output(request.out, ib_uverbs_create_comp_channel_resp{static_cast<uint32_t>(fd)});
  return 0;
}

int Uverbs::add_cq(Context& context, const WriteRequest& request,
                   const ib_uverbs_ex_create_cq& core, ib_uverbs_create_cq_resp* answer) {
  const auto driver = read_input<mlx5_ib_create_cq>(request.driver_in);
  if (request.driver_in.size() < offsetof(mlx5_ib_create_cq, cqe_comp_en)) return EINVAL;
  if (!rest_is_zero(request.driver_in, sizeof(driver)) || driver.reserved0 != 0 ||
      driver.reserved1 != 0 || driver.flags != 0 || driver.db_addr % 8 != 0 ||
      driver.db_addr == 0 || !cq_layout_valid(driver.buf_addr, driver.cqe_size)) {
    return EINVAL;
  }
  if (driver.cqe_comp_en != 0) return EOPNOTSUPP;
  if (core.cqe == 0 || core.cqe > kMaxCqe || core.comp_vector >= kCompletionVectors) return EINVAL;

  const std::lock_guard lock(mutex_);
  if (queues_.size() >= kMaxCompletionQueues) return ENOMEM;
  CompletionQueue::Config config;
  if (core.comp_channel >= 0) {
    const auto channel = channels_.find(core.comp_channel);
    if (channel == channels_.end() || channel->second.owner != &context) return EBADF;
    config.channel = channel->second.pipe;
  }
  config.number = next_cq_number_++;
  config.user_handle = core.user_handle;
  config.buffer = driver.buf_addr;
  config.cqe_size = driver.cqe_size;
  config.entries = std::bit_ceil(core.cqe + 1);
  config.doorbell = driver.db_addr;
  config.ignore_overrun = (core.flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN) != 0;
  config.async = context.async;
  auto queue = std::make_unique<CompletionQueue>(config);
  if (!device_->run([&](Device* device) { device->add(queue.get()); })) return EIO;

  answer->cq_handle = new_handle();
  answer->cqe = config.entries - 1;
  Queue& entry = queues_[answer->cq_handle];
  entry.owner = &context;
  entry.queue = std::move(queue);
  write_output(request.driver_out, mlx5_ib_create_cq_resp{config.number, 0});
  return 0;
}

const CompletionQueue* Uverbs::find_cq(uint64_t user_handle) {
  const std::lock_guard lock(mutex_);
  for (const auto& [handle, entry] : queues_) {
    if (entry.queue->user_handle() == user_handle) return entry.queue.get();
  }
  return nullptr;
}

int Uverbs::create_cq(Context& context, const WriteRequest& request) {
  const auto legacy = read_input<ib_uverbs_create_cq>(request.in);
  ib_uverbs_ex_create_cq core{};
  core.user_handle = legacy.user_handle;
  core.cqe = legacy.cqe;
  core.comp_vector = legacy.comp_vector;
  core.comp_channel = legacy.comp_channel;
  ib_uverbs_create_cq_resp answer{};
  const int error = add_cq(context, request, core, &answer);
  if (error == 0) write_output(request.out, answer);
  return error;
}

int Uverbs::create_cq_extended(Context& context, const WriteRequest& request) {
  const auto core = read_input<ib_uverbs_ex_create_cq>(request.in);
  constexpr uint32_t kFlags =
      IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION | IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN;
  if (core.comp_mask != 0 || core.reserved != 0) return EINVAL;
  if ((core.flags & ~kFlags) != 0) return EOPNOTSUPP;
  ib_uverbs_ex_create_cq_resp answer{};
  answer.response_length = sizeof(answer);
  const int error = add_cq(context, request, core, &answer.base);
  if (error == 0) write_output(request.out, answer);
  return error;
}

int Uverbs::resize_cq(Context& context, const WriteRequest& request) {
  const auto core = read_input<ib_uverbs_resize_cq>(request.in);
  const auto driver = read_input<mlx5_ib_resize_cq>(request.driver_in);
  if (request.driver_in.size() < sizeof(driver) || driver.reserved0 != 0 || driver.reserved1 != 0 ||
      !cq_layout_valid(driver.buf_addr, driver.cqe_size) || core.cqe == 0 || core.cqe > kMaxCqe) {
    return EINVAL;
  }
  const std::lock_guard lock(mutex_);
  const Queue* queue = find(queues_, core.cq_handle, context);
  if (queue == nullptr) return EINVAL;
  const uint32_t entries = std::bit_ceil(core.cqe + 1);
  int error = EIO;
  device_->run(
      [&](Device*) { error = queue->queue->resize(driver.buf_addr, driver.cqe_size, entries); });
  if (error != 0) return error;
  ib_uverbs_resize_cq_resp answer{};
  answer.cqe = entries - 1;
  write_output(request.out, answer);
  return 0;
}

int Uverbs::destroy_cq(Context& context, const WriteRequest& request) {
  const auto core = read_input<ib_uverbs_destroy_cq>(request.in);
  const std::lock_guard lock(mutex_);
  const Queue* queue = find(queues_, core.cq_handle, context);
  if (queue == nullptr) return EINVAL;
  if (queue->users != 0) return EBUSY;
  if (!device_->run([&](Device* device) { device->remove(queue->queue.get()); })) return EIO;
  ib_uverbs_destroy_cq_resp answer{};
  answer.comp_events_reported = queue->queue->completion_events_read();
  answer.async_events_reported = queue->queue->async_events_read();
  queues_.erase(core.cq_handle);
  write_output(request.out, answer);
  return 0;
}

// Numbers go up before they come round again, as the hardware's do.
uint32_t Uverbs::new_queue_pair_number() {
  for (uint32_t tried = 0; tried < kMaxQueuePairs; ++tried) {
    const uint32_t slot = next_pair_slot_;
    const uint32_t generation = pair_generation_;
    next_pair_slot_ = (next_pair_slot_ + 1) % kMaxQueuePairs;
    if (next_pair_slot_ == 0) pair_generation_ = pair_generation_ % (kGenerations - 1) + 1;
    if (pair_slot_used_[slot]) continue;
    pair_slot_used_[slot] = true;
    return generation << (kSlotBits + kProcessBits) | process_ << kSlotBits | slot;
  }
  return 0;
}

int Uverbs::create_qp(Context& context, const WriteRequest& request) {
  const auto core = read_input<ib_uverbs_create_qp>(request.in);
  const auto driver = read_input<mlx5_ib_create_qp>(request.driver_in);
  if (core.qp_type != IBV_QPT_RC && core.qp_type != IBV_QPT_UD) return EOPNOTSUPP;
  if (request.driver_in.size() < offsetof(mlx5_ib_create_qp, sq_buf_addr) ||
      (driver.flags & ~kAcceptedQpFlags) != 0 || driver.ece_options != 0 ||
      !rest_is_zero(request.driver_in, sizeof(driver)) || !queue_layout_valid(driver)) {
    return EINVAL;
  }
  const std::lock_guard lock(mutex_);
  ProtectionDomain* pd = find(protection_domains_, core.pd_handle, context);
  Queue* send_cq = find(queues_, core.send_cq_handle, context);
  Queue* receive_cq = find(queues_, core.recv_cq_handle, context);
  if (pd == nullptr || send_cq == nullptr || receive_cq == nullptr) return EINVAL;
  SharedReceives* srq = nullptr;
  if (core.is_srq != 0) {
    srq = find(shared_receives_, core.srq_handle, context);
    if (srq == nullptr || driver.rq_wqe_count != 0) return EINVAL;
  }

  QueuePair::Config config;
  config.type = static_cast<ibv_qp_type>(core.qp_type);
  config.number = new_queue_pair_number();
  if (config.number == 0) return ENOMEM;
  config.pd = core.pd_handle;
  config.cqe_index = context.cqe_version_1 ? driver.uidx : 0;
  config.receive_cqe_index = config.cqe_index;
  if (srq != nullptr) {
    config.srq = srq->queue.get();
    if (!context.cqe_version_1) config.receive_cqe_index = config.srq->config().number;
  }
  config.user_handle = core.user_handle;
  config.signal_all = core.sq_sig_all != 0;
  config.send_cq = send_cq->queue.get();
  config.receive_cq = receive_cq->queue.get();
  config.async = context.async;
  config.buffer = driver.buf_addr;
  config.doorbell = driver.db_addr;
  config.send_blocks = driver.sq_wqe_count;
  config.receive_entries = driver.rq_wqe_count;
  config.receive_shift = driver.rq_wqe_count == 0 ? 0 : driver.rq_wqe_shift;
  config.capacity = {core.max_send_wr, core.max_recv_wr, core.max_send_sge, core.max_recv_sge,
                     core.max_inline_data};
  auto pair = std::make_unique<QueuePair>(config);
  if (!device_->run([&](Device* device) { device->add(pair.get()); })) {
    pair_slot_used_[config.number % kMaxQueuePairs] = false;
    return EIO;
  }

  ib_uverbs_create_qp_resp answer{};
  answer.qp_handle = new_handle();
  answer.qpn = config.number;
  answer.max_send_wr = core.max_send_wr;
  answer.max_recv_wr = core.max_recv_wr;
  answer.max_send_sge = core.max_send_sge;
  answer.max_recv_sge = core.max_recv_sge;
  answer.max_inline_data = core.max_inline_data;
  Pair& entry = pairs_[answer.qp_handle];
  entry.owner = &context;
  entry.pair = std::move(pair);
  entry.pd = core.pd_handle;
  entry.send_cq = core.send_cq_handle;
  entry.receive_cq = core.recv_cq_handle;
  if (srq != nullptr) {
    entry.srq = core.srq_handle;
    ++srq->users;
  }
  ++pd->users;
  ++send_cq->users;
  ++receive_cq->users;
  write_output(request.out, answer);
  write_output(request.driver_out, mlx5_ib_create_qp_resp{});  // doorbell register 0
  return 0;
}

int Uverbs::query_qp(Context& context, const WriteRequest& request) {
  const auto core = read_input<ib_uverbs_query_qp>(request.in);
  const std::lock_guard lock(mutex_);
  const Pair* pair = find(pairs_, core.qp_handle, context);
  if (pair == nullptr) return EINVAL;
  ib_uverbs_query_qp_resp answer{};
  auto* copy = &answer;  // a struct with a flexible array cannot itself be captured
  if (!device_->run([&](Device*) { *copy = pair->pair->attributes(); })) return EIO;
  write_output(request.out, answer);
  return 0;
}

int Uverbs::modify_qp(Context& context, const WriteRequest& request) {
  const auto core = read_input<ib_uverbs_modify_qp>(request.in);
  const std::lock_guard lock(mutex_);
  const Pair* pair = find(pairs_, core.qp_handle, context);
  if (pair == nullptr) return EINVAL;
  int error = EIO;
  device_->run([&](Device* device) { error = device->modify(pair->pair.get(), core); });
  return error;
}

void Uverbs::release_pair(const Pair& pair) {
  device_->run([&](Device* device) { device->remove(pair.pair.get()); });
  pair_slot_used_[pair.pair->number() % kMaxQueuePairs] = false;
  --protection_domains_[pair.pd].users;
  --queues_[pair.send_cq].users;
  --queues_[pair.receive_cq].users;
  if (pair.srq != 0) --shared_receives_[pair.srq].users;
}

int Uverbs::destroy_qp(Context& context, const WriteRequest& request) {
  const auto core = read_input<ib_uverbs_destroy_qp>(request.in);
  const std::lock_guard lock(mutex_);
  const Pair* pair = find(pairs_, core.qp_handle, context);
  if (pair == nullptr) return EINVAL;
  release_pair(*pair);
  const ib_uverbs_destroy_qp_resp answer{pair->pair->async_events_read()};
  pairs_.erase(core.qp_handle);
  write_output(request.out, answer);
  return 0;
}

}  // namespace pollgap::soft_hca
