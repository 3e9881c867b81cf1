// SPDX-License-Identifier: Apache-2.0
#include "probes/process.h"

#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <sstream>

#include "probes/target_memory.h"

namespace pollgap {
namespace {

// proc files report a size of 0 and give the text of one moment per read(2).
std::string read_text(int fd, size_t limit) {
  std::string text;
  std::array<char, 65536> buffer;
  while (text.size() < limit) {
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  return text;
}

constexpr size_t small_file_bytes = 1 << 20;
constexpr size_t map_file_bytes = 1 << 28;

std::string read_file(const std::string& path) {
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return fd ? read_text(fd.get(), small_file_bytes) : std::string();
}

std::string read_link(const std::string& path) {
  std::array<char, 4096> target;
  const ssize_t bytes = readlink(path.c_str(), target.data(), target.size());
  return bytes > 0 ? std::string(target.data(), static_cast<size_t>(bytes)) : std::string();
}

// The numbered entries of a proc directory.
std::set<int> numbered_entries(const std::string& directory) {
  std::set<int> numbers;
  DIR* dir = opendir(directory.c_str());
  if (dir == nullptr) return numbers;
  while (const dirent* entry = readdir(dir)) {
    const char* end = entry->d_name + strlen(entry->d_name);
    int value = 0;
    const auto [rest, error] = std::from_chars(entry->d_name, end, value);
    if (error == std::errc() && rest == end) numbers.insert(value);
  }
  closedir(dir);
  return numbers;
}

// proc_pid_stat(5), by the numbers of its fields.
class Stat {
 public:
  explicit Stat(const std::string& text) {
    // The command name may hold blanks and parentheses; the last ")" ends it.
    const size_t open = text.find('(');
    const size_t close = text.rfind(')');
    if (open == std::string::npos || close == std::string::npos || close < open) return;
    comm_ = text.substr(open + 1, close - open - 1);
    std::istringstream rest(text.substr(close + 1));
    for (std::string word; rest >> word;) words_.push_back(word);
  }
  explicit operator bool() const { return words_.size() > 39; }
  const std::string& comm() const { return comm_; }
  std::string text(size_t field) const {
    const size_t index = field - 3;
    return index < words_.size() ? words_[index] : std::string();
  }
  int64_t number(size_t field) const {
    const std::string word = text(field);
    int64_t value = 0;
    std::from_chars(word.data(), word.data() + word.size(), value);
    return value;
  }

 private:
  std::string comm_;
  std::vector<std::string> words_;  // from field 3 on
};

constexpr size_t field_state = 3, field_flags = 9, field_user_ticks = 14, field_system_ticks = 15,
                 field_nice = 19, field_start_ticks = 22, field_cpu = 39, field_rt_priority = 40,
                 field_policy = 41;
constexpr int64_t kernel_thread_flag = 0x00200000;  // PF_KTHREAD, include/linux/sched.h

std::string policy_name(int64_t policy) {
  switch (policy) {
    case SCHED_OTHER:
      return "SCHED_OTHER";
    case SCHED_FIFO:
      return "SCHED_FIFO";
    case SCHED_RR:
      return "SCHED_RR";
    case SCHED_BATCH:
      return "SCHED_BATCH";
    case SCHED_IDLE:
      return "SCHED_IDLE";
    case SCHED_DEADLINE:
      return "SCHED_DEADLINE";
    default:
      return "policy " + std::to_string(policy);
  }
}

// The value of a "Name:\tvalue" line of proc_pid_status(5).
std::string status_value(const std::string& status, const std::string& name) {
  const std::string key = "\n" + name + ":\t";
  const size_t at = status.find(key);
  if (at == std::string::npos) return {};
  const size_t begin = at + key.size();
  return status.substr(begin, status.find('\n', begin) - begin);
}

double uptime_seconds() {
  double seconds = 0;
  std::istringstream(read_file("/proc/uptime")) >> seconds;
  return seconds;
}

std::string describe(pid_t pid) { return "process " + std::to_string(pid); }

Error no_such_process(pid_t pid) {
  return {ExitCode::no_process, "no " + describe(pid) + ": give the PID of a running process"};
}

Error access_error(pid_t pid, const std::string& what, int error) {
  if (error == EACCES || error == EPERM) {
    return {ExitCode::no_privilege, "cannot read " + what + " of " + describe(pid) + ": " +
                                        strerror(error) + "; run as root or with CAP_SYS_PTRACE"};
  }
  if (error == ENOENT || error == ESRCH) {
    return {ExitCode::no_process, describe(pid) + " exited while it was being looked at"};
  }
  return {ExitCode::other, "cannot read " + what + " of " + describe(pid) + ": " + strerror(error)};
}

// A PID that pidfd_open(2) takes for something else than a live process.
Status check_kind(pid_t pid, const Stat& stat, const std::string& status) {
  if (!stat) return no_such_process(pid);
  const std::string group = status_value(status, "Tgid");
  if (!group.empty() && group != std::to_string(pid)) {
    return Error{ExitCode::no_process, std::to_string(pid) + " is a thread of process " + group +
                                           ": pass --pid " + group + " --tid " +
                                           std::to_string(pid)};
  }
  const std::string state = stat.text(field_state);
  if (state == "Z" || state == "X") {
    return Error{ExitCode::no_process, describe(pid) + " (" + stat.comm() +
                                           ") has exited and waits to be reaped: nothing to attach "
                                           "to"};
  }
  if ((stat.number(field_flags) & kernel_thread_flag) != 0) {
    return Error{ExitCode::no_process, describe(pid) + " (" + stat.comm() +
                                           ") is a kernel thread: it polls no verbs queue"};
  }
  return std::nullopt;
}

// The ELF machine of the program, when it is one that this build can observe.
Result<uint16_t> observable_machine(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/exe";
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return access_error(pid, "the program", errno);
  std::array<unsigned char, sizeof(Elf64_Ehdr)> header{};
  if (pread(fd.get(), header.data(), header.size(), 0) != static_cast<ssize_t>(header.size()) ||
      memcmp(header.data(), ELFMAG, SELFMAG) != 0) {
    return Error{ExitCode::other, "the program of " + describe(pid) + " is not an ELF file"};
  }
  if (header[EI_CLASS] != ELFCLASS64) {
    return Error{ExitCode::other,
                 describe(pid) + " is a 32-bit program: only 64-bit programs can be observed"};
  }
  Elf64_Ehdr parsed;
  memcpy(&parsed, header.data(), sizeof(parsed));
#if defined(__x86_64__)
  constexpr uint16_t own_machine = EM_X86_64;
#elif defined(__aarch64__)
  constexpr uint16_t own_machine = EM_AARCH64;
#else
#error "name the ELF machine of this architecture"
#endif
  if (header[EI_DATA] != ELFDATA2LSB || parsed.e_machine != own_machine) {
    return Error{ExitCode::other, "the program of " + describe(pid) +
                                      " is built for another architecture (ELF machine " +
                                      std::to_string(parsed.e_machine) +
                                      "), probably run by an emulator: it cannot be observed"};
  }
  return parsed.e_machine;
}

FileDescriptor open_below(int directory, const std::string& path) {
  open_how how{};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  return FileDescriptor(
      static_cast<int>(syscall(SYS_openat2, directory, path.c_str(), &how, sizeof(how))));
}

bool is_regular(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

ThreadInfo describe_thread(const std::string& directory, pid_t tid, double uptime,
                           double ticks_per_second) {
  ThreadInfo thread;
  thread.tid = tid;
  const Stat stat(read_file(directory + "/stat"));
  if (!stat) return thread;
  thread.comm = stat.comm();
  thread.state = stat.text(field_state);
  thread.last_cpu = static_cast<int>(stat.number(field_cpu));
  thread.policy = policy_name(stat.number(field_policy));
  const int64_t rt_priority = stat.number(field_rt_priority);
  thread.priority = static_cast<int>(rt_priority != 0 ? rt_priority : stat.number(field_nice));
  thread.cpus = status_value(read_file(directory + "/status"), "Cpus_allowed_list");
  const double lived =
      uptime - static_cast<double>(stat.number(field_start_ticks)) / ticks_per_second;
  const double ran =
      static_cast<double>(stat.number(field_user_ticks) + stat.number(field_system_ticks)) /
      ticks_per_second;
  // Both clocks tick coarsely: a thread a few milliseconds old may seem to have run longer.
  thread.cpu_share = lived > 0 ? std::min(1.0, ran / lived) : 0;
  return thread;
}

}  // namespace

std::string Process::proc(const std::string& name) const {
  return "/proc/" + std::to_string(pid_) + "/" + name;
}

Result<Process> Process::open(pid_t pid) {
  if (pid <= 0) return no_such_process(pid);
  Process process;
  process.pid_ = pid;
  process.pidfd_ = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  const int pidfd_error = errno;
  const Stat stat(read_file(process.proc("stat")));
  if (Status wrong = check_kind(pid, stat, read_file(process.proc("status")))) return *wrong;
  if (!process.pidfd_) {
    if (pidfd_error == ENOSYS) {
      return Error{ExitCode::kernel_lacks,
                   "the kernel lacks pidfd_open: Linux 5.3 or newer is needed"};
    }
    return no_such_process(pid);
  }
  process.start_time_ = static_cast<uint64_t>(stat.number(field_start_ticks));
  auto machine = observable_machine(pid);
  if (!machine) return machine.error();
  process.elf_machine_ = *machine;
  process.executable_ = read_link(process.proc("exe"));
  // The files read since were those of the process that the descriptor holds only if it lives.
  if (!process.is_alive()) return no_such_process(pid);
  return process;
}

bool Process::is_alive() const {
  pollfd event{pidfd_.get(), POLLIN, 0};
  return ::poll(&event, 1, 0) == 0;
}

bool Process::has_memory() const { return is_alive() && !read_link(proc("exe")).empty(); }

Result<MemoryMap> Process::memory_map() const {
  const FileDescriptor fd(::open(proc("maps").c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return access_error(pid_, "the memory map", errno);
  MemoryMap map = MemoryMap::parse(read_text(fd.get(), map_file_bytes));
  if (!is_alive()) return access_error(pid_, "the memory map", ESRCH);
  return map;
}

std::vector<ThreadInfo> Process::threads() const {
  const double uptime = uptime_seconds();
  const auto ticks_per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  std::vector<ThreadInfo> threads;
  for (const int tid : numbered_entries(proc("task"))) {
    ThreadInfo thread =
        describe_thread(proc("task/" + std::to_string(tid)), tid, uptime, ticks_per_second);
    if (!thread.state.empty()) threads.push_back(std::move(thread));
  }
  return threads;
}

std::set<int> Process::open_fds() const { return numbered_entries(proc("fd")); }

std::set<int> Process::uverbs_fds() const {
  std::set<int> found;
  for (const int fd : open_fds()) {
    if (read_link(proc("fd/" + std::to_string(fd))).starts_with("/dev/infiniband/uverbs")) {
      found.insert(fd);
    }
  }
  return found;
}

Status Process::check_memory_access(const MemoryMap& map) const {
  for (const Mapping& mapping : map.mappings()) {
    if (!mapping.readable || !mapping.executable || !mapping.is_file()) continue;
    std::byte byte;
    const iovec local{&byte, 1};
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of another process
    const iovec remote{reinterpret_cast<void*>(mapping.start), 1};
    if (process_vm_readv(pid_, &local, 1, &remote, 1, 0) < 0 && errno != EFAULT) {
      return access_error(pid_, "the memory", errno);
    }
    break;
  }
  return std::nullopt;
}

std::unique_ptr<MemoryReader> Process::memory() const {
  return std::make_unique<TargetMemory>(pid_);
}

Result<Process::OpenedFile> Process::open_mapped_file(const Mapping& mapping) const {
  std::ostringstream link;
  link << "map_files/" << std::hex << mapping.start << "-" << mapping.end;
  OpenedFile opened;
  opened.path = proc(link.str());
  // O_NONBLOCK: the mapping may be of a device or a FIFO, which must not make the agent wait.
  opened.fd =
      FileDescriptor(::open(opened.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (opened.fd && is_regular(opened.fd.get())) return opened;
  const int error = opened.fd ? EINVAL : errno;

  opened.path = proc("root") + mapping.path;
  if (!mapping.deleted) opened.fd = open_in_root(mapping.path);
  struct stat info {};
  if (opened.fd && is_regular(opened.fd.get()) && fstat(opened.fd.get(), &info) == 0 &&
      info.st_ino == mapping.inode) {
    return opened;
  }
  Error failed = access_error(pid_, mapping.path, error);
  if (failed.code == ExitCode::no_process && is_alive()) failed.code = ExitCode::other;
  return failed;
}

FileDescriptor Process::open_in_root(const std::string& path) const {
  const FileDescriptor root(::open(proc("root").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root) return {};
  return open_below(root.get(), path);
}

}  // namespace pollgap
