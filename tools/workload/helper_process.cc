// SPDX-License-Identifier: Apache-2.0
#include "tools/workload/helper_process.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tools/workload/monotonic.h"
#include "tools/workload/shared_futex.h"
#include "tools/workload/thread_setup.h"

namespace pollgap::workload {
namespace {

void sleep_to(uint64_t mono_ns) {
  const timespec time = to_timespec(mono_ns);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr) == EINTR) {
  }
}

}  // namespace

HelperProcess::~HelperProcess() { end(); }

bool HelperProcess::wait_for_occurrence(Shared& shared, const Setup& setup, uint32_t& seen) {
  if (setup.on_change_of != nullptr) {
    futex_wait(*setup.on_change_of, seen);
    seen = *setup.on_change_of;
    return true;
  }
  const std::optional<uint64_t> time_ns = shared.schedule.next(monotonic_ns());
  if (time_ns) sleep_to(*time_ns);
  return time_ns.has_value();
}

void HelperProcess::child_main(Shared& shared, const Setup& setup, const Body& body, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  // A terminal's Ctrl-C goes to every process of the group; the program ends this one itself.
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, SIG_IGN);
  prctl(PR_SET_NAME, setup.comm.c_str());
  prctl(PR_SET_TIMERSLACK, 1UL);
  Status error = pin_thread(setup.cpu);
  if (!error) error = set_thread_policy(setup.policy, setup.priority);
  if (error) {
    shared.error_code = error->code;
    error->message.copy(shared.error, sizeof shared.error - 1);
  }
  futex_store(shared.set_up, error ? 2 : 1);
  futex_wait(shared.begun, 0);
  uint32_t seen = 0;
  while (wait_for_occurrence(shared, setup, seen)) {
    shared.in_body = 1;
    if (shared.ending != 0) break;
    const Occurrence occurrence = body();
    shared.in_body = 0;
    const uint64_t count = shared.count.load(std::memory_order_relaxed);
    if (count < capacity) {
      shared.occurrences[count] = occurrence;
      shared.count.store(count + 1, std::memory_order_release);
    }
  }
  shared.in_body = 0;
  for (;;) pause();
}

Status HelperProcess::spawn(const Setup& setup, const Body& body) {
  setup_ = setup;
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    return Error{ExitCode::other, fmt::format("fork of {}: {}", setup.comm, std::strerror(errno))};
  }
  if (pid == 0) child_main(*shared_, setup, body, parent);
  pid_ = pid;
  futex_wait(shared_->set_up, 0);
  if (shared_->set_up == 1) return std::nullopt;
  end();
  return Error{shared_->error_code, setup.comm + " " + shared_->error};
}

void HelperProcess::begin(const Schedule& schedule) {
  shared_->schedule = schedule;
  futex_store(shared_->begun, 1);
}

void HelperProcess::end() {
  if (pid_ <= 0 || killed_ == pid_) return;
  shared_->ending = 1;
  while (setup_.finish_occurrence && shared_->in_body != 0) usleep(100);
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  killed_ = pid_;  // the pid stays: the log names it
}

std::span<const Occurrence> HelperProcess::occurrences() const {
  return {shared_->occurrences,
          std::min<size_t>(capacity, shared_->count.load(std::memory_order_acquire))};
}

}  // namespace pollgap::workload
