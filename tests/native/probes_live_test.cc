// SPDX-License-Identifier: Apache-2.0
// Discovery in a live process that runs the distribution's stripped libmlx5, against what the
// process itself says; and real uprobes on the instructions that were chosen.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "probes/discovery.h"
#include "probes/symbolizer.h"

namespace pollgap {
namespace {

// The target program, driven through its standard input and output.
class Target {
 public:
  Target() {
    std::array<int, 2> in{}, out{};
    if (pipe2(in.data(), O_CLOEXEC) != 0 || pipe2(out.data(), O_CLOEXEC) != 0) abort();
    pid_ = fork();
    if (pid_ == 0) {
      dup2(in[0], STDIN_FILENO);
      dup2(out[1], STDOUT_FILENO);
      execl(POLLGAP_LIVE_TARGET, POLLGAP_LIVE_TARGET, static_cast<char*>(nullptr));
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    commands_ = fdopen(in[1], "w");
    answers_ = fdopen(out[0], "r");
    EXPECT_EQ(line(), "ready");
  }
  ~Target() {
    (void)fclose(commands_);  // end of its input ends it
    (void)fclose(answers_);
    waitpid(pid_, nullptr, 0);
  }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  pid_t pid() const { return pid_; }

  // Does the command and waits for it to be done.
  void tell(const std::string& command) {
    (void)fprintf(commands_, "%s\n", command.c_str());
    (void)fflush(commands_);
    for (std::string answer = line(); answer != "done"; answer = line()) {
      const size_t blank = answer.find(' ');
      ASSERT_NE(blank, std::string::npos) << answer;
      facts_[answer.substr(0, blank)] = std::stoull(answer.substr(blank + 1));
    }
  }
  uint64_t fact(const std::string& name) const { return facts_.at(name); }

 private:
  std::string line() {
    std::array<char, 256> text{};
    if (fgets(text.data(), text.size(), answers_) == nullptr) return "the target died";
    text[strcspn(text.data(), "\n")] = '\0';
    return text.data();
  }

  pid_t pid_ = 0;
  FILE* commands_ = nullptr;
  FILE* answers_ = nullptr;
  std::map<std::string, uint64_t> facts_;
};

uint64_t number_in(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  file >> value;
  return value;
}

// One uprobe in one process, by perf_event_open(2): counts its hits and keeps the argument
// registers of the first ones.
class Uprobe {
 public:
  Uprobe(const std::string& path, uint64_t offset, pid_t pid, bool at_return = false) {
    perf_event_attr attributes{};
    attributes.size = sizeof(attributes);
    attributes.type = static_cast<uint32_t>(number_in("/sys/bus/event_source/devices/uprobe/type"));
    attributes.config = at_return ? 1 : 0;  // format/retprobe is config:0
    attributes.config1 = reinterpret_cast<uint64_t>(path.c_str());
    attributes.config2 = offset;
    attributes.sample_period = 1;
    attributes.sample_type = PERF_SAMPLE_REGS_USER;
    attributes.sample_regs_user = registers;
    fd_ = static_cast<int>(syscall(SYS_perf_event_open, &attributes, pid, -1, -1, 0));
    if (fd_ < 0) return;
    pages_ = mmap(nullptr, ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  }
  ~Uprobe() {
    if (fd_ < 0) return;
    munmap(pages_, ring_bytes);
    close(fd_);
  }
  Uprobe(const Uprobe&) = delete;
  Uprobe& operator=(const Uprobe&) = delete;

  bool attached() const { return fd_ >= 0 && pages_ != MAP_FAILED; }
  uint64_t hits() const {
    uint64_t value = 0;
    EXPECT_EQ(read(fd_, &value, sizeof(value)), static_cast<ssize_t>(sizeof(value)));
    return value;
  }

  struct Arguments {
    uint64_t abi, third, second, first;  // rdx, rsi, rdi: in the order of the kernel's numbers
  };
  std::optional<Arguments> first_hit() const {
    struct Record {
      perf_event_header header;
      Arguments arguments;
    } record;
    const char* data = static_cast<const char*>(pages_) + 4096;
    memcpy(&record, data, sizeof(record));
    if (record.header.type != PERF_RECORD_SAMPLE) return std::nullopt;
    return record.arguments;
  }

 private:
  // PERF_REG_X86_DX, _SI, _DI: arch/x86/include/uapi/asm/perf_regs.h
  static constexpr uint64_t registers = 1U << 3 | 1U << 4 | 1U << 5;
  static constexpr size_t ring_bytes = size_t{9} * 4096;
  int fd_ = -1;
  void* pages_ = MAP_FAILED;
};

class LiveProcess : public testing::Test {
 protected:
  void SetUp() override {
    target.tell("open");
    auto found = discover(target.pid(), {});
    ASSERT_TRUE(found) << found.error().message;
    sites = std::move(*found);
  }

