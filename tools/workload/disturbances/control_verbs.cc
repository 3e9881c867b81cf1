// SPDX-License-Identifier: Apache-2.0
// Control-path verbs in the polling loop.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "tools/workload/cycle_counter.h"
#include "tools/workload/disturbances/catalog.h"
#include "tools/workload/injector_thread.h"
#include "tools/workload/loop_disturbance.h"
#include "tools/workload/mapping.h"
#include "tools/workload/monotonic.h"
#include "tools/workload/on_cpu.h"

namespace pollgap::workload {
namespace {

constexpr int access = IBV_ACCESS_LOCAL_WRITE;  // an int: the macro ibv_reg_mr mixes enums

// A buffer so large that its registration takes that long. Another thread deregisters it, in the
// middle between two occurrences.
class Registration final : public LoopDisturbance {
 public:
  using LoopDisturbance::LoopDisturbance;
  ~Registration() override {
    end();
    deregister();
  }

  Status begin(uint64_t first_ns) override {
    deregisterer_.start("pg-dereg", other_cpu_,
                        {first_ns + spec().period_ns / 2, spec().period_ns, 0},
                        [this](uint64_t) { deregister(); });
    return LoopDisturbance::begin(first_ns);
  }
  void end() override {
    LoopDisturbance::end();
    deregisterer_.stop();
  }

 protected:
  Status prepare_loop(Environment& environment) override {
    pd_ = environment.device.pd();
    other_cpu_ = environment.options.other_cpu;
    bytes_ = sample_bytes;
    return run_on_polling_core(victim(environment).cpu(), [this]() -> Status {
      // Twice: what a page takes depends on how many there are.
      if (Status error = fit()) return error;
      return fit();
    });
  }
  void occur(Poller&, uint64_t) override {
    registered_.store(ibv_reg_mr(pd_, memory_.data(), bytes_, access));
  }
  std::string cause() const override { return "control_verb"; }
  nlohmann::ordered_json culprit(const Environment&) const override {
    return {{"verb", "ibv_reg_mr"}, {"bytes", bytes_}};
  }

 private:
  static constexpr size_t sample_bytes = 4U << 20;
  static constexpr int samples = 3;
  static constexpr size_t most_bytes = size_t{1} << 30;

  // Changes the buffer's size by the ratio of the length to what its registration takes in the
  // mean.
  Status fit() {
    if (Status error = map()) return error;
    uint64_t spent = 0;
    for (int i = 0; i < samples; ++i) {
      const uint64_t start = read_cycles();
      const Verbs<ibv_mr> mr(ibv_reg_mr(pd_, memory_.data(), bytes_, access));
      if (!mr) return verbs_error(fmt::format("ibv_reg_mr of {} bytes", bytes_));
      spent += read_cycles() - start;
    }
    const uint64_t mean = spent / samples;
    bytes_ = std::max<size_t>(bytes_ / page_bytes * length_ticks() / mean, 1) * page_bytes;
    if (bytes_ <= most_bytes) return map();
    return refusal(
        fmt::format("it takes a buffer of {} MiB here: shorten the length, or raise "
                    "--soft-registration-ns",
                    bytes_ >> 20));
  }

  // A buffer of bytes_, all of whose pages are there.
  Status map() {
    Result<Mapping> mapped = Mapping::anonymous(bytes_);
    if (!mapped) return mapped.error();
    memory_ = std::move(*mapped);
    std::memset(memory_.data(), 1, bytes_);
    return std::nullopt;
  }

  void deregister() {
    if (ibv_mr* const mr = registered_.exchange(nullptr)) ibv_dereg_mr(mr);
  }

  ibv_pd* pd_ = nullptr;
  size_t bytes_ = 0;
  int other_cpu_ = 0;
  Mapping memory_;
  std::atomic<ibv_mr*> registered_{nullptr};
  InjectorThread deregisterer_;
};

// Queue pairs are made, initialized and destroyed.
class QueuePairs final : public LoopDisturbance {
 public:
  using LoopDisturbance::LoopDisturbance;

 protected:
  Status prepare_loop(Environment& environment) override {
    device_ = &environment.device;
    cq_.reset(ibv_create_cq(device_->context(), 16, nullptr, nullptr, 0));
    if (!cq_) return verbs_error("ibv_create_cq");
    return std::nullopt;
  }
  void occur(Poller&, uint64_t until_ticks) override {
    Times times{};
    while (read_cycles() < until_ticks) make_and_destroy(times);
    times_.push_back(times);
  }
  std::string cause() const override { return "control_verb"; }
  // Each of the three is called; which took most is in the facts.
  nlohmann::ordered_json culprit(const Environment&) const override { return {{"verb", "ibv_"}}; }
  nlohmann::ordered_json facts(size_t i) const override {
    return {{"count", times_[i].count},
            {"ibv_create_qp_ns", clock().ns_in(times_[i].create)},
            {"ibv_modify_qp_ns", clock().ns_in(times_[i].modify)},
            {"ibv_destroy_qp_ns", clock().ns_in(times_[i].destroy)}};
  }

 private:
  struct Times {
    uint64_t count;
    uint64_t create;
    uint64_t modify;
    uint64_t destroy;
  };

  void make_and_destroy(Times& times) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = cq_.get();
    attributes.recv_cq = cq_.get();
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {.max_send_wr = 1,
                      .max_recv_wr = 1,
                      .max_send_sge = 1,
                      .max_recv_sge = 1,
                      .max_inline_data = 0};
    const uint64_t start = read_cycles();
    ibv_qp* const qp = ibv_create_qp(device_->pd(), &attributes);
    const uint64_t created = read_cycles();
    if (qp == nullptr) return;
    (void)device_->initialize(qp);
    const uint64_t modified = read_cycles();
    ibv_destroy_qp(qp);
    ++times.count;
    times.create += created - start;
    times.modify += modified - created;
    times.destroy += read_cycles() - modified;
  }

  const VerbsDevice* device_ = nullptr;
  Verbs<ibv_cq> cq_;
  std::vector<Times> times_;
};

}  // namespace

DisturbancePtr make_reg_mr(const DisturbanceSpec& spec, unsigned index) {
  return std::make_unique<Registration>(spec, index);
}
DisturbancePtr make_verbs(const DisturbanceSpec& spec, unsigned index) {
  return std::make_unique<QueuePairs>(spec, index);
}

}  // namespace pollgap::workload
