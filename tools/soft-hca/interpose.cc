// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/interpose.h"

#include <dirent.h>
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
#include <climits>
#include <cstdarg>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "tools/soft-hca/adapter_identity.h"
#include "tools/soft-hca/raw_syscalls.h"
#include "tools/soft-hca/sysfs_tree.h"
#include "tools/soft-hca/uverbs.h"

namespace pollgap::soft_hca {
namespace {

// Constant-initialized: libraries' constructors call the functions below before ours have run.
constinit std::atomic<Uverbs*> device{nullptr};
constinit std::atomic<Uverbs* (*)()> starter{nullptr};

constinit std::atomic<const SysfsTree*> sysfs{nullptr};

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

// A sysfs tree without files. libibverbs lists one directory of it, and opens the one that it finds
// there (find_sysfs_devs). Their descriptors are numbers that the kernel gives to nobody (the
// largest fs.nr_open is 2147483584).
constexpr std::string_view kListed = "class/infiniband_verbs";
constexpr char kListedEntry[] = "uverbs0";
constexpr int kListedFd = INT_MAX - 1;
constexpr int kListedEntryFd = INT_MAX - 2;

// The path in the tree; none: it is not in it.
std::optional<std::string> path_in_tree(int dir, const char* path) {
  if (path == nullptr || sysfs.load(std::memory_order_acquire) == nullptr) return std::nullopt;
  const std::string_view name = path;
  if (name.starts_with(kUnmountedPath) && name.substr(kUnmountedPath.size()).starts_with('/')) {
    return std::string(name.substr(kUnmountedPath.size() + 1));
  }
  if (dir == kListedFd) return std::string(kListed) + "/" + path;
  if (dir == kListedEntryFd) return std::string(kListed) + "/" + kListedEntry + "/" + path;
  return std::nullopt;
}

int open_in_tree(const std::string& name, int flags) {
  if ((flags & O_ACCMODE) != O_RDONLY) {
    errno = EACCES;
    return -1;
  }
  if (name == std::string(kListed) + "/" + kListedEntry) return kListedEntryFd;
  const SysfsTree* tree = sysfs.load(std::memory_order_acquire);
  const std::optional<std::string> content = tree == nullptr ? std::nullopt : tree->content(name);
  if (!content) {
    errno = ENOENT;
    return -1;
  }
  const int fd = memfd_create("soft-hca-sysfs", MFD_CLOEXEC);
  if (fd < 0) return -1;
  if (pwrite(fd, content->data(), content->size(), 0) == static_cast<ssize_t>(content->size())) {
    return fd;
  }
  raw::close(fd);
  errno = EIO;
  return -1;
}

// The one listing; its place is how much of it the thread has read.
DIR* listing() {
  static char object;
  return reinterpret_cast<DIR*>(&object);
}
thread_local bool listed = false;

dirent* read_listing() {
  static dirent entry{.d_ino = 1,
                      .d_off = 1,
                      .d_reclen = sizeof(dirent),
                      .d_type = DT_DIR,
                      .d_name = {'u', 'v', 'e', 'r', 'b', 's', '0'}};
  if (listed) return nullptr;
  listed = true;
  return &entry;
}

// libc's own function of that name.
template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

int open_any(int dir, const char* path, int flags, mode_t mode) {
  if (const auto name = path_in_tree(dir, path)) return open_in_tree(*name, flags);
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

// Of the tree libibverbs asks only what there is, and since when.
int stat_any(const char* path, struct stat* result) {
  if (const auto name = path_in_tree(AT_FDCWD, path)) {
    if (SysfsTree::has(*name)) return raw::stat(kStandIn, result);
    errno = ENOENT;
    return -1;
  }
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

void answer_sysfs_calls(const SysfsTree* tree) { sysfs.store(tree, std::memory_order_release); }

std::string interposition_problem() {
  struct Function {
    const char* name;
    void* ours;
  };
  const Function functions[] = {
      {"open", reinterpret_cast<void*>(&::open)},
      {"openat", reinterpret_cast<void*>(&::openat)},
      {"close", reinterpret_cast<void*>(&::close)},
      {"ioctl", reinterpret_cast<void*>(&::ioctl)},
      {"mmap", reinterpret_cast<void*>(&::mmap)},
      {"socket", reinterpret_cast<void*>(&::socket)},
      {"opendir", reinterpret_cast<void*>(&::opendir)},
      {"readdir", reinterpret_cast<void*>(&::readdir)},
      {"dirfd", reinterpret_cast<void*>(&::dirfd)},
      {"closedir", reinterpret_cast<void*>(&::closedir)},
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

// The interposed calls. Each ends in the raw system call, or in libc's function, unless it concerns
// the device or its sysfs tree.

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

DIR* opendir(const char* path) {
  static auto* const libc = pollgap::soft_hca::next<DIR*(const char*)>("opendir");
  const auto name = pollgap::soft_hca::path_in_tree(AT_FDCWD, path);
  if (!name) return libc(path);
  if (*name == pollgap::soft_hca::kListed) {
    pollgap::soft_hca::listed = false;
    return pollgap::soft_hca::listing();
  }
  errno = ENOENT;
  return nullptr;
}

dirent* readdir(DIR* directory) {
  static auto* const libc = pollgap::soft_hca::next<dirent*(DIR*)>("readdir");
  if (directory == pollgap::soft_hca::listing()) return pollgap::soft_hca::read_listing();
  return libc(directory);
}

int dirfd(DIR* directory) noexcept {
  static auto* const libc = pollgap::soft_hca::next<int(DIR*)>("dirfd");
  if (directory == pollgap::soft_hca::listing()) return pollgap::soft_hca::kListedFd;
  return libc(directory);
}

int closedir(DIR* directory) {
  static auto* const libc = pollgap::soft_hca::next<int(DIR*)>("closedir");
  return directory == pollgap::soft_hca::listing() ? 0 : libc(directory);
}

// The names that programs built with 64-bit file offsets use; on 64-bit machines all is the same.
static_assert(sizeof(off_t) == 8);
int open64(const char*, int, ...) __attribute__((alias("open")));
int openat64(int, const char*, int, ...) __attribute__((alias("openat")));
int stat64(const char* __restrict, struct stat64* __restrict) noexcept
    __attribute__((alias("stat")));
dirent64* readdir64(DIR*) __attribute__((alias("readdir")));
void* mmap64(void*, size_t, int, int, int, off64_t) noexcept __attribute__((alias("mmap")));

}  // extern "C"
