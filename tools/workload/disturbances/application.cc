// SPDX-License-Identifier: Apache-2.0
// The application's own doing: computing between two polls, and posting nothing.
#include "tools/workload/disturbances/catalog.h"
#include "tools/workload/loop_disturbance.h"
#include "tools/workload/step_time.h"

// A step must be long beside what a CPU's counter advances at once: 26 ticks on some.
constexpr int kRoundsOfStep = 64;

// A symbol of its own, so that a user stack names it.
extern "C" __attribute__((noinline)) uint64_t application_compute_step(
    uint64_t until_ticks, pollgap::workload::StepTime& steps) {
  uint64_t value = until_ticks | 1;
  while (steps.step_start() < until_ticks) {
    for (int round = 0; round < kRoundsOfStep; ++round) {
      value ^= value << 13U;  // xorshift: something that cannot be left out
      value ^= value >> 7U;
      value ^= value << 17U;
    }
    steps.step();
  }
  return value;
}

namespace pollgap::workload {
namespace {

class Compute final : public LoopDisturbance {
 public:
  using LoopDisturbance::LoopDisturbance;

 protected:
  void occur(Poller&, uint64_t until_ticks) override {
    StepTime steps;
    result_ = application_compute_step(until_ticks, steps);
    ran_ticks_.push_back(steps.ran_ticks());
  }
  std::string cause() const override { return "application"; }
  nlohmann::ordered_json culprit(const Environment&) const override {
    return {{"function", "application_compute_step"}};
  }
  nlohmann::ordered_json facts(size_t i) const override {
    return {{"ran_ns", clock().ns_in(ran_ticks_[i])}};
  }

 private:
  std::vector<uint64_t> ran_ticks_;  // by occurrence
  volatile uint64_t result_ = 0;
};

// No gap is expected: polls go on, and nothing signaled is outstanding.
class Idle final : public LoopDisturbance, public PauseListener {
 public:
  using LoopDisturbance::LoopDisturbance;
  void paused(uint64_t start_ticks, uint64_t end_ticks) override { record(start_ticks, end_ticks); }

 protected:
  Status prepare_loop(Environment& environment) override {
    if (environment.options.style != PollStyle::event) return std::nullopt;
    return refusal("with --style event the loop would wait for ever for an event", ExitCode::usage);
  }
  void occur(Poller& poller, uint64_t) override { poller.pause_posting(length_ticks(), this); }
  bool recorded_by_run() const override { return false; }
  std::string cause() const override { return ""; }  // none is expected
  nlohmann::ordered_json culprit(const Environment&) const override {
    return nlohmann::ordered_json::object();
  }
};

}  // namespace

DisturbancePtr make_compute(const DisturbanceSpec& spec, unsigned index) {
  return std::make_unique<Compute>(spec, index);
}
DisturbancePtr make_idle(const DisturbanceSpec& spec, unsigned index) {
  return std::make_unique<Idle>(spec, index);
}

}  // namespace pollgap::workload
