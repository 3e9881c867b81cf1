// SPDX-License-Identifier: Apache-2.0
// Commands about protection domains and memory regions.
#include <infiniband/verbs.h>
#include <rdma/mlx5-abi.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

#include "tools/soft-hca/clock.h"
#include "tools/soft-hca/program_memory.h"
#include "tools/soft-hca/uverbs.h"

namespace pollgap::soft_hca {
namespace {

constexpr uint64_t kPage = 4096;
#ifndef MADV_POPULATE_WRITE  // Linux 5.14
constexpr int MADV_POPULATE_READ = 22;
constexpr int MADV_POPULATE_WRITE = 23;
#endif

// IB_ACCESS_SUPPORTED of the kernel.
constexpr uint32_t kKnownAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
    IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND |
    IBV_ACCESS_HUGETLB | IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_OPTIONAL_RANGE;
constexpr uint32_t kRemoteChange = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

// Before Linux 5.14: has the kernel read each page, which at least faults it in.
int read_each_page(uint64_t begin, uint64_t end) {
  for (uint64_t page = begin; page < end; page += kPage) {
    std::byte ignored;
    const iovec local{&ignored, 1};
    const iovec remote{at_address<void>(page), 1};
    if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != 1) return EFAULT;
  }
  return 0;
}

// Pins as far as a process can: faults all pages in, for writing if the adapter may write. EFAULT,
// as from the kernel's ib_umem_get(), where nothing that allows this is mapped.
int fault_in(uint64_t begin, uint64_t end, bool writable) {
  const int advice = writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  int result = 0;
  do {
    result = madvise(at_address<void>(begin), end - begin, advice);
  } while (result != 0 && (errno == EINTR || errno == EAGAIN));
  if (result == 0) return 0;
  return errno == EINVAL ? read_each_page(begin, end) : EFAULT;
}

void spend(uint64_t duration_ns) {
  const uint64_t end = now_ns() + duration_ns;
  while (now_ns() < end) {
  }
}

}  // namespace

int Uverbs::alloc_pd(Context& context, const WriteRequest& request) {
  const std::lock_guard lock(mutex_);
  if (protection_domains_.size() >= kMaxProtectionDomains) return ENOMEM;
  const uint32_t handle = new_handle();
  protection_domains_[handle].owner = &context;
  ib_uverbs_alloc_pd_resp answer{};
  answer.pd_handle = handle;
  write_output(request.out, answer);
  write_output(request.driver_out, mlx5_ib_alloc_pd_resp{handle});
  return 0;
}

int Uverbs::dealloc_pd(Context& context, const WriteRequest& request) {
  const auto core = read_input<ib_uverbs_dealloc_pd>(request.in);
  const std::lock_guard lock(mutex_);
  const ProtectionDomain* pd = find(protection_domains_, core.pd_handle, context);
  if (pd == nullptr) return EINVAL;
  if (pd->users != 0) return EBUSY;
  protection_domains_.erase(core.pd_handle);
  return 0;
}

// Rules: ib_uverbs_reg_mr() and ib_check_mr_access() of the kernel.
int Uverbs::reg_mr(Context& context, const WriteRequest& request) {
  const auto core = read_input<ib_uverbs_reg_mr>(request.in);
  const uint32_t access = core.access_flags;
  if ((core.start % kPage) != (core.hca_va % kPage)) return EINVAL;
  if ((access & ~kKnownAccess) != 0) return EINVAL;
  if ((access & kRemoteChange) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0) return EINVAL;
  if ((access & IBV_ACCESS_ON_DEMAND) != 0) return EOPNOTSUPP;
  const uint64_t begin = core.start / kPage * kPage;
  const uint64_t end = (core.start + core.length + kPage - 1) / kPage * kPage;
  if (core.length == 0 || core.start + core.length < core.start || end <= begin) return EINVAL;
  const int error = fault_in(begin, end, (access & IBV_ACCESS_LOCAL_WRITE) != 0);
  if (error != 0) return error;
  if (registration_ns_per_page_ != 0) spend((end - begin) / kPage * registration_ns_per_page_);

  const std::lock_guard lock(mutex_);
  ProtectionDomain* pd = find(protection_domains_, core.pd_handle, context);
  if (pd == nullptr) return EINVAL;
  const MemoryRegion region{core.start, core.hca_va, core.length, core.pd_handle, access};
  uint32_t key = 0;
  if (!device_->run([&](Device* device) { key = device->memory().add(region); })) return EIO;
  if (key == 0) return ENOMEM;
  const uint32_t handle = new_handle();
  Region& entry = regions_[handle];
  entry.owner = &context;
  entry.key = key;
  entry.pd = core.pd_handle;
  ++pd->users;
  ib_uverbs_reg_mr_resp answer{};
  answer.mr_handle = handle;
  answer.lkey = answer.rkey = key;
  write_output(request.out, answer);
  return 0;
}

int Uverbs::dereg_mr(Context& context, const WriteRequest& request) {
  const auto core = read_input<ib_uverbs_dereg_mr>(request.in);
  const std::lock_guard lock(mutex_);
  const Region* region = find(regions_, core.mr_handle, context);
  if (region == nullptr) return EINVAL;
  if (!device_->run([&](Device* device) { device->memory().remove(region->key); })) return EIO;
  --protection_domains_[region->pd].users;
  regions_.erase(core.mr_handle);
  return 0;
}

}  // namespace pollgap::soft_hca
