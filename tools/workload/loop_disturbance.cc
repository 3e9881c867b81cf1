// SPDX-License-Identifier: Apache-2.0
#include "tools/workload/loop_disturbance.h"

#include "tools/workload/cycle_counter.h"

namespace pollgap::workload {
namespace {

constexpr size_t record_capacity = 1U << 16;

}  // namespace

LoopDisturbance::LoopDisturbance(DisturbanceSpec spec, unsigned index)
    : Disturbance(std::move(spec), index) {
  records_.resize(record_capacity);  // touches the pages; clear() keeps them
  records_.clear();
}

Status LoopDisturbance::prepare(Environment& environment) {
  clock_ = &environment.clock;
  length_ticks_ = clock_->ticks_in(spec().length_ns);
  if (Status error = prepare_loop(environment)) return error;
  victim(environment).add_action(this);
  return std::nullopt;
}

Status LoopDisturbance::begin(uint64_t first_ns) {
  schedule_ = {clock_->to_ticks(first_ns), clock_->ticks_in(spec().period_ns), spec().count};
  set_due(schedule_.next(read_cycles()).value_or(UINT64_MAX));
  return std::nullopt;
}

void LoopDisturbance::end() { set_due(UINT64_MAX); }

void LoopDisturbance::run(Poller& poller) {
  const uint64_t start = read_cycles();
  occur(poller, start + length_ticks_);
  const uint64_t end = read_cycles();
  if (recorded_by_run()) record(start, end);
  set_due(schedule_.next(end).value_or(UINT64_MAX));
}

void LoopDisturbance::record(uint64_t start_ticks, uint64_t end_ticks) {
  if (records_.size() < record_capacity) records_.push_back({start_ticks, end_ticks});
}

void LoopDisturbance::report(const Environment& environment, TruthLog& log) {
  for (size_t i = 0; i < records_.size(); ++i) {
    const Occurrence occurrence{clock_->to_mono_ns(records_[i].start),
                                clock_->to_mono_ns(records_[i].end)};
    log_occurrence(environment, log, cause(), occurrence, culprit(environment), facts(i));
  }
}

}  // namespace pollgap::workload
