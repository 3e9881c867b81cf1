// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/management_thread.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <vector>

#include "tools/soft-hca/control.h"
#include "tools/soft-hca/raw_syscalls.h"

namespace pollgap::soft_hca {
namespace {

static_assert(kMaxProcesses <= 64);

// How stale the counters of mere traffic may be; those of faults are written at once.
constexpr int kTrafficMilliseconds = 1000;

}  // namespace

std::string ManagementThread::join(const std::string& fabric, const std::string& log) {
  std::string problem = fabric_.start(fabric);
  if (problem.empty()) problem = control_.start(fabric);
  if (!problem.empty()) return problem;
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd_ < 0) return std::string("eventfd: ") + std::strerror(errno);
  if (log.empty()) return "";
  log_fd_ = raw::openat(AT_FDCWD, log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  return log_fd_ >= 0 ? "" : "cannot open the log " + log + ": " + std::strerror(errno);
}

std::string ManagementThread::start() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(&thread_, nullptr, &ManagementThread::entry, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  started_ = error == 0;
  if (started_) return "";
  return std::string("cannot start the soft adapter's management thread: ") + std::strerror(error);
}

void ManagementThread::stop() {
  if (started_) {
    started_ = false;
    stopping_.store(true);
    wake();
    pthread_join(thread_, nullptr);
  }
  close_in_child();
}

void ManagementThread::close_in_child() {
  fabric_.close_all();
  control_.close_all();
  if (wake_fd_ >= 0) raw::close(wake_fd_);
  if (log_fd_ >= 0) raw::close(log_fd_);
  wake_fd_ = log_fd_ = -1;
}

void ManagementThread::wake() {
  const uint64_t one = 1;
  // It fails only when the counter is full, and then the thread is awake.
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof(one));
}

void ManagementThread::request_link(uint32_t process) {
  wanted_.fetch_or(uint64_t{1} << process);
  wake();
}

void ManagementThread::notify() { wake(); }

void ManagementThread::make_links() {
  for (uint64_t wanted = wanted_.exchange(0); wanted != 0; wanted &= wanted - 1) {
    fabric_.connect(static_cast<uint32_t>(std::countr_zero(wanted)));
  }
}

// One line a write, so that the lines of several processes do not mix.
void ManagementThread::write_log() {
  for (FaultEvent event; device_->fault_log().take(&event);) {
    if (log_fd_ < 0) continue;
    const std::string line = to_json(event) + "\n";
    [[maybe_unused]] const ssize_t written = write(log_fd_, line.data(), line.size());
  }
}

void* ManagementThread::entry(void* argument) {
  pthread_setname_np(pthread_self(), "soft-hca-mgmt");
  static_cast<ManagementThread*>(argument)->loop();
  return nullptr;
}

void ManagementThread::loop() {
  std::vector<pollfd> descriptors;
  while (!stopping_.load()) {
    descriptors.clear();
    descriptors.push_back({wake_fd_, POLLIN, 0});
    fabric_.add_descriptors(&descriptors);
    control_.add_descriptors(&descriptors);
    poll(descriptors.data(), descriptors.size(), kTrafficMilliseconds);
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(wake_fd_, &count, sizeof(count));
    make_links();
    fabric_.serve(descriptors);
    control_.serve(descriptors);
    write_log();
    tree_->write_counters(device_->counters());
  }
  write_log();
}

}  // namespace pollgap::soft_hca
