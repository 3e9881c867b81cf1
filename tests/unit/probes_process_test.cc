// SPDX-License-Identifier: Apache-2.0
#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "probes/discovery.h"
#include "probes/process.h"

namespace pollgap {
namespace {

// A child process that waits until it is killed.
class Child {
 public:
  explicit Child(const char* program = nullptr) : pid_(fork()) {
    if (pid_ != 0) return;
    if (program != nullptr) execl(program, program, static_cast<char*>(nullptr));
    for (;;) pause();
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

void wait_for_state(pid_t pid, char state) {
  for (int i = 0; i < 1000; ++i) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text{std::istreambuf_iterator<char>(file), {}};
    const size_t close = text.rfind(')');
    if (close != std::string::npos && text.size() > close + 2 && text[close + 2] == state) return;
    usleep(5000);
  }
  FAIL() << "process " << pid << " never came to state " << state;
}

TEST(MemoryMap, ParsesWhatTheKernelWrites) {
  const MemoryMap map = MemoryMap::parse(
      "555500000000-555500001000 r--p 00000000 fe:01 1234                       /usr/bin/a b\n"
      "555500001000-555500003000 r-xp 00001000 fe:01 1234                       /usr/bin/a b\n"
      "555500003000-555500004000 rw-p 00000000 00:00 0                          [heap]\n"
      "7f0000000000-7f0000001000 rw-s 00000000 00:05 77                         /dev/x (deleted)\n"
      "7f0000002000-7f0000003000 rw-p 00000000 00:00 0 \n"
      "7f0000004000-7f0000005000 r-xp 00000000 fe:01 9                          /tmp/a\\012b\n");
  ASSERT_EQ(map.mappings().size(), 6u);
  EXPECT_EQ(map.mappings()[0].path, "/usr/bin/a b");
  EXPECT_TRUE(map.mappings()[1].executable);
  EXPECT_EQ(map.mappings()[1].offset, 0x1000u);
  EXPECT_FALSE(map.mappings()[2].is_file());
  EXPECT_TRUE(map.mappings()[3].deleted);
  EXPECT_TRUE(map.mappings()[3].shared);
  EXPECT_EQ(map.mappings()[3].path, "/dev/x");
  EXPECT_EQ(map.mappings()[4].path, "");
  EXPECT_EQ(map.mappings()[5].path, "/tmp/a\nb");

  EXPECT_EQ(map.find(0x555500001000), &map.mappings()[1]);
  EXPECT_EQ(map.find(0x555500002fff), &map.mappings()[1]);
  EXPECT_EQ(map.find(0x7f0000001000), nullptr);
  EXPECT_EQ(map.find(0), nullptr);
  EXPECT_EQ(map.find(UINT64_MAX), nullptr);
  EXPECT_EQ(map.find_executable(map.mappings()[0], 0x2fff), &map.mappings()[1]);
  EXPECT_EQ(map.find_executable(map.mappings()[0], 0xfff), nullptr);
}

TEST(MemoryMap, SkipsWhatIsNoLineOfIt) {
  EXPECT_TRUE(MemoryMap::parse("").mappings().empty());
  EXPECT_TRUE(MemoryMap::parse("\n\n-\n0-0\nzz-yy rwxp 0 0:0 0\n").mappings().empty());
  EXPECT_TRUE(MemoryMap::parse("2000-1000 rwxp 00000000 00:00 0\n").mappings().empty());
  EXPECT_TRUE(MemoryMap::parse("1000-2000 rw 00000000 00:00 0\n").mappings().empty());
  EXPECT_TRUE(MemoryMap::parse("1000-12345678901234567 rwxp 0 00:00 0\n").mappings().empty());
  // Overlapping ones cannot be.
  EXPECT_EQ(
      MemoryMap::parse("1000-3000 rwxp 0 00:00 0\n2000-4000 rwxp 0 00:00 0\n").mappings().size(),
      1u);
  EXPECT_EQ(
      MemoryMap::parse("1000-2000 rwxp 0 00:00 0\n2000-3000 rwxp 0 00:00 0\n", 1).mappings().size(),
      1u);
}

TEST(ProcessOpen, Self) {
  const auto process = Process::open(getpid());
  ASSERT_TRUE(process) << process.error().message;
  EXPECT_TRUE(process->is_alive());
  EXPECT_EQ(process->executable(), std::filesystem::read_symlink("/proc/self/exe").string());
  EXPECT_GT(process->start_time(), 0u);
  const auto map = process->memory_map();
  ASSERT_TRUE(map);
  const int local = 4711;
  EXPECT_EQ(process->memory()->load<int>(reinterpret_cast<uint64_t>(&local)), 4711);
  EXPECT_FALSE(process->memory()->load<int>(8));
  EXPECT_TRUE(process->open_fds().contains(0));
  EXPECT_TRUE(process->uverbs_fds().empty());
}

TEST(ProcessOpen, Threads) {
  std::atomic<pid_t> tid = 0;
  std::atomic<bool> done = false;
  std::thread other([&] {
    pthread_setname_np(pthread_self(), "a ) b (");
    tid = static_cast<pid_t>(syscall(SYS_gettid));
    while (!done) {
    }
  });
  while (tid == 0) usleep(1000);
  const auto threads = Process::open(getpid())->threads();
  const auto found = std::find_if(threads.begin(), threads.end(),
                                  [&](const ThreadInfo& thread) { return thread.tid == tid; });
  const auto as_process = Process::open(tid);
  done = true;
  other.join();
  ASSERT_NE(found, threads.end());
  EXPECT_EQ(found->comm, "a ) b (");
  EXPECT_EQ(found->policy, "SCHED_OTHER");
  EXPECT_GE(found->last_cpu, 0);
  EXPECT_FALSE(found->cpus.empty());
  EXPECT_GE(found->cpu_share, 0);
  EXPECT_LE(found->cpu_share, 1);
  // A thread's id is not a process's.
  ASSERT_FALSE(as_process);
  EXPECT_EQ(as_process.error().code, ExitCode::no_process);
  EXPECT_NE(as_process.error().message.find("--pid " + std::to_string(getpid())),
            std::string::npos);
}

TEST(ProcessOpen, NoSuchProcess) {
  for (const pid_t pid : {0, -1, 2147483647}) {
    const auto process = Process::open(pid);
    ASSERT_FALSE(process);
    EXPECT_EQ(process.error().code, ExitCode::no_process);
    EXPECT_EQ(discover(pid, {}).error().code, ExitCode::no_process);
  }
}

TEST(ProcessOpen, Zombie) {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  wait_for_state(pid, 'Z');
  const auto process = Process::open(pid);
  ASSERT_FALSE(process);
  EXPECT_EQ(process.error().code, ExitCode::no_process);
  EXPECT_NE(process.error().message.find("exited"), std::string::npos);
  waitpid(pid, nullptr, 0);
}

TEST(ProcessOpen, KernelThread) {
  std::ifstream file("/proc/2/stat");
  std::string text;
  std::getline(file, text);
  ASSERT_NE(text.find("(kthreadd)"), std::string::npos)
      << "this test needs the host's PID namespace";
  const auto process = Process::open(2);
  ASSERT_FALSE(process);
  EXPECT_EQ(process.error().code, ExitCode::no_process);
  EXPECT_NE(process.error().message.find("kernel thread"), std::string::npos);
}

TEST(ProcessOpen, ExitsWhileHeld) {
  auto child = std::make_unique<Child>();
  const auto process = Process::open(child->pid());
  ASSERT_TRUE(process);
  EXPECT_TRUE(process->is_alive());
  child.reset();
  EXPECT_FALSE(process->is_alive());
  const auto map = process->memory_map();
  ASSERT_FALSE(map);
  EXPECT_EQ(map.error().code, ExitCode::no_process);
  const auto sites = discover(*process, {});
  ASSERT_FALSE(sites);
  EXPECT_EQ(sites.error().code, ExitCode::no_process);
}

// The smallest 32-bit program: pause() for ever. Built by hand, for want of a 32-bit compiler.
std::string write_32_bit_program() {
  std::string path = testing::TempDir() + "/pollgap_32_bit_program";
  const unsigned char code[] = {0xb8, 29, 0, 0, 0, 0xcd, 0x80, 0xeb, 0xf7};  // pause; again
  Elf32_Ehdr header{};
  memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS32;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_EXEC;
  header.e_machine = EM_386;
  header.e_version = EV_CURRENT;
  header.e_ehsize = sizeof(Elf32_Ehdr);
  header.e_phoff = sizeof(Elf32_Ehdr);
  header.e_phentsize = sizeof(Elf32_Phdr);
  header.e_phnum = 1;
  constexpr uint32_t base = 0x8048000;
  header.e_entry = base + sizeof(Elf32_Ehdr) + sizeof(Elf32_Phdr);
  Elf32_Phdr segment{};
  segment.p_type = PT_LOAD;
  segment.p_vaddr = base;
  segment.p_filesz = segment.p_memsz = sizeof(header) + sizeof(segment) + sizeof(code);
  segment.p_flags = PF_R | PF_X;
  segment.p_align = 4096;
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&header), sizeof(header));
  file.write(reinterpret_cast<const char*>(&segment), sizeof(segment));
  file.write(reinterpret_cast<const char*>(code), sizeof(code));
  file.close();
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

TEST(ProcessOpen, A32BitProgram) {
  const std::string path = write_32_bit_program();
  const Child child(path.c_str());
  const std::string link = "/proc/" + std::to_string(child.pid()) + "/exe";
  for (int i = 0; i < 400; ++i) {
    std::error_code error;
    if (std::filesystem::read_symlink(link, error).filename() == "pollgap_32_bit_program") break;
    usleep(5000);
  }
  if (waitpid(child.pid(), nullptr, WNOHANG) != 0) {
    GTEST_SKIP() << "this kernel runs no 32-bit programs";
  }
  const auto process = Process::open(child.pid());
  ASSERT_FALSE(process);
  EXPECT_EQ(process.error().code, ExitCode::other);
  EXPECT_NE(process.error().message.find("32-bit"), std::string::npos) << process.error().message;
}

TEST(ProcessOpen, NoPrivilege) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  const Child target;
  const pid_t asker = fork();
  if (asker == 0) {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(100);
    const auto sites = discover(target.pid(), {});
    if (sites) _exit(101);
    const bool names_it = sites.error().message.find("CAP_SYS_PTRACE") != std::string::npos;
    _exit(names_it ? static_cast<int>(sites.error().code) : 102);
  }
  int status = 0;
  waitpid(asker, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(ExitCode::no_privilege));
}

TEST(ProcessFiles, TheVeryFileIsOpenedThoughItWasReplaced) {
  const std::string path = testing::TempDir() + "/pollgap_replaced_file";
  std::ofstream(path) << "the first";
  const FileDescriptor fd(open(path.c_str(), O_RDONLY));
  void* mapped = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const auto process = Process::open(getpid());
  ASSERT_TRUE(process);
  std::filesystem::remove(path);
  std::ofstream(path) << "another";
  const auto map = process->memory_map();
  ASSERT_TRUE(map);
  const Mapping* mapping = map->find(reinterpret_cast<uint64_t>(mapped));
  ASSERT_NE(mapping, nullptr);
  EXPECT_TRUE(mapping->deleted);
  const auto opened = process->open_mapped_file(*mapping);
  if (opened) {  // with the privilege to read map_files
    char text[16] = {};
    EXPECT_EQ(pread(opened->fd.get(), text, sizeof(text), 0), 9);
    EXPECT_STREQ(text, "the first");
  } else {
    EXPECT_EQ(opened.error().code, ExitCode::no_privilege);
  }
  munmap(mapped, 4096);
}

TEST(ProcessFiles, NothingOutsideTheRoot) {
  const auto process = Process::open(getpid());
  ASSERT_TRUE(process);
  EXPECT_TRUE(process->open_in_root("/proc/version"));
  EXPECT_FALSE(process->open_in_root("/proc/self/exe"));  // a magic link
  EXPECT_FALSE(process->open_in_root("/nonexistent"));
}

TEST(TargetMemory, OnlyResidentPages) {
  constexpr size_t page = 4096, pages = 16;
  auto* memory = static_cast<char*>(
      mmap(nullptr, page * pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  madvise(memory, page * pages, MADV_NOHUGEPAGE);
  memory[3 * page] = 1;
  memory[4 * page] = 1;
  memory[9 * page] = 1;
  const auto start = reinterpret_cast<uint64_t>(memory);
  const auto ranges = Process::open(getpid())->memory()->resident({start, start + page * pages});
  ASSERT_EQ(ranges.size(), 2u);
  EXPECT_EQ(ranges[0].start, start + 3 * page);
  EXPECT_EQ(ranges[0].end, start + 5 * page);
  EXPECT_EQ(ranges[1].start, start + 9 * page);
  EXPECT_EQ(ranges[1].end, start + 10 * page);
  munmap(memory, page * pages);
}

TEST(TargetMemory, StopsWhereMemoryEnds) {
  constexpr size_t page = 4096;
  auto* memory = static_cast<char*>(
      mmap(nullptr, page * 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  munmap(memory + page, page);
  std::vector<std::byte> out(3 * page);
  const auto reader = Process::open(getpid())->memory();
  EXPECT_EQ(reader->read(reinterpret_cast<uint64_t>(memory) + 100, out), page - 100);
  EXPECT_EQ(reader->read(UINT64_MAX - 100, out), 0u);
  munmap(memory, page);
}

TEST(Discover, AProcessWithoutVerbs) {
  const Child child;
  const auto sites = discover(child.pid(), {});
  ASSERT_FALSE(sites);
  EXPECT_EQ(sites.error().code, ExitCode::no_poll_function);
  EXPECT_NE(sites.error().message.find("has not loaded libibverbs"), std::string::npos);
  EXPECT_NE(sites.error().message.find("--poll-site"), std::string::npos);
}

}  // namespace
}  // namespace pollgap
