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

std::string write_files(const std::string& root) {
  std::error_code error;
  for (const File& file : kFiles) {
    const fs::path path = fs::path(root) / file.path;
    fs::create_directories(path.parent_path(), error);
    std::ofstream out(path);
    out << file.content << '\n';
    out.close();
    if (error || !out) return "cannot write " + path.string() + "; is there space left?";
  }
  return "";
}

}  // namespace

std::string SysfsTree::create() {
  const std::string base = base_directory();
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
    owner_pid_ = getpid();
    lock_fd_ = open_directory(path_);
    if (lock_fd_ < 0 || flock(lock_fd_, LOCK_EX | LOCK_NB) != 0) {
      failure = "cannot lock " + path_ + ": " + std::strerror(errno);
    } else {
      failure = write_files(path_);
    }
  }
  raw::close(base_fd);
  if (!failure.empty()) remove();
  return failure;
}

void SysfsTree::remove() {
  if (path_.empty() || owner_pid_ != getpid()) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  path_.clear();
  if (lock_fd_ >= 0) raw::close(lock_fd_);
  lock_fd_ = -1;
}

}  // namespace pollgap::soft_hca
