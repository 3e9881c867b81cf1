// SPDX-License-Identifier: Apache-2.0
// Rules: Documentation/admin-guide/cgroup-v2.rst (threads), Documentation/scheduler/sched-bwc.rst,
// Documentation/scheduler/sched-rt-group.rst.
#include "tools/workload/cpu_cgroup.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <mntent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "tools/workload/file_descriptor.h"
#include "tools/workload/monotonic.h"

namespace pollgap::workload {
namespace {

Status write_file(const std::string& path, const std::string& text) {
  const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size())) {
    return std::nullopt;
  }
  return Error{errno == EACCES || errno == EPERM ? ExitCode::no_privilege : ExitCode::kernel_lacks,
               fmt::format("cannot write \"{}\" to {}: {}", text, path, std::strerror(errno))};
}

bool has_word(const std::string& words, const std::string& word, char separator) {
  std::stringstream stream(words);
  std::string one;
  while (std::getline(stream, one, separator)) {
    if (one == word) return true;
  }
  return false;
}

// Where a hierarchy is mounted: v1 by its controller, v2 by its type. Empty: nowhere.
std::string mount_of(bool v2) {
  FILE* const mounts = setmntent("/proc/self/mounts", "r");
  if (mounts == nullptr) return "";
  std::string found;
  while (const mntent* entry = getmntent(mounts)) {
    const std::string type = entry->mnt_type;
    const bool fits =
        v2 ? type == "cgroup2" : type == "cgroup" && has_word(entry->mnt_opts, "cpu", ',');
    if (fits && found.empty()) found = entry->mnt_dir;
  }
  endmntent(mounts);
  return found;
}

// This process's group in a hierarchy; lines are ID:CONTROLLERS:PATH, and 0::PATH for v2.
std::string own_group(bool v2) {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (v2 ? line.rfind("0::", 0) == 0 : has_word(controllers, "cpu", ',')) {
      const std::string path = line.substr(second + 1);
      return path == "/" ? "" : path;
    }
  }
  return "";
}

std::string first_line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

Result<std::unique_ptr<CpuCgroup>> CpuCgroup::create(const std::string& name) {
  std::unique_ptr<CpuCgroup> group(new CpuCgroup);
  std::string mount = mount_of(false);
  group->v2_ = mount.empty();
  if (group->v2_) mount = mount_of(true);
  if (mount.empty()) {
    return Error{ExitCode::kernel_lacks, "no cgroup hierarchy with the cpu controller is mounted"};
  }
  const std::string parent = own_group(group->v2_);
  if (group->v2_ && !has_word(first_line_of(mount + parent + "/cgroup.controllers"), "cpu", ' ')) {
    return Error{ExitCode::kernel_lacks,
                 fmt::format("the cgroup {}{} has no cpu controller", mount, parent)};
  }
  if (Status error = group->make(mount, parent, name)) return *error;
  return group;
}

Status CpuCgroup::make(const std::string& mount, const std::string& parent,
                       const std::string& name) {
  parent_directory_ = mount + parent;
  path_ = parent + "/" + name;
  directory_ = mount + path_;
  if (mkdir(directory_.c_str(), 0755) != 0) {
    return Error{
        errno == EACCES || errno == EPERM ? ExitCode::no_privilege : ExitCode::kernel_lacks,
        fmt::format("cannot make the cgroup {}: {}", directory_, std::strerror(errno))};
  }
  made_ = true;
  return v2_ ? make_threaded() : std::nullopt;
}

// A threaded group may have some of a process's threads while the others stay in its parent.
Status CpuCgroup::make_threaded() {
  if (Status error = write("cgroup.type", "threaded")) return error;
  const std::string subtree = parent_directory_ + "/cgroup.subtree_control";
  if (has_word(first_line_of(subtree), "cpu", ' ')) return std::nullopt;
  if (Status error = write_file(subtree, "+cpu")) return error;
  enabled_controller_ = true;
  return std::nullopt;
}

CpuCgroup::~CpuCgroup() {
  remove_threads();
  if (!made_) return;
  rmdir(directory_.c_str());
  if (enabled_controller_) (void)write_file(parent_directory_ + "/cgroup.subtree_control", "-cpu");
}

Status CpuCgroup::write(const std::string& file, const std::string& text) const {
  return write_file(directory_ + "/" + file, text);
}

Status CpuCgroup::add_thread(pid_t tid) {
  Status error = write(v2_ ? "cgroup.threads" : "tasks", std::to_string(tid));
  if (!error) tids_.push_back(tid);
  return error;
}

void CpuCgroup::remove_threads() {
  // Fails when a thread is gone already, which is as good.
  for (const pid_t tid : tids_) {
    (void)write_file(parent_directory_ + (v2_ ? "/cgroup.threads" : "/tasks"), std::to_string(tid));
  }
  tids_.clear();
}

Status CpuCgroup::set_largest_weight() {
  return v2_ ? write("cpu.weight", "10000") : write("cpu.shares", "262144");
}

Status CpuCgroup::set_quota(uint64_t quota_ns, uint64_t period_ns) {
  const uint64_t quota_us = quota_ns / ns_per_us;
  const uint64_t period_us = period_ns / ns_per_us;
  if (v2_) return write("cpu.max", fmt::format("{} {}", quota_us, period_us));
  if (Status error = write("cpu.cfs_period_us", std::to_string(period_us))) return error;
  return write("cpu.cfs_quota_us", std::to_string(quota_us));
}

Status CpuCgroup::set_real_time_quota(uint64_t runtime_ns, uint64_t period_ns) {
  if (v2_) return Error{ExitCode::kernel_lacks, "cgroup v2 has no real-time quota"};
  if (Status error = write("cpu.rt_period_us", std::to_string(period_ns / ns_per_us))) return error;
  return write("cpu.rt_runtime_us", std::to_string(runtime_ns / ns_per_us));
}

CpuCgroup::Throttling CpuCgroup::throttling() const {
  std::ifstream file(directory_ + "/cpu.stat");
  Throttling throttling;
  std::string key;
  uint64_t value = 0;
  while (file >> key >> value) {
    if (key == "nr_throttled") throttling.count = value;
    if (key == "throttled_time") throttling.total_ns = value;              // v1
    if (key == "throttled_usec") throttling.total_ns = value * ns_per_us;  // v2
  }
  return throttling;
}

}  // namespace pollgap::workload
