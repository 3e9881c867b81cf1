// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/uverbs.h"

#include <unistd.h>

#include <cerrno>

namespace pollgap::soft_hca {

void Uverbs::track(int fd, bool ours) {
  if (fd < 0 || fd >= kTrackedDescriptors) return;
  const uint64_t bit = uint64_t{1} << (fd % 64);
  std::atomic<uint64_t>& word = tracked_[static_cast<size_t>(fd) / 64];
  ours ? word.fetch_or(bit) : word.fetch_and(~bit);
}

bool Uverbs::tracked(int fd) const {
  if (fd < 0) return false;
  if (fd >= kTrackedDescriptors) return true;  // perhaps: the tables know
  return (tracked_[static_cast<size_t>(fd) / 64].load(std::memory_order_relaxed) >> (fd % 64) &
          1) != 0;
}

void Uverbs::opened(int fd) {
  const std::lock_guard lock(mutex_);
  contexts_[fd] = std::make_shared<Context>();
  track(fd, true);
}

bool Uverbs::is_context(int fd) {
  if (!tracked(fd)) return false;
  const std::lock_guard lock(mutex_);
  return contexts_.contains(fd);
}

void Uverbs::closing(int fd) {
  // A child of vfork() closes its own descriptors, but in our memory.
  if (!tracked(fd) || getpid() != owner_pid_) return;
  const std::lock_guard lock(mutex_);
  track(fd, false);
  channels_.erase(fd);  // its completion queues keep the pipe
  const auto at = contexts_.find(fd);
  if (at == contexts_.end()) return;
  const ContextPtr context = at->second;
  contexts_.erase(at);
  destroy_all(*context);
}

// What ib_uverbs_invoke_write() does in the kernel: an unknown command is EINVAL, one that this
// device does not provide EOPNOTSUPP, one with too short buffers ENOSPC.
int Uverbs::ioctl(int fd, ib_uverbs_ioctl_hdr* header) {
  ContextPtr context;
  {
    const std::lock_guard lock(mutex_);
    const auto at = contexts_.find(fd);
    if (at == contexts_.end()) return ENOTTY;
    context = at->second;
  }
  WriteRequest request;
  const int error = decode_write_request(header, &request);
  if (error != 0) return error;
  const Command* command = find_command(request.command);
  if (command == nullptr) return known_to_the_kernel(request.command) ? EOPNOTSUPP : EINVAL;
  if (request.in.size() < command->input_bytes || request.out.size() < command->output_bytes) {
    return ENOSPC;
  }
  const bool needs_context = command->number != IB_USER_VERBS_CMD_GET_CONTEXT;
  if (needs_context && !context->active) return EINVAL;
  return (this->*command->handler)(*context, request);
}

const Uverbs::Command* Uverbs::find_command(uint32_t number) {
  constexpr uint32_t kExtended = IB_USER_VERBS_CMD_FLAG_EXTENDED;
  static constexpr Command kCommands[] = {
      {IB_USER_VERBS_CMD_GET_CONTEXT, sizeof(ib_uverbs_get_context),
       sizeof(ib_uverbs_get_context_resp), &Uverbs::get_context},
      {IB_USER_VERBS_CMD_QUERY_DEVICE, sizeof(ib_uverbs_query_device),
       sizeof(ib_uverbs_query_device_resp), &Uverbs::query_device},
      {kExtended | IB_USER_VERBS_EX_CMD_QUERY_DEVICE, sizeof(ib_uverbs_ex_query_device),
       offsetof(ib_uverbs_ex_query_device_resp, odp_caps), &Uverbs::query_device_extended},
      {IB_USER_VERBS_CMD_QUERY_PORT, sizeof(ib_uverbs_query_port),
       sizeof(ib_uverbs_query_port_resp), &Uverbs::query_port},
      {IB_USER_VERBS_CMD_ALLOC_PD, sizeof(ib_uverbs_alloc_pd), sizeof(ib_uverbs_alloc_pd_resp),
       &Uverbs::alloc_pd},
      {IB_USER_VERBS_CMD_DEALLOC_PD, sizeof(ib_uverbs_dealloc_pd), 0, &Uverbs::dealloc_pd},
      {IB_USER_VERBS_CMD_REG_MR, sizeof(ib_uverbs_reg_mr), sizeof(ib_uverbs_reg_mr_resp),
       &Uverbs::reg_mr},
      {IB_USER_VERBS_CMD_DEREG_MR, sizeof(ib_uverbs_dereg_mr), 0, &Uverbs::dereg_mr},
      {IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, sizeof(ib_uverbs_create_comp_channel),
       sizeof(ib_uverbs_create_comp_channel_resp), &Uverbs::create_comp_channel},
      {IB_USER_VERBS_CMD_CREATE_CQ, sizeof(ib_uverbs_create_cq), sizeof(ib_uverbs_create_cq_resp),
       &Uverbs::create_cq},
      {kExtended | IB_USER_VERBS_EX_CMD_CREATE_CQ, sizeof(ib_uverbs_ex_create_cq),
       sizeof(ib_uverbs_ex_create_cq_resp), &Uverbs::create_cq_extended},
      {IB_USER_VERBS_CMD_RESIZE_CQ, sizeof(ib_uverbs_resize_cq), sizeof(ib_uverbs_resize_cq_resp),
       &Uverbs::resize_cq},
      {IB_USER_VERBS_CMD_DESTROY_CQ, sizeof(ib_uverbs_destroy_cq),
       sizeof(ib_uverbs_destroy_cq_resp), &Uverbs::destroy_cq},
      {IB_USER_VERBS_CMD_CREATE_SRQ, sizeof(ib_uverbs_create_srq),
       sizeof(ib_uverbs_create_srq_resp), &Uverbs::create_srq},
      {IB_USER_VERBS_CMD_MODIFY_SRQ, sizeof(ib_uverbs_modify_srq), 0, &Uverbs::modify_srq},
      {IB_USER_VERBS_CMD_QUERY_SRQ, sizeof(ib_uverbs_query_srq), sizeof(ib_uverbs_query_srq_resp),
       &Uverbs::query_srq},
      {IB_USER_VERBS_CMD_DESTROY_SRQ, sizeof(ib_uverbs_destroy_srq),
       sizeof(ib_uverbs_destroy_srq_resp), &Uverbs::destroy_srq},
      {IB_USER_VERBS_CMD_CREATE_QP, sizeof(ib_uverbs_create_qp), sizeof(ib_uverbs_create_qp_resp),
       &Uverbs::create_qp},
      {IB_USER_VERBS_CMD_QUERY_QP, sizeof(ib_uverbs_query_qp), sizeof(ib_uverbs_query_qp_resp),
       &Uverbs::query_qp},
      {IB_USER_VERBS_CMD_MODIFY_QP, sizeof(ib_uverbs_modify_qp), 0, &Uverbs::modify_qp},
      {IB_USER_VERBS_CMD_DESTROY_QP, sizeof(ib_uverbs_destroy_qp),
       sizeof(ib_uverbs_destroy_qp_resp), &Uverbs::destroy_qp},
  };
  for (const Command& command : kCommands) {
    if (command.number == number) return &command;
  }
  return nullptr;
}

bool Uverbs::known_to_the_kernel(uint32_t number) {
  if ((number & IB_USER_VERBS_CMD_FLAG_EXTENDED) != 0) {
    const uint32_t extended = number & ~IB_USER_VERBS_CMD_FLAG_EXTENDED;
    return extended <= IB_USER_VERBS_EX_CMD_MODIFY_CQ;
  }
  return number <= IB_USER_VERBS_CMD_OPEN_QP;
}

// In the order in which nothing is in use any more. The kernel does the same when a context's file
// is closed (uverbs_destroy_ufile_hw).
void Uverbs::destroy_all(const Context& context) {
  const auto owned = [&](const auto& item) { return item.second.owner == &context; };
  for (auto at = pairs_.begin(); at != pairs_.end();) {
    if (!owned(*at)) {
      ++at;
      continue;
    }
    release_pair(at->second);
    at = pairs_.erase(at);
  }
  for (auto& item : queues_) {
    if (!owned(item)) continue;
    device_->run([&](Device* device) { device->remove(item.second.queue.get()); });
  }
  for (auto& item : regions_) {
    if (!owned(item)) continue;
    device_->run([&](Device* device) { device->memory().remove(item.second.key); });
  }
  std::erase_if(queues_, owned);
  std::erase_if(shared_receives_, owned);
  std::erase_if(regions_, owned);
  std::erase_if(protection_domains_, owned);
  for (auto at = channels_.begin(); at != channels_.end();) {
    if (at->second.owner == &context) {
      track(at->first, false);
      at = channels_.erase(at);
    } else {
      ++at;
    }
  }
}

}  // namespace pollgap::soft_hca
