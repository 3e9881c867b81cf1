// SPDX-License-Identifier: Apache-2.0
// A kernel worker takes the polling core for one long work item.
#include <chrono>
#include <thread>

#include "tools/workload/bpf_object.h"
#include "tools/workload/disturbances/catalog.h"
#include "tools/workload/on_cpu.h"
#include "workload_kworker.skel.h"

namespace pollgap::workload {
namespace {

class Kworker final : public Disturbance {
 public:
  using Disturbance::Disturbance;
  ~Kworker() override { end(); }

  Status prepare(Environment& environment) override {
    if (environment.options.policy != Policy::other) {
      return refusal("a kworker never gets a core from a real-time thread: use --policy other",
                     ExitCode::usage);
    }
    cpu_ = victim(environment).cpu();
    if (Status error = object_.load("BPF work queues: kernel 6.10")) {
      return refusal(error->message, error->code);
    }
    return std::nullopt;
  }
  Status begin(uint64_t first_ns) override {
    object_->bss->next_ns = first_ns;
    object_->bss->period_ns = spec().period_ns;
    object_->bss->length_ns = spec().length_ns;
    object_->bss->remaining = spec().count == 0 ? UINT64_MAX : spec().count;
    return run_on_polling_core(cpu_, [this]() -> Status {
      if (Status error = run_here(object_->progs.prepare_work)) return error;
      if (Status error = run_here(object_->progs.arm_timer)) return error;
      if (object_->bss->work_result == 0 && object_->bss->arm_result == 0) return std::nullopt;
      return refusal(fmt::format("cannot set up a BPF work queue: errors {} and {}",
                                 object_->bss->work_result, object_->bss->arm_result));
    });
  }
  void end() override {
    if (!object_) return;
    object_->bss->remaining = 0;
    while (object_->bss->busy != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    occurrences_ = object_.occurrences();
    object_.unload();
  }
  void report(const Environment& environment, TruthLog& log) override {
    for (const Occurrence& occurrence : occurrences_) {
      log_occurrence(environment, log, "preemption", occurrence,
                     {{"task", {{"comm", fmt::format("kworker/{}:", cpu_)}}},
                      {"work_function", "bpf_wq_work"}});
    }
  }

 private:
  int cpu_ = 0;
  BpfObject<workload_kworker> object_;
  std::vector<Occurrence> occurrences_;
};

}  // namespace

DisturbancePtr make_kworker(const DisturbanceSpec& spec, unsigned index) {
  return std::make_unique<Kworker>(spec, index);
}

}  // namespace pollgap::workload
