// SPDX-License-Identifier: Apache-2.0
// A disturbance that the polling thread does to itself, between two polls.
#pragma once

#include <vector>

#include "tools/workload/disturbance.h"

namespace pollgap::workload {

class LoopDisturbance : public Disturbance, public LoopAction {
 public:
  LoopDisturbance(DisturbanceSpec spec, unsigned index);

  Status prepare(Environment& environment) final;
  Status begin(uint64_t first_ns) override;
  void end() override;
  void run(Poller& poller) final;
  void report(const Environment& environment, TruthLog& log) override;

 protected:
  // Once, before polling begins: allocate, calibrate, refuse.
  virtual Status prepare_loop(Environment&) { return std::nullopt; }
  // On the polling thread. Takes until about until_ticks, or length_ticks.
  virtual void occur(Poller& poller, uint64_t until_ticks) = 0;
  virtual std::string cause() const = 0;
  virtual nlohmann::ordered_json culprit(const Environment& environment) const = 0;
  // More that is known of one occurrence.
  virtual nlohmann::ordered_json facts(size_t) const { return nullptr; }

  uint64_t length_ticks() const { return length_ticks_; }
  const TscClock& clock() const { return *clock_; }
  // For what takes effect only later: occur() then returns at once and the time is told here.
  void record(uint64_t start_ticks, uint64_t end_ticks);
  virtual bool recorded_by_run() const { return true; }

 private:
  struct Ticks {
    uint64_t start;
    uint64_t end;
  };

  const TscClock* clock_ = nullptr;
  uint64_t length_ticks_ = 0;
  // In ticks. A clock that is slewed by the most that adjtimex allows moves an occurrence by half a
  // millisecond each second; its logged time is exact anyway.
  Schedule schedule_;
  std::vector<Ticks> records_;
};

}  // namespace pollgap::workload
