// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/sysfs_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include "tools/soft-hca/adapter_identity.h"
#include "tools/soft-hca/raw_syscalls.h"

namespace pollgap::soft_hca {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPort = "class/infiniband/mlx5_0/ports/1/";
// High, out of the way of programs that count on low descriptor numbers.
constexpr int kLowestDescriptor = 800;

struct File {
  const char* path;
  const char* content;
};

// abi_version of the class: IB_USER_VERBS_ABI_VERSION of rdma/ib_user_verbs.h; that of the device:
// MLX5_IB_UVERBS_ABI_VERSION of rdma/mlx5-abi.h. `dev` is /dev/null's number, because that is what
// opening the device really opens. A modalias of vendor 15b3, device 101b makes libibverbs take
// libmlx5. The rest is what ibv_devinfo, ibv_query_gid and ibv_query_pkey read.
constexpr File kFiles[] = {
    {"class/infiniband_verbs/abi_version", "6"},
    {"class/infiniband_verbs/uverbs0/ibdev", kDeviceName},
    {"class/infiniband_verbs/uverbs0/dev", "1:3"},
    {"class/infiniband_verbs/uverbs0/abi_version", "1"},
    {"class/infiniband/mlx5_0/node_type", "1: CA"},
    {"class/infiniband/mlx5_0/node_guid", kNodeGuidText},
    {"class/infiniband/mlx5_0/sys_image_guid", kNodeGuidText},
    {"class/infiniband/mlx5_0/node_desc", "pollgap soft mlx5"},
    {"class/infiniband/mlx5_0/fw_ver", kFirmwareVersionText},
    {"class/infiniband/mlx5_0/hca_type", "MT4123"},
    {"class/infiniband/mlx5_0/board_id", "PGP0000000001"},
    {"class/infiniband/mlx5_0/device/vendor", "0x15b3"},
    {"class/infiniband/mlx5_0/device/device", "0x101b"},
    {"class/infiniband/mlx5_0/device/modalias",
     "pci:v000015B3d0000101Bsv000015B3sd00000007bc02sc07i00"},
    {"class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE"},
    {"class/infiniband/mlx5_0/ports/1/phys_state", "5: LinkUp"},
    {"class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand"},
    {"class/infiniband/mlx5_0/ports/1/lid", "0x1"},
    {"class/infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)"},
    {"class/infiniband/mlx5_0/ports/1/hw_counters/lifespan", "10"},
    {"class/infiniband/mlx5_0/ports/1/gids/0", kGidText},
    {"class/infiniband/mlx5_0/ports/1/gid_attrs/types/0", "IB/RoCE v1"},
    {"class/infiniband/mlx5_0/ports/1/pkeys/0", "0xffff"},
};

bool write_file(const fs::path& path, const std::string& content) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  std::ofstream out(path);
  out << content << '\n';
  out.close();
  return !error && out.good();
}

// Calls visit(path, content) for every file, the counters' with 0, until that returns true; returns
// whether it did.
template <typename Visit>
bool find_file(Visit visit) {
  for (const File& file : kFiles) {
    if (visit(std::string(file.path), file.content)) return true;
  }
  for (const CounterFile& file : kCounterFiles) {
    if (visit(std::string(kPort) + file.path, "0")) return true;
  }
  return false;
}

std::string write_files(const std::string& root) {
  std::string failed;
  find_file([&](const std::string& path, const char* content) {
    if (!write_file(fs::path(root) / path, content)) failed = path;
    return !failed.empty();
  });
  return failed.empty() ? "" : "cannot write " + root + "/" + failed + "; is there space left?";
}

// A tmpfs that is mounted nowhere (fsopen(2), fsmount(2); needs CAP_SYS_ADMIN); -1 without one. The
// kernel's headers may be older than the calls: their numbers and flags are those of
// linux/mount.h.
int detached_mount() {
  constexpr long kFsopen = 430;
  constexpr long kFsconfig = 431;
  constexpr long kFsmount = 432;
  constexpr unsigned kCloexec = 1;
  constexpr unsigned kCreate = 6;
  const int context = static_cast<int>(syscall(kFsopen, "tmpfs", kCloexec));
  if (context < 0) return -1;
  int mount = -1;
  if (syscall(kFsconfig, context, kCreate, nullptr, nullptr, 0) == 0) {
    mount = static_cast<int>(syscall(kFsmount, context, kCloexec, 0));
  }
  raw::close(context);
  if (mount < 0) return -1;
  const int high = fcntl(mount, F_DUPFD_CLOEXEC, kLowestDescriptor);
  if (high < 0) return mount;
  raw::close(mount);
  return high;
}

}  // namespace

std::string SysfsTree::create() {
  owner_pid_ = getpid();
  fd_ = detached_mount();
  if (fd_ < 0) {
    path_ = kUnmountedPath;
    return "";
  }
  path_ = "/proc/self/fd/" + std::to_string(fd_);
  fchmod(fd_, 0755);
  std::string failure = write_files(path_);
  if (!failure.empty()) remove();
  return failure;
}

std::string SysfsTree::public_path() const {
  return fd_ < 0 ? "" : "/proc/" + std::to_string(owner_pid_) + "/fd/" + std::to_string(fd_);
}

void SysfsTree::remove() {
  if (path_.empty() || owner_pid_ != getpid()) return;
  path_.clear();
  if (fd_ >= 0) raw::close(fd_);
  fd_ = -1;
}

bool SysfsTree::has(std::string_view path) {
  return find_file([&](const std::string& file, const char*) {
    return file.starts_with(path) && (file.size() == path.size() || file[path.size()] == '/');
  });
}

std::optional<std::string> SysfsTree::content(std::string_view file) const {
  std::optional<std::string> found;
  find_file([&](const std::string& path, const char* text) {
    if (path == file) found = text;
    return found.has_value();
  });
  const Counters* counters = counters_.load();
  for (size_t i = 0; found && counters != nullptr && i < kCounters; ++i) {
    if (file != std::string(kPort) + kCounterFiles[i].path) continue;
    found = std::to_string(counters->get(static_cast<Counter>(i)) / kCounterFiles[i].divisor);
  }
  if (found) *found += '\n';
  return found;
}

void SysfsTree::write_counters(const Counters& counters) {
  counters_.store(&counters);
  if (fd_ < 0) return;
  for (size_t i = 0; i < kCounters; ++i) {
    const uint64_t value = counters.get(static_cast<Counter>(i)) / kCounterFiles[i].divisor;
    if (value == written_[i]) continue;
    // In place, in one write: a reader sees the old number or the new one.
    const std::string path = path_ + "/" + std::string(kPort) + kCounterFiles[i].path;
    const std::string text = std::to_string(value) + "\n";
    const int fd = raw::openat(AT_FDCWD, path.c_str(), O_WRONLY | O_CLOEXEC, 0);
    if (fd < 0) continue;
    if (pwrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size())) {
      written_[i] = value;
    }
    raw::close(fd);
  }
}

}  // namespace pollgap::soft_hca
