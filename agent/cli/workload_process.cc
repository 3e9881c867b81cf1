// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/workload_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <thread>

namespace pollgap {
namespace {

constexpr std::chrono::seconds kPatience(60);
constexpr std::chrono::milliseconds kStep(20);
constexpr const char* kDisturb = "--disturb ";

// In the child: never returns. The child does not outlive its parent.
[[noreturn]] void become(const std::vector<std::string>& arguments, const std::string& errors) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  signal(SIGINT, SIG_IGN);  // Ctrl-C is for the parent, which then ends it
  const int null = open("/dev/null", O_RDWR);
  const int file = open(errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  dup2(null, STDIN_FILENO);
  dup2(null, STDOUT_FILENO);
  dup2(file, STDERR_FILENO);
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  dprintf(STDERR_FILENO, "cannot run %s: %s\n", argv[0], std::strerror(errno));
  _exit(127);
}

// The first line of what it complained.
std::string complaint(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line.empty() ? "it says nothing" : line;
}

}  // namespace

Result<std::unique_ptr<WorkloadProcess>> WorkloadProcess::start(
    const std::filesystem::path& program, const std::filesystem::path& directory,
    const std::vector<std::string>& options) {
  const std::filesystem::path ready = directory / "ready";
  const std::filesystem::path errors = directory / "workload.err";
  std::vector<std::string> arguments{program, "--ready-file", ready, "--go-file", directory / "go"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const pid_t pid = fork();
  if (pid < 0) {
    return Error{ExitCode::other,
                 fmt::format("cannot start {}: {}", program.string(), std::strerror(errno))};
  }
  if (pid == 0) become(arguments, errors);
  std::unique_ptr<WorkloadProcess> process(new WorkloadProcess(pid, directory));
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!std::filesystem::exists(ready)) {
    int status = 0;
    if (waitpid(pid, &status, WNOHANG) == pid) {
      process->pid_ = 0;
      const int code = WIFEXITED(status) ? WEXITSTATUS(status) : static_cast<int>(ExitCode::other);
      return Error{static_cast<ExitCode>(code),
                   fmt::format("the workload did not start: {}", complaint(errors))};
    }
    if (std::chrono::steady_clock::now() > deadline) {
      return Error{ExitCode::other,
                   fmt::format("the workload did not begin to poll within {} s: {}",
                               kPatience.count(), complaint(errors))};
    }
    std::this_thread::sleep_for(kStep);
  }
  return process;
}

WorkloadProcess::~WorkloadProcess() {
  if (pid_ == 0) return;
  kill(pid_, SIGTERM);
  wait();
}

int WorkloadProcess::wait() {
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
  return status;
}

Status WorkloadProcess::go() const {
  if (std::ofstream(directory_ / "go")) return std::nullopt;
  return Error{ExitCode::other,
               fmt::format("cannot write in {}: {}", directory_.string(), std::strerror(errno))};
}

Status WorkloadProcess::end() {
  kill(pid_, SIGTERM);
  if (wait() == 0) return std::nullopt;
  return Error{ExitCode::other,
               fmt::format("the workload failed: {}", complaint(directory_ / "workload.err"))};
}

std::string refused_disturbance(const std::string& message) {
  const size_t at = message.find(kDisturb);
  if (at == std::string::npos) return {};
  const size_t begin = at + std::strlen(kDisturb);
  const size_t end = message.find(':', begin);
  return end == std::string::npos ? std::string() : message.substr(begin, end - begin);
}

}  // namespace pollgap