  const Site* site(SiteRole role, uint64_t address) const {
    const auto found =
        std::find_if(sites.sites.begin(), sites.sites.end(), [&](const Site& candidate) {
          return candidate.role == role && candidate.function_address == address;
        });
    return found != sites.sites.end() ? &*found : nullptr;
  }
  const Site* named(SiteRole role, const std::string& name) const {
    const auto found = std::find_if(
        sites.sites.begin(), sites.sites.end(),
        [&](const Site& candidate) { return candidate.role == role && candidate.name == name; });
    return found != sites.sites.end() ? &*found : nullptr;
  }

  // Puts a probe on the chosen instruction, lets the target make `count` calls, and expects as many
  // hits, with these arguments in the first.
  void expect_hits(const Site* at, const std::string& command, int count, uint64_t first,
                   std::optional<uint64_t> second = {}, std::optional<uint64_t> third = {}) {
    ASSERT_NE(at, nullptr) << command;
    const Uprobe entry(at->open_path, at->entry_offset, target.pid());
    ASSERT_TRUE(entry.attached()) << at->name << " " << at->open_path << ": " << strerror(errno);
    const Uprobe at_return(at->open_path, at->function_offset, target.pid(), true);
    ASSERT_TRUE(at_return.attached()) << at->name << ": " << strerror(errno);
    target.tell(command + " " + std::to_string(count));
    EXPECT_EQ(entry.hits(), static_cast<uint64_t>(count)) << at->name;
    EXPECT_EQ(at_return.hits(), static_cast<uint64_t>(count)) << at->name;
    EXPECT_TRUE(at->arguments_intact);
    const auto hit = entry.first_hit();
    ASSERT_TRUE(hit) << at->name;
    EXPECT_EQ(hit->first, first) << at->name;
    if (second) {
      EXPECT_EQ(hit->second & UINT32_MAX, *second) << at->name;
    }
    if (third) {
      EXPECT_EQ(hit->third, *third) << at->name;
    }
  }

