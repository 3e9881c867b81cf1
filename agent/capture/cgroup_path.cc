// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/cgroup_path.h"

#include <fcntl.h>
#include <mntent.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <memory>

namespace pollgap {
namespace {

// include/linux/exportfs.h: FILEID_KERNFS, a 64-bit node id.
constexpr int kFileidKernfs = 0xfe;

std::string open_path(int mount, uint64_t id) {
  alignas(file_handle) std::array<unsigned char, sizeof(file_handle) + sizeof(id)> bytes{};
  auto* handle = reinterpret_cast<file_handle*>(bytes.data());
  handle->handle_bytes = sizeof(id);
  handle->handle_type = kFileidKernfs;
  std::memcpy(handle->f_handle, &id, sizeof(id));
  const FileDescriptor directory(open_by_handle_at(mount, handle, O_PATH | O_CLOEXEC));
  if (!directory) return {};
  std::array<char, 4096> target{};
  const std::string link = "/proc/self/fd/" + std::to_string(directory.get());
  const ssize_t length = readlink(link.c_str(), target.data(), target.size());
  return length > 0 ? std::string(target.data(), static_cast<size_t>(length)) : std::string();
}

}  // namespace

CgroupMounts::CgroupMounts() {
  const std::unique_ptr<FILE, int (*)(FILE*)> table(setmntent("/proc/self/mounts", "r"), endmntent);
  if (!table) return;
  while (const mntent* entry = getmntent(table.get())) {
    const bool second = std::strcmp(entry->mnt_type, "cgroup2") == 0;
    if (!second && std::strcmp(entry->mnt_type, "cgroup") != 0) continue;
    FileDescriptor directory(open(entry->mnt_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory) continue;
    Mount mount{entry->mnt_dir, std::move(directory)};
    if (!second && hasmntopt(entry, "cpu") != nullptr) {
      cpu_version_ = 1;
      mounts_.insert(mounts_.begin(), std::move(mount));
      continue;
    }
    if (second && cpu_version_ == 0) cpu_version_ = 2;
    mounts_.push_back(std::move(mount));
  }
}

std::string CgroupMounts::path(uint64_t id) const {
  for (const Mount& mount : mounts_) {
    const std::string found = open_path(mount.directory.get(), id);
    if (found == mount.where) return "/";
    if (found.size() > mount.where.size() && found.starts_with(mount.where + "/"))
      return found.substr(mount.where.size());
  }
  return {};
}

}  // namespace pollgap
