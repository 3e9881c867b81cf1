// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/uprobe_links.h"

#include <bpf/bpf.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>

namespace pollgap {
namespace {

constexpr int kLinkCreate = 28;             // BPF_LINK_CREATE
constexpr uint32_t kTraceUprobeMulti = 48;  // BPF_TRACE_UPROBE_MULTI
constexpr uint32_t kUprobeMultiReturn = 1;  // BPF_F_UPROBE_MULTI_RETURN

constexpr uint64_t kUprobeAtReturn = 1;  // of the uprobe event's configuration: format/retprobe

// union bpf_attr's link_create.uprobe_multi, include/uapi/linux/bpf.h since 6.6; declared here
// because the build host's header may be older.
struct LinkCreateUprobeMulti {
  uint32_t prog_fd;
  uint32_t target_fd;
  uint32_t attach_type;
  uint32_t flags;
  uint64_t path;
  uint64_t offsets;
  uint64_t ref_ctr_offsets;
  uint64_t cookies;
  uint32_t count;
  uint32_t multi_flags;
  uint32_t pid;
  uint32_t padding;
};

// The number of the kernel's event source for uprobes.
Result<uint32_t> uprobe_event_type() {
  static const uint32_t type = [] {
    uint32_t number = 0;
    std::ifstream("/sys/bus/event_source/devices/uprobe/type") >> number;
    return number;
  }();
  if (type != 0) return type;
  return Error{ExitCode::kernel_lacks,
               "the kernel has no uprobes (/sys/bus/event_source/devices/uprobe is not there): "
               "pollgap needs CONFIG_UPROBE_EVENTS"};
}

Error attach_error(int error, const std::string& path, uint64_t offset) {
  char place[32];
  std::snprintf(place, sizeof(place), "+0x%llx", static_cast<unsigned long long>(offset));
  const std::string what = path + place;
  if (error == EPERM || error == EACCES) {
    return {ExitCode::no_privilege,
            "the kernel refused a uprobe at " + what +
                ": run pollgap as root, or give it CAP_BPF and CAP_PERFMON"};
  }
  if (error == ESRCH)
    return {ExitCode::no_process, "the target exited while pollgap attached to it"};
  if (error == ENOENT) {  // the path is one of /proc/PID/map_files
    return {ExitCode::no_process, what +
                                      " is no longer mapped: the target called exec, or unloaded "
                                      "it, while pollgap attached; attach again"};
  }
  return {ExitCode::other, "cannot place a uprobe at " + what + ": " + std::strerror(error)};
}

}  // namespace

Status UprobeLinks::attach(const bpf_program* program, bool at_return,
                           const std::vector<UprobePlace>& places) {
  if (!multi_) {
    for (const UprobePlace& place : places)
      if (Status failed = attach_one(program, at_return, place)) return failed;
    return std::nullopt;
  }
  std::map<std::string, std::vector<UprobePlace>> by_file;
  for (const UprobePlace& place : places) by_file[place.path].push_back(place);
  for (const auto& [path, in_file] : by_file)
    if (Status failed = attach_multi(program, at_return, path, in_file)) return failed;
  return std::nullopt;
}

Status UprobeLinks::attach_multi(const bpf_program* program, bool at_return,
                                 const std::string& path, const std::vector<UprobePlace>& places) {
  std::vector<uint64_t> offsets;
  std::vector<uint64_t> cookies;
  for (const UprobePlace& place : places) {
    offsets.push_back(place.offset);
    cookies.push_back(place.cookie);
  }
  LinkCreateUprobeMulti attributes{};
  attributes.prog_fd = static_cast<uint32_t>(bpf_program__fd(program));
  attributes.attach_type = kTraceUprobeMulti;
  attributes.path = reinterpret_cast<uint64_t>(path.c_str());
  attributes.offsets = reinterpret_cast<uint64_t>(offsets.data());
  attributes.cookies = reinterpret_cast<uint64_t>(cookies.data());
  attributes.count = static_cast<uint32_t>(places.size());
  attributes.multi_flags = at_return ? kUprobeMultiReturn : 0;
  attributes.pid = static_cast<uint32_t>(pid_);
  const long fd = syscall(SYS_bpf, kLinkCreate, &attributes, sizeof(attributes));
  if (fd < 0) return attach_error(errno, path, offsets.front());
  links_.emplace_back(static_cast<int>(fd));
  count_ += places.size();
  return std::nullopt;
}

// The event stays disabled: its program runs where the breakpoint is hit all the same, and an event
// that is enabled is switched in and out with the thread whose ID was given (uprobe_perf_func in
// kernel/trace/trace_uprobe.c; ctx_sched_in in kernel/events/core.c).
Status UprobeLinks::attach_one(const bpf_program* program, bool at_return,
                               const UprobePlace& place) {
  const Result<uint32_t> type = uprobe_event_type();
  if (!type) return type.error();
  perf_event_attr attributes{};
  attributes.type = *type;
  attributes.size = sizeof(attributes);
  attributes.config = at_return ? kUprobeAtReturn : 0;
  attributes.uprobe_path = reinterpret_cast<uint64_t>(place.path.c_str());
  attributes.probe_offset = place.offset;
  attributes.disabled = 1;
  const FileDescriptor event(static_cast<int>(
      syscall(SYS_perf_event_open, &attributes, pid_, -1, -1, PERF_FLAG_FD_CLOEXEC)));
  if (event.get() < 0) return attach_error(errno, place.path, place.offset);
  LIBBPF_OPTS(bpf_link_create_opts, options, .perf_event = {.bpf_cookie = place.cookie});
  const int link = bpf_link_create(bpf_program__fd(program), event.get(), BPF_PERF_EVENT, &options);
  if (link < 0) return attach_error(-link, place.path, place.offset);
  links_.emplace_back(link);
  ++count_;
  return std::nullopt;
}

// Each link is closed last by a child, when that exits. With a fatal signal pending the kernel
// cannot reach the target's memory and leaves the breakpoints in it ("failed to unregister, leaking
// uprobe", kernel/events/uprobes.c); none is pending in a process that exits, and none comes any
// more. Killed at any moment, this process ends, and so then does the child.
void UprobeLinks::detach() {
  if (count_ == 0) return;
  std::array<int, 2> alive{-1, -1};
  const pid_t child = pipe2(alive.data(), O_CLOEXEC) == 0 ? fork() : -1;
  if (child == 0) {
    close(alive[1]);
    char none = 0;
    while (read(alive[0], &none, 1) < 0 && errno == EINTR) {
    }
    _exit(0);
  }
  links_.clear();
  count_ = 0;
  for (const int end : alive)
    if (end >= 0) close(end);
  while (child > 0 && waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace pollgap