  Target target;
  Sites sites;
};

TEST_F(LiveProcess, ContextQueuesAndPairsAsTheProcessKnowsThem) {
  ASSERT_EQ(sites.contexts.size(), 1u);
  const ContextInfo& context = sites.contexts[0];
  EXPECT_EQ(context.address, target.fact("context"));
  EXPECT_EQ(context.device, "mlx5_0");
  EXPECT_EQ(context.poll_cq, target.fact("poll_cq"));
  EXPECT_EQ(context.post_send, target.fact("post_send"));
  EXPECT_EQ(context.post_recv, target.fact("post_recv"));
  EXPECT_EQ(context.cmd_fd, static_cast<int>(target.fact("cmd_fd")));
  EXPECT_NE(context.provider.find("libmlx5"), std::string::npos);

  ASSERT_EQ(context.cqs.size(), 3u);
  const auto cq = [&](const char* name) {
    return std::find_if(context.cqs.begin(), context.cqs.end(), [&](const CqInfo& candidate) {
      return candidate.address == target.fact(name);
    });
  };
  ASSERT_NE(cq("cq"), context.cqs.end());
  EXPECT_EQ(cq("cq")->cqe, static_cast<int>(target.fact("cqe")));
  EXPECT_EQ(cq("cq")->channel, 0u);
  EXPECT_FALSE(cq("cq")->extended);
  ASSERT_NE(cq("channel_cq"), context.cqs.end());
  EXPECT_EQ(cq("channel_cq")->channel, target.fact("channel"));
  ASSERT_NE(cq("extended"), context.cqs.end());
  EXPECT_TRUE(cq("extended")->extended);

  ASSERT_EQ(context.qps.size(), 1u);
  EXPECT_EQ(context.qps[0].address, target.fact("qp"));
  EXPECT_EQ(context.qps[0].qp_num, target.fact("qp_num"));
  EXPECT_EQ(context.qps[0].send_cq, target.fact("cq"));
  EXPECT_EQ(context.qps[0].recv_cq, target.fact("channel_cq"));
}

TEST_F(LiveProcess, PollFunctionFoundTwice) {
  const Site* poll = site(SiteRole::poll_cq, target.fact("poll_cq"));
  ASSERT_NE(poll, nullptr);
  ASSERT_GE(poll->found_by.size(), 2u);
  EXPECT_TRUE(poll->found_by[0].starts_with("live ibv_context")) << poll->found_by[0];
  EXPECT_TRUE(std::any_of(poll->found_by.begin(), poll->found_by.end(),
                          [](const auto& how) { return how.starts_with("static analysis"); }));
  EXPECT_EQ(poll->entry_execution, ProbeExecution::emulated);
  EXPECT_EQ(
      std::count_if(sites.sites.begin(), sites.sites.end(),
                    [](const Site& candidate) { return candidate.role == SiteRole::poll_cq; }),
      1);
}

TEST_F(LiveProcess, ProbesHitOnceACallWithTheArguments) {
  expect_hits(site(SiteRole::poll_cq, target.fact("poll_cq")), "poll", 1000, target.fact("cq"), 4,
              target.fact("completions"));
  expect_hits(site(SiteRole::start_poll, target.fact("start_poll")), "start", 500,
              target.fact("extended"));
  expect_hits(site(SiteRole::post_send, target.fact("post_send")), "post", 100, target.fact("qp"));
  EXPECT_NE(site(SiteRole::next_poll, target.fact("next_poll")), nullptr);
  EXPECT_NE(site(SiteRole::end_poll, target.fact("end_poll")), nullptr);
}

TEST_F(LiveProcess, ControlVerbsAndHooks) {
  const Site* registration = named(SiteRole::verb, "ibv_reg_mr");
  ASSERT_NE(registration, nullptr);
  const Uprobe probe(registration->open_path, registration->entry_offset, target.pid());
  ASSERT_TRUE(probe.attached());
  target.tell("register 20");
  EXPECT_EQ(probe.hits(), 20u);
  EXPECT_NE(named(SiteRole::verb, "ibv_modify_qp"), nullptr);
  EXPECT_NE(named(SiteRole::get_cq_event, "ibv_get_cq_event"), nullptr);

  const Site* hook = named(SiteRole::open_hook, "verbs_init_cq");
  ASSERT_NE(hook, nullptr);
  const Uprobe created(hook->open_path, hook->entry_offset, target.pid());
  ASSERT_TRUE(created.attached());
  target.tell("create 30");
  EXPECT_EQ(created.hits(), 30u);
  const auto hit = created.first_hit();
  ASSERT_TRUE(hit);
  EXPECT_EQ(hit->second, target.fact("context"));
}

TEST_F(LiveProcess, PollFunctionIsSymbolizedToItsModule) {
  const auto process = Process::open(target.pid());
  ASSERT_TRUE(process);
  auto symbolizer = Symbolizer::open(*process);
  ASSERT_TRUE(symbolizer);
  const CodeLocation& location = symbolizer->locate(target.fact("poll_cq"));
  const Site* poll = site(SiteRole::poll_cq, target.fact("poll_cq"));
  ASSERT_NE(poll, nullptr);
  EXPECT_EQ(location.module, poll->module);
  EXPECT_EQ(location.module_offset, poll->function_offset);
}

TEST_F(LiveProcess, ByAUsersPollSite) {
  const Site* found_live = site(SiteRole::poll_cq, target.fact("poll_cq"));
  ASSERT_NE(found_live, nullptr);
  const Site poll = *found_live;
  std::array<char, 32> offset{};
  (void)snprintf(offset.data(), offset.size(), "+0x%llx",
                 static_cast<unsigned long long>(poll.function_offset));
  DiscoveryOptions options;
  options.poll_sites = {poll.module + offset.data()};
  auto found = discover(target.pid(), options);
  ASSERT_TRUE(found) << found.error().message;
  sites = std::move(*found);
  expect_hits(site(SiteRole::user, target.fact("poll_cq")), "poll", 200, target.fact("cq"));
  // One byte further no instruction starts.
  (void)snprintf(offset.data(), offset.size(), "+0x%llx",
                 static_cast<unsigned long long>(poll.function_offset) + 1);
  options.poll_sites = {poll.module + offset.data()};
  const auto refused = discover(target.pid(), options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ExitCode::no_poll_function);
}

TEST(LateContext, HookThenContext) {
  Target target;
  // libibverbs is linked in, no device is open.
  const auto early = discover(target.pid(), {});
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().code, ExitCode::no_poll_function);
  EXPECT_NE(early.error().message.find("opened no RDMA device"), std::string::npos)
      << early.error().message;

