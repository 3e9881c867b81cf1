// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/sysfs_tree.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "tools/soft-hca/adapter_identity.h"
#include "tools/soft-hca/raw_syscalls.h"

namespace pollgap::soft_hca {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "pollgap-soft-hca.";

constexpr char kPort[] = "class/infiniband/mlx5_0/ports/1/";
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

std::string base_directory() {
  if (access("/dev/shm", W_OK | X_OK) == 0) return "/dev/shm";
  const char* temporary = std::getenv("TMPDIR");
  return temporary != nullptr && temporary[0] == '/' ? temporary : "/tmp";
}

int open_directory(const std::string& path) {
  return raw::openat(AT_FDCWD, path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW, 0);
}

// Called with the base directory locked, so that no tree is half made.
void remove_stale_trees(const std::string& base) {
  std::error_code ignored;
  std::vector<fs::path> stale;
  for (const auto& entry : fs::directory_iterator(base, ignored)) {
    if (entry.path().filename().string().rfind(kPrefix, 0) != 0) continue;
    const int fd = open_directory(entry.path());
    if (fd < 0) continue;  // another user's
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) stale.push_back(entry.path());
    raw::close(fd);
  }
  for (const auto& path : stale) fs::remove_all(path, ignored);
}

bool write_file(const fs::path& path, const std::string& content) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  std::ofstream out(path);
  out << content << '\n';
  out.close();
  return !error && out.good();
}

std::string write_files(const std::string& root) {
  std::string failed;
  const auto write = [&](const std::string& path, const std::string& content) {
    if (failed.empty() && !write_file(fs::path(root) / path, content)) failed = path;
  };
  for (const File& file : kFiles) write(file.path, file.content);
  for (const CounterFile& file : kCounterFiles) write(kPort + std::string(file.path), "0");
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

std::string SysfsTree::create(const std::string& parent) {
  owner_pid_ = getpid();
  if (!parent.empty()) return create_directory(parent);
  fd_ = detached_mount();
  if (fd_ < 0) return create_directory(base_directory());
  mounted_ = true;
  path_ = "/proc/self/fd/" + std::to_string(fd_);
  fchmod(fd_, 0755);
  std::string failure = write_files(path_);
  if (!failure.empty()) remove();
  return failure;
}

std::string SysfsTree::create_directory(const std::string& base) {
  const int base_fd = open_directory(base);
  if (base_fd < 0) return "cannot open " + base + ": " + std::strerror(errno);
  flock(base_fd, LOCK_EX);
  remove_stale_trees(base);

  std::string name = base + "/" + kPrefix + "XXXXXX";
  std::string failure;
  if (mkdtemp(name.data()) == nullptr) {
    failure = "cannot make a directory in " + base + ": " + std::strerror(errno);
  } else {
    path_ = name;
    fd_ = open_directory(path_);
    if (fd_ < 0 || flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      failure = "cannot lock " + path_ + ": " + std::strerror(errno);
    } else {
      failure = write_files(path_);
    }
  }
  raw::close(base_fd);
  if (!failure.empty()) remove();
  return failure;
}

std::string SysfsTree::public_path() const {
  return mounted_ ? "/proc/" + std::to_string(owner_pid_) + "/fd/" + std::to_string(fd_) : path_;
}

void SysfsTree::remove() {
  if (path_.empty() || owner_pid_ != getpid()) return;
  std::error_code ignored;
  if (!mounted_) fs::remove_all(path_, ignored);
  path_.clear();
  if (fd_ >= 0) raw::close(fd_);
  fd_ = -1;
}

void SysfsTree::write_counters(const Counters& counters) {
  for (size_t i = 0; i < kCounters; ++i) {
    const uint64_t value = counters.get(static_cast<Counter>(i)) / kCounterFiles[i].divisor;
    if (value == written_[i]) continue;
    // In place, in one write: a reader sees the old number or the new one.
    const std::string path = path_ + "/" + kPort + kCounterFiles[i].path;
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
