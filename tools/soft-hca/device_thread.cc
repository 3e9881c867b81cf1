// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/device_thread.h"

#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

#include "tools/soft-hca/clock.h"

namespace pollgap::soft_hca {
namespace {

// So long after the last work a sleeping thread is idle, and sleeps so many times as long.
constexpr uint64_t kBusyNs = 1'000'000;
constexpr uint64_t kIdleFactor = 5;

// Where the process was allowed to run when it began.
const cpu_set_t initial_cpus = [] {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0) CPU_SET(0, &cpus);
  return cpus;
}();

void relax_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void sleep_until(uint64_t time_ns) {
  const timespec time{static_cast<time_t>(time_ns / 1'000'000'000),
                      static_cast<long>(time_ns % 1'000'000'000)};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr);
}

// An ordinary thread on the wanted CPU, or wherever the process may run: not where, or with what
// priority, its creator happens to run.
int set_attributes(pthread_attr_t* attributes, int cpu) {
  pthread_attr_setinheritsched(attributes, PTHREAD_EXPLICIT_SCHED);
  pthread_attr_setschedpolicy(attributes, SCHED_OTHER);
  cpu_set_t cpus = initial_cpus;
  if (cpu >= 0) {
    CPU_ZERO(&cpus);
    CPU_SET(cpu, &cpus);
  }
  return pthread_attr_setaffinity_np(attributes, sizeof(cpus), &cpus);
}

}  // namespace

std::string DeviceThread::start() {
  const std::string cpu = std::to_string(options_.cpu);
  if (options_.cpu >= CPU_SETSIZE) return "no CPU " + cpu + " for the soft adapter's thread";
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  int error = set_attributes(&attributes, options_.cpu);

  // Signals are for the program's threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  requests_.store(nullptr);
  if (error == 0) error = pthread_create(&thread_, &attributes, &DeviceThread::entry, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (error != 0) {
    requests_.store(closed());
    return "cannot start the soft adapter's thread" +
           (options_.cpu < 0 ? std::string() : " on CPU " + cpu + " (is it online and allowed?)") +
           ": " + std::strerror(error);
  }
  started_ = true;
  setup_.wait(kSettingUp);
  if (setup_.load() == 0) return "";
  stop();
  return "cannot change the nice value of the soft adapter's thread by " +
         std::to_string(options_.nice) +
         " (that needs CAP_SYS_NICE): " + std::strerror(setup_.load());
}

void DeviceThread::stop() {
  if (!started_) return;
  started_ = false;
  stopping_.store(true);
  wakeups_.fetch_add(1);
  wakeups_.notify_one();
  pthread_join(thread_, nullptr);
}

void* DeviceThread::entry(void* argument) {
  auto* self = static_cast<DeviceThread*>(argument);
  pthread_setname_np(pthread_self(), "soft-hca");
  prctl(PR_SET_TIMERSLACK, 1);  // or a sleep of 20 us takes 70
  if (self->options_.real_time && !self->options_.spin) {
    const sched_param priority{.sched_priority = 1};
    pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority);  // it need not be permitted
  }
  // On Linux a nice value is a thread's own (nice(2), "C library/kernel differences").
  errno = 0;
  const bool failed = self->options_.nice != 0 && nice(self->options_.nice) == -1 && errno != 0;
  self->setup_.store(failed ? errno : 0);
  self->setup_.notify_one();
  self->loop();
  return nullptr;
}

bool DeviceThread::submit(Request* request) {
  Request* head = requests_.load();
  do {
    if (head == closed()) return false;
    request->next = head;
  } while (!requests_.compare_exchange_weak(head, request));
  wakeups_.fetch_add(1);
  wakeups_.notify_one();
  request->done.wait(0);
  return true;
}

// The list is newest first; requests are served in the order they came. A request is gone as soon
// as it is marked done: its memory is the waiter's stack.
bool DeviceThread::serve(Request* newest) {
  Request* oldest = nullptr;
  while (newest != nullptr) {
    Request* next = newest->next;
    newest->next = oldest;
    oldest = newest;
    newest = next;
  }
  const bool any = oldest != nullptr;
  while (oldest != nullptr) {
    Request* next = oldest->next;
    oldest->call(oldest->work, &device_);
    oldest->done.store(1);
    oldest->done.notify_one();
    oldest = next;
  }
  return any;
}

// A doorbell is a write to memory that nothing announces. While there is no work, looks are fewer:
// what a sleep costs is the wakeup. A request that ends the idleness is seen later by that much,
// far less than what pollgap calls a gap; what is due at a known time is not.
void DeviceThread::pause(uint64_t now_ns, bool worked) {
  if (worked) {
    last_work_ns_ = now_ns;
    return;
  }
  if (options_.spin) {
    relax_cpu();
    return;
  }
  const bool busy = now_ns - last_work_ns_ < kBusyNs;
  const uint64_t look_ns = now_ns + options_.sleep_ns * (busy ? 1 : kIdleFactor);
  sleep_until(std::min(look_ns, std::max(device_.next_due_ns(), now_ns)));
}

void DeviceThread::loop() {
  while (!stopping_.load(std::memory_order_relaxed)) {
    const uint32_t wakeups = wakeups_.load();
    bool worked = false;
    if (requests_.load(std::memory_order_relaxed) != nullptr) {
      worked = serve(requests_.exchange(nullptr));
    }
    if (device_.idle()) {
      if (!worked && !stopping_.load()) {
        device_.rest();
        wakeups_.wait(wakeups);
      }
      continue;
    }
    const uint64_t now = now_ns();
    worked |= device_.round(now);
    pause(now, worked);
  }
  serve(requests_.exchange(closed()));
}

}  // namespace pollgap::soft_hca
