// SPDX-License-Identifier: Apache-2.0
// The process is stopped by a signal, and continued. The signals come from another process: one
// that sends SIGSTOP to its own process does not live to continue it.
#include <signal.h>
#include <unistd.h>

#include "tools/workload/disturbances/catalog.h"
#include "tools/workload/helper_process.h"
#include "tools/workload/monotonic.h"

namespace pollgap::workload {
namespace {

constexpr const char* stopper_comm = "pg-stopper";
constexpr int stopper_priority = 20;

Occurrence stop_for(pid_t pid, uint64_t length_ns) {
  const uint64_t start = monotonic_ns();
  kill(pid, SIGSTOP);
  const timespec until = to_timespec(start + length_ns);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
  }
  kill(pid, SIGCONT);
  return {start, monotonic_ns()};
}

class Stop final : public Disturbance {
 public:
  using Disturbance::Disturbance;
  ~Stop() override { end(); }

  Status spawn(const Options& options) override {
    const pid_t pid = getpid();
    const uint64_t length_ns = spec().length_ns;
    Status error = stopper_.spawn({.comm = stopper_comm,
                                   .cpu = options.other_cpu,
                                   .policy = Policy::fifo,
                                   .priority = stopper_priority,
                                   .finish_occurrence = true},
                                  [pid, length_ns] { return stop_for(pid, length_ns); });
    if (error) return refusal(error->message, error->code);
    return std::nullopt;
  }
  Status prepare(Environment&) override { return std::nullopt; }
  Status begin(uint64_t first_ns) override {
    stopper_.begin(schedule(first_ns));
    return std::nullopt;
  }
  // Waits for a stop that is under way: nobody else would continue this process.
  void end() override { stopper_.end(); }
  void report(const Environment& environment, TruthLog& log) override {
    const pid_t pid = stopper_.pid();
    const nlohmann::ordered_json culprit{
        {"kind", "signal"},
        {"signal", "SIGSTOP"},
        {"task", {{"comm", stopper_comm}, {"pid", pid}, {"tid", pid}}}};
    for (const Occurrence& occurrence : stopper_.occurrences()) {
      log_occurrence(environment, log, "stopped", occurrence, culprit);
    }
  }

 private:
  HelperProcess stopper_;
};

}  // namespace

DisturbancePtr make_stop(const DisturbanceSpec& spec, unsigned index) {
  return std::make_unique<Stop>(spec, index);
}

}  // namespace pollgap::workload
