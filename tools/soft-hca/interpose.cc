// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/interpose.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <rdma/mlx5-abi.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstring>

#include "tools/soft-hca/adapter_identity.h"
#include "tools/soft-hca/raw_syscalls.h"
#include "tools/soft-hca/uverbs.h"

namespace pollgap::soft_hca {
namespace {

// Constant-initialized: libraries' constructors call the functions below before ours have run.
constinit std::atomic<Uverbs*> device{nullptr};
constinit std::atomic<Uverbs* (*)()> starter{nullptr};

// What stands in for the device's file: its number is in the sysfs tree.
constexpr char kStandIn[] = "/dev/null";

Uverbs* active_device() { return device.load(std::memory_order_acquire); }

// Whether the device is to be seen, even if nobody has opened it yet.
bool device_present() {
  return active_device() != nullptr || starter.load(std::memory_order_acquire) != nullptr;
}

bool is_device_path(const char* path) {
  return path != nullptr && std::strcmp(path, kDevicePath) == 0;
}

int open_any(int dir, const char* path, int flags, mode_t mode) {
  if (!is_device_path(path) || !device_present()) return raw::openat(dir, path, flags, mode);
  Uverbs* uverbs = active_device();
  if (uverbs == nullptr) {
    uverbs = starter.load()();
    if (uverbs == nullptr) {
      errno = EIO;
      return -1;
    }
  }
  const int fd = raw::openat(AT_FDCWD, kStandIn, flags, 0);
  if (fd >= 0) uverbs->opened(fd);
  return fd;
}

int stat_any(const char* path, struct stat* result) {
  const bool ours = is_device_path(path) && device_present();
  return raw::stat(ours ? kStandIn : path, result);
}

// The mode of open() and openat(), which is there only if a file may be created.
bool has_mode(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

// libmlx5 maps each of its doorbell pages (UARs) at offset (command << 8 | index) pages
// (get_uar_mmap_offset). Nothing reads them here: the doorbell records in memory say as much.
void* map_device(void* address, size_t length, int protection, off_t offset) {
  const auto page = static_cast<uint64_t>(offset) / 4096;
  const uint64_t command = page >> 8;
  if (length != 4096 || command != MLX5_IB_MMAP_REGULAR_PAGE) {
    errno = command > MLX5_IB_MMAP_DEVICE_MEM || length != 4096 ? EINVAL : EOPNOTSUPP;
    return MAP_FAILED;
  }
  return raw::mmap(address, length, protection, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

void* map_any(void* address, size_t length, int protection, int flags, int fd, off_t offset) {
  Uverbs* uverbs = active_device();
  if (uverbs != nullptr && fd >= 0 && uverbs->is_context(fd)) {
    return map_device(address, length, protection, offset);
  }
  return raw::mmap(address, length, protection, flags, fd, offset);
}

int ioctl_device(Uverbs* uverbs, int fd, void* argument) {
  const int error = uverbs->ioctl(fd, static_cast<ib_uverbs_ioctl_hdr*>(argument));
  if (error == 0) return 0;
  errno = error;
  return -1;
}

}  // namespace

void answer_device_calls(Uverbs* uverbs) { device.store(uverbs, std::memory_order_release); }

void answer_device_calls_from_first_open(Uverbs* (*start)()) {
  starter.store(start, std::memory_order_release);
}

std::string interposition_problem() {
  struct Function {
    const char* name;
    void* ours;
  };
  const Function functions[] = {
      {"open", reinterpret_cast<void*>(&::open)},   {"openat", reinterpret_cast<void*>(&::openat)},
      {"close", reinterpret_cast<void*>(&::close)}, {"ioctl", reinterpret_cast<void*>(&::ioctl)},
      {"mmap", reinterpret_cast<void*>(&::mmap)},   {"socket", reinterpret_cast<void*>(&::socket)},
  };
  for (const Function& function : functions) {
    if (dlsym(RTLD_DEFAULT, function.name) != function.ours) {
      return std::string("the program does not export its ") + function.name +
             "(): link it with -rdynamic";
    }
  }
  return "";
}

}  // namespace pollgap::soft_hca

// The interposed calls. Each ends in the raw system call unless it concerns the device.

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = pollgap::soft_hca::has_mode(flags) ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return pollgap::soft_hca::open_any(AT_FDCWD, path, flags, mode);
}

int openat(int dir, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = pollgap::soft_hca::has_mode(flags) ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return pollgap::soft_hca::open_any(dir, path, flags, mode);
}

int stat(const char* __restrict path, struct stat* __restrict result) noexcept {
  return pollgap::soft_hca::stat_any(path, result);
}

int close(int fd) {
  pollgap::soft_hca::Uverbs* uverbs = pollgap::soft_hca::active_device();
  if (uverbs != nullptr) uverbs->closing(fd);
  return pollgap::soft_hca::raw::close(fd);
}

int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  pollgap::soft_hca::Uverbs* uverbs = pollgap::soft_hca::active_device();
  if (uverbs != nullptr && request == RDMA_VERBS_IOCTL && uverbs->is_context(fd)) {
    return pollgap::soft_hca::ioctl_device(uverbs, fd, argument);
  }
  return pollgap::soft_hca::raw::ioctl(fd, request, argument);
}

void* mmap(void* address, size_t length, int protection, int flags, int fd, off_t offset) noexcept {
  return pollgap::soft_hca::map_any(address, length, protection, flags, fd, offset);
}

// With the RDMA netlink libibverbs would list the machine's real devices instead of the sysfs tree
// (find_sysfs_devs_nl). A kernel without RDMA refuses it in this way.
int socket(int domain, int type, int protocol) noexcept {
  if (domain == AF_NETLINK && protocol == NETLINK_RDMA && pollgap::soft_hca::device_present()) {
    errno = EPROTONOSUPPORT;
    return -1;
  }
  return pollgap::soft_hca::raw::socket(domain, type, protocol);
}

// The names that programs built with 64-bit file offsets use; on 64-bit machines all is the same.
static_assert(sizeof(off_t) == 8);
int open64(const char*, int, ...) __attribute__((alias("open")));
int openat64(int, const char*, int, ...) __attribute__((alias("openat")));
int stat64(const char* __restrict, struct stat64* __restrict) noexcept
    __attribute__((alias("stat")));
void* mmap64(void*, size_t, int, int, int, off64_t) noexcept __attribute__((alias("mmap")));

}  // extern "C"
