// SPDX-License-Identifier: Apache-2.0
// The polling thread blocks on its own account: it sleeps, or waits for a lock.
#include <pthread.h>
#include <unistd.h>

#include "tools/workload/disturbances/catalog.h"
#include "tools/workload/injector_thread.h"
#include "tools/workload/loop_disturbance.h"
#include "tools/workload/monotonic.h"

namespace pollgap::workload {
namespace {

class Sleep final : public LoopDisturbance {
 public:
  using LoopDisturbance::LoopDisturbance;

 protected:
  void occur(Poller&, uint64_t) override {
    const timespec length = to_timespec(spec().length_ns);
    nanosleep(&length, nullptr);
  }
  std::string cause() const override { return "blocked"; }
  nlohmann::ordered_json culprit(const Environment&) const override {
    return {{"syscall", "clock_nanosleep"}};  // what nanosleep() of glibc calls since 2.31
  }
  nlohmann::ordered_json facts(size_t) const override {
    return {{"slept_ns", spec().length_ns}};  // the rest may have gone by on its way back
  }
};

// A mutex that the holder takes shortly before the polling thread wants it, and gives back when the
// length is over.
class Futex final : public LoopDisturbance {
 public:
  using LoopDisturbance::LoopDisturbance;
  ~Futex() override { end(); }

  Status begin(uint64_t first_ns) override {
    holder_.start(
        holder_comm, other_cpu_, schedule(first_ns), [this](uint64_t time_ns) { hold(time_ns); },
        lead_ns);
    return LoopDisturbance::begin(first_ns);
  }
  void end() override {
    LoopDisturbance::end();
    holder_.stop();
  }

 protected:
  Status prepare_loop(Environment& environment) override {
    other_cpu_ = environment.options.other_cpu;
    return std::nullopt;
  }
  void occur(Poller&, uint64_t) override {
    pthread_mutex_lock(&mutex_);
    pthread_mutex_unlock(&mutex_);
  }
  std::string cause() const override { return "blocked"; }
  nlohmann::ordered_json culprit(const Environment&) const override {
    return {{"syscall", "futex"},
            {"woken_by",
             {{"task", {{"comm", holder_comm}, {"pid", getpid()}, {"tid", holder_.tid()}}}}}};
  }

 private:
  static constexpr const char* holder_comm = "pg-lock-holder";
  static constexpr uint64_t lead_ns = ns_per_ms;

  void hold(uint64_t time_ns) {
    pthread_mutex_lock(&mutex_);
    const timespec until = to_timespec(time_ns + spec().length_ns);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
    pthread_mutex_unlock(&mutex_);
  }

  int other_cpu_ = 0;
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  InjectorThread holder_;
};

}  // namespace

DisturbancePtr make_sleep(const DisturbanceSpec& spec, unsigned index) {
  return std::make_unique<Sleep>(spec, index);
}
DisturbancePtr make_futex(const DisturbanceSpec& spec, unsigned index) {
  return std::make_unique<Futex>(spec, index);
}

}  // namespace pollgap::workload
