// SPDX-License-Identifier: Apache-2.0
// Interrupts and softirqs hold the polling core. BPF programs spend the time in them.
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tools/workload/bpf_object.h"
#include "tools/workload/disturbances/catalog.h"
#include "tools/workload/injector_thread.h"
#include "tools/workload/monotonic.h"
#include "tools/workload/on_cpu.h"
#include "workload_hard_irq.skel.h"
#include "workload_ipi_storm.skel.h"
#include "workload_softirq.skel.h"

namespace pollgap::workload {
namespace {

// One long interrupt.
class HardIrq final : public Disturbance {
 public:
  using Disturbance::Disturbance;
  ~HardIrq() override { end(); }

  Status prepare(Environment& environment) override {
    other_cpu_ = environment.options.other_cpu;
    cpu_ = victim(environment).cpu();
    if (cpu_ == other_cpu_) return refusal("needs a CPU besides the polling one");
    if (Status error = object_.load("bpf_loop: kernel 5.17")) {
      return refusal(error->message, error->code);
    }
    if (Status error = run_on_cpu(object_->progs.hold, cpu_, 0)) {
      return refusal(error->message, error->code);
    }
    object_->bss->occurrence_count = 0;
    return std::nullopt;
  }
  Status begin(uint64_t first_ns) override {
    thread_.start("pg-irq", other_cpu_, schedule(first_ns), [this](uint64_t) {
      (void)run_on_cpu(object_->progs.hold, cpu_, spec().length_ns);
    });
    return std::nullopt;
  }
  void end() override {
    thread_.stop();
    if (!object_) return;
    occurrences_ = object_.occurrences();
    object_.unload();
  }
  void report(const Environment& environment, TruthLog& log) override {
    for (const Occurrence& occurrence : occurrences_) {
      log_occurrence(environment, log, "hard_irq", occurrence, {{"kind", "call_function_single"}});
    }
  }

 private:
  int cpu_ = 0;
  int other_cpu_ = 0;
  BpfObject<workload_hard_irq> object_;
  InjectorThread thread_;
  std::vector<Occurrence> occurrences_;
};

// A long softirq: the callback of a BPF timer.
class SoftIrq final : public Disturbance {
 public:
  using Disturbance::Disturbance;
  ~SoftIrq() override { end(); }

  Status prepare(Environment& environment) override {
    cpu_ = victim(environment).cpu();
    if (Status error = object_.load("BPF timers and bpf_loop: kernel 5.17")) {
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
      if (Status error = run_here(object_->progs.arm_timer)) return error;
      if (object_->bss->arm_result == 0) return std::nullopt;
      return refusal(fmt::format("cannot arm a BPF timer: error {}", object_->bss->arm_result));
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
      log_occurrence(environment, log, "soft_irq", occurrence, {{"kind", "HRTIMER"}});
    }
  }

 private:
  int cpu_ = 0;
  BpfObject<workload_softirq> object_;
  std::vector<Occurrence> occurrences_;
};

// A chain of short interrupts without user code in between.
class IpiStorm final : public Disturbance {
 public:
  using Disturbance::Disturbance;
  ~IpiStorm() override { end(); }

  Status prepare(Environment& environment) override {
    other_cpu_ = environment.options.other_cpu;
    cpu_ = victim(environment).cpu();
    if (cpu_ == other_cpu_) return refusal("needs a CPU besides the polling one");
    if (Status error = object_.load("BTF and tp_btf programs: kernel 5.8")) {
      return refusal(error->message, error->code);
    }
    object_->bss->storm_cpu = static_cast<uint32_t>(cpu_);
    if (Status error = object_.attach()) return refusal(error->message, error->code);
    ring_.reset(ring_buffer__new(
        bpf_map__fd(object_->maps.ring), [](void*, void*, size_t) { return 0; }, nullptr, nullptr));
    if (!ring_) return refusal("cannot map a BPF ring buffer", ExitCode::other);
    return std::nullopt;
  }
  Status begin(uint64_t first_ns) override {
    thread_.start("pg-ipi-storm", other_cpu_, schedule(first_ns), [this](uint64_t) {
      if (run_on_cpu(object_->progs.begin_storm, cpu_, spec().length_ns)) return;
      while (object_->bss->busy != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ring_buffer__consume(ring_.get());
    });
    return std::nullopt;
  }
  void end() override {
    thread_.stop();
    if (!object_) return;
    occurrences_ = object_.occurrences();
    for (size_t i = 0; i < occurrences_.size(); ++i) {
      facts_.push_back({{"interrupts", object_->bss->storm_counts[i]},
                        {"ran_ns", object_->bss->storm_ran_ns[i]}});
    }
    ring_.reset();
    object_.unload();
  }
  void report(const Environment& environment, TruthLog& log) override {
    for (size_t i = 0; i < occurrences_.size(); ++i) {
      log_occurrence(environment, log, "hard_irq", occurrences_[i], {{"kind", "irq_work"}},
                     facts_[i]);
    }
  }

 private:
  struct FreeRing {
    void operator()(ring_buffer* ring) const { ring_buffer__free(ring); }
  };
  int cpu_ = 0;
  int other_cpu_ = 0;
  BpfObject<workload_ipi_storm> object_;
  std::unique_ptr<ring_buffer, FreeRing> ring_;
  InjectorThread thread_;
  std::vector<Occurrence> occurrences_;
  std::vector<nlohmann::ordered_json> facts_;
};

}  // namespace

DisturbancePtr make_irq(const DisturbanceSpec& spec, unsigned index) {
  return std::make_unique<HardIrq>(spec, index);
}
DisturbancePtr make_softirq(const DisturbanceSpec& spec, unsigned index) {
  return std::make_unique<SoftIrq>(spec, index);
}
DisturbancePtr make_ipi_storm(const DisturbanceSpec& spec, unsigned index) {
  return std::make_unique<IpiStorm>(spec, index);
}

}  // namespace pollgap::workload