  DiscoveryOptions waiting;
  waiting.wait_for_context = true;
  const auto sites = discover(target.pid(), waiting);
  ASSERT_TRUE(sites) << sites.error().message;
  const auto hook = std::find_if(sites->sites.begin(), sites->sites.end(),
                                 [](const Site& site) { return site.role == SiteRole::open_hook; });
  ASSERT_NE(hook, sites->sites.end());
  const Uprobe created(hook->open_path, hook->entry_offset, target.pid());
  ASSERT_TRUE(created.attached());
  target.tell("open");
  EXPECT_EQ(created.hits(), 3u);  // each CQ, however it was created
  const auto late = discover(target.pid(), {});
  ASSERT_TRUE(late) << late.error().message;
  ASSERT_EQ(late->contexts.size(), 1u);
  EXPECT_EQ(late->contexts[0].poll_cq, target.fact("poll_cq"));
}

// Providers loaded, no device open: their files are all there is to go by.
TEST(LateContext, StaticallyFromLoadedProviders) {
  Target target;
  target.tell("list");
  const auto sites = discover(target.pid(), {});
  ASSERT_TRUE(sites) << sites.error().message;
  EXPECT_TRUE(sites->contexts.empty());
  target.tell("open");
  const auto live = discover(target.pid(), {});
  ASSERT_TRUE(live) << live.error().message;
  EXPECT_TRUE(std::any_of(sites->sites.begin(), sites->sites.end(), [&](const Site& site) {
    return site.role == SiteRole::poll_cq && site.function_address == target.fact("poll_cq") &&
           site.found_by[0].starts_with("static analysis");
  }));

  // Who waits for the device is not given a dozen providers' functions.
  Target other;
  other.tell("list");
  DiscoveryOptions waiting;
  waiting.wait_for_context = true;
  const auto hooks = discover(other.pid(), waiting);
  ASSERT_TRUE(hooks) << hooks.error().message;
  EXPECT_TRUE(std::none_of(hooks->sites.begin(), hooks->sites.end(),
                           [](const Site& site) { return site.role == SiteRole::poll_cq; }));
  EXPECT_TRUE(std::any_of(hooks->sites.begin(), hooks->sites.end(),
                          [](const Site& site) { return site.role == SiteRole::open_hook; }));
}

}  // namespace
}  // namespace pollgap
