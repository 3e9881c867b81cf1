// SPDX-License-Identifier: Apache-2.0
// The kernel's side of the verbs device: contexts and the objects in them, and the commands that
// make, change and destroy these (drivers/infiniband/core/uverbs_cmd.c,
// drivers/infiniband/hw/mlx5). Errors are the kernel's, as errno values. All public functions are
// thread-safe.
#pragma once

#include <rdma/ib_user_verbs.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "tools/soft-hca/device_thread.h"
#include "tools/soft-hca/event_pipe.h"
#include "tools/soft-hca/uverbs_request.h"

namespace pollgap::soft_hca {

class Uverbs {
 public:
  // `process`: the number of this process among those that share the adapter.
  // `offers_cqe_version_1`: or only version 0.
  Uverbs(DeviceThread* device, uint32_t process, bool offers_cqe_version_1,
         uint64_t registration_ns_per_page)
      : device_(device),
        offers_cqe_version_1_(offers_cqe_version_1),
        registration_ns_per_page_(registration_ns_per_page),
        owner_pid_(getpid()),
        process_(process) {}

  // `fd` was opened as the device: a new context.
  void opened(int fd);
  // `fd`, if it is a context or one of its event files, is about to be closed. Closing a context
  // destroys all that is left in it.
  void closing(int fd);

  bool is_context(int fd);
  // RDMA_VERBS_IOCTL on a context: 0 or an errno value.
  int ioctl(int fd, ib_uverbs_ioctl_hdr* header);

  // The CQ that the program calls so; null: there is none.
  const CompletionQueue* find_cq(uint64_t user_handle);

 private:
  struct Context {
    bool active = false;  // GET_CONTEXT was called
    bool cqe_version_1 = false;
    std::shared_ptr<EventPipe> async;
  };
  using ContextPtr = std::shared_ptr<Context>;

  // What every object has: whose it is, and how many others depend on it.
  struct Object {
    const Context* owner = nullptr;
    uint32_t users = 0;
  };
  struct ProtectionDomain : Object {};
  struct Region : Object {
    uint32_t key = 0;
    uint32_t pd = 0;
  };
  struct Queue : Object {
    std::unique_ptr<CompletionQueue> queue;
  };
  struct SharedReceives : Object {
    std::unique_ptr<SharedReceiveQueue> queue;
    uint32_t pd = 0;
  };
  struct Pair : Object {
    std::unique_ptr<QueuePair> pair;
    uint32_t pd = 0;
    uint32_t send_cq = 0;
    uint32_t receive_cq = 0;
    uint32_t srq = 0;  // 0: none
  };
  template <typename T>
  using Table = std::map<uint32_t, T>;

  using Handler = int (Uverbs::*)(Context& context, const WriteRequest& request);
  struct Command {
    uint32_t number;
    size_t input_bytes;   // at least
    size_t output_bytes;  // at least
    Handler handler;
  };
  static const Command* find_command(uint32_t number);
  static bool known_to_the_kernel(uint32_t number);

  // uverbs_device.cc
  int get_context(Context& context, const WriteRequest& request);
  int query_device(Context& context, const WriteRequest& request);
  int query_device_extended(Context& context, const WriteRequest& request);
  int query_port(Context& context, const WriteRequest& request);

  // uverbs_memory.cc
  int alloc_pd(Context& context, const WriteRequest& request);
  int dealloc_pd(Context& context, const WriteRequest& request);
  int reg_mr(Context& context, const WriteRequest& request);
  int dereg_mr(Context& context, const WriteRequest& request);

  // uverbs_shared_receives.cc
  int create_srq(Context& context, const WriteRequest& request);
  int modify_srq(Context& context, const WriteRequest& request);
  int query_srq(Context& context, const WriteRequest& request);
  int destroy_srq(Context& context, const WriteRequest& request);

  // uverbs_queues.cc
  int create_comp_channel(Context& context, const WriteRequest& request);
  int create_cq(Context& context, const WriteRequest& request);
  int create_cq_extended(Context& context, const WriteRequest& request);
  int resize_cq(Context& context, const WriteRequest& request);
  int destroy_cq(Context& context, const WriteRequest& request);
  int create_qp(Context& context, const WriteRequest& request);
  int query_qp(Context& context, const WriteRequest& request);
  int modify_qp(Context& context, const WriteRequest& request);
  int destroy_qp(Context& context, const WriteRequest& request);
  int add_cq(Context& context, const WriteRequest& request, const ib_uverbs_ex_create_cq& core,
             ib_uverbs_create_cq_resp* answer);

  // Null when there is no such object in this context.
  template <typename T>
  static T* find(Table<T>& table, uint32_t handle, const Context& context) {
    const auto at = table.find(handle);
    return at != table.end() && at->second.owner == &context ? &at->second : nullptr;
  }
  uint32_t new_handle() { return next_handle_++; }
  uint32_t new_queue_pair_number();  // 0: no more
  void destroy_all(const Context& context);
  void release_pair(const Pair& pair);

  // Descriptors that are ours, so that a close() of any other costs next to nothing.
  void track(int fd, bool ours);
  bool tracked(int fd) const;

  DeviceThread* device_;
  const bool offers_cqe_version_1_;
  const uint64_t registration_ns_per_page_;
  const pid_t owner_pid_;

  static constexpr int kTrackedDescriptors = 65536;
  std::array<std::atomic<uint64_t>, kTrackedDescriptors / 64> tracked_{};

  std::mutex mutex_;  // for all below
  std::unordered_map<int, ContextPtr> contexts_;
  struct Channel {
    const Context* owner;
    std::shared_ptr<EventPipe> pipe;
  };
  std::unordered_map<int, Channel> channels_;
  Table<ProtectionDomain> protection_domains_;
  Table<Region> regions_;
  Table<Queue> queues_;
  Table<SharedReceives> shared_receives_;
  Table<Pair> pairs_;
  uint32_t next_handle_ = 1;
  uint32_t next_cq_number_ = 0x400;
  uint32_t next_srq_number_ = 1;
  const uint32_t process_;
  uint32_t next_pair_slot_ = 0;
  uint32_t pair_generation_ = 1;
  std::array<bool, kMaxQueuePairs> pair_slot_used_{};
};

}  // namespace pollgap::soft_hca
