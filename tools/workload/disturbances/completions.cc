// SPDX-License-Identifier: Apache-2.0
// Completions that come late.
#include <vector>

#include "tools/soft-hca/soft_hca.h"
#include "tools/workload/disturbances/catalog.h"
#include "tools/workload/injector_thread.h"
#include "tools/workload/monotonic.h"

namespace pollgap::workload {
namespace {

// The polling thread posts until its queue is full, so a signaled send is outstanding all the while
// that none completes.
class Late final : public Disturbance {
 public:
  using Disturbance::Disturbance;
  ~Late() override { thread_.stop(); }

  Status prepare(Environment& environment) override {
    if (environment.options.device != "soft") {
      return refusal("a real adapter cannot be told to hold completions: use --device soft");
    }
    if (!environment.options.post) {
      return refusal("needs sends to be outstanding: leave out --no-post", ExitCode::usage);
    }
    other_cpu_ = environment.options.other_cpu;
    return std::nullopt;
  }
  Status begin(uint64_t first_ns) override {
    thread_.start("pg-late", other_cpu_, schedule(first_ns), [this](uint64_t) {
      const uint64_t start = monotonic_ns();
      held_.push_back({start, soft_hca::hold_completions(spec().length_ns)});
    });
    return std::nullopt;
  }
  void end() override { thread_.stop(); }
  void report(const Environment& environment, TruthLog& log) override {
    for (const Occurrence& held : held_) {
      log_occurrence(environment, log, "late_completion", held, {{"reason", "undetermined"}});
    }
  }

 private:
  int other_cpu_ = 0;
  InjectorThread thread_;
  std::vector<Occurrence> held_;  // of thread_, until it has stopped
};

}  // namespace

DisturbancePtr make_late(const DisturbanceSpec& spec, unsigned index) {
  return std::make_unique<Late>(spec, index);
}

}  // namespace pollgap::workload
