// SPDX-License-Identifier: Apache-2.0
// Other tasks take the polling core.
#include <fmt/format.h>

#include <charconv>

#include "tools/workload/disturbances/catalog.h"
#include "tools/workload/helper_process.h"
#include "tools/workload/monotonic.h"

namespace pollgap::workload {
namespace {

Occurrence spin_for(uint64_t length_ns) {
  const uint64_t start = monotonic_ns();
  uint64_t now = start;
  while (now < start + length_ns) now = monotonic_ns();
  return {start, now};
}

nlohmann::ordered_json task(const std::string& comm, pid_t pid) {
  return {{"comm", comm}, {"pid", pid}, {"tid", pid}};
}

constexpr const char* fifo_comm = "pg-fifo-hog";
constexpr int fifo_priority = 50;

class Fifo final : public Disturbance {
 public:
  using Disturbance::Disturbance;
  ~Fifo() override { hog_.end(); }

  Status spawn(const Options& options) override {
    priority_ = options.policy == Policy::other ? fifo_priority : options.priority + 1;
    const std::string text = setting("priority", std::to_string(priority_));
    const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), priority_);
    if (status != std::errc() || rest != text.data() + text.size() || priority_ < 1 ||
        priority_ > 99) {
      return refusal(fmt::format("priority {} is not 1..99", text), ExitCode::usage);
    }
    const uint64_t length_ns = spec().length_ns;
    Status error = hog_.spawn({.comm = fifo_comm,
                               .cpu = victim_cpu(options),
                               .policy = Policy::fifo,
                               .priority = priority_},
                              [length_ns] { return spin_for(length_ns); });
    if (error) return refusal(error->message, error->code);
    return std::nullopt;
  }
  Status prepare(Environment&) override { return std::nullopt; }
  Status begin(uint64_t first_ns) override {
    hog_.begin(schedule(first_ns));
    return std::nullopt;
  }
  void end() override { hog_.end(); }
  void report(const Environment& environment, TruthLog& log) override {
    const nlohmann::ordered_json culprit{{"task", task(fifo_comm, hog_.pid())},
                                         {"policy", "SCHED_FIFO"},
                                         {"rt_priority", priority_}};
    for (const Occurrence& occurrence : hog_.occurrences()) {
      log_occurrence(environment, log, "preemption", occurrence, culprit);
    }
  }

 private:
  int priority_ = fifo_priority;
  HelperProcess hog_;
};

}  // namespace

DisturbancePtr make_fifo(const DisturbanceSpec& spec, unsigned index) {
  return std::make_unique<Fifo>(spec, index);
}

}  // namespace pollgap::workload
