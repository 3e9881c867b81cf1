// SPDX-License-Identifier: Apache-2.0
// Completions that come late, and error completions that come all at once.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "tools/soft-hca/soft_hca.h"
#include "tools/workload/disturbances/catalog.h"
#include "tools/workload/injector_thread.h"
#include "tools/workload/monotonic.h"
#include "tools/workload/on_cpu.h"

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

// A queue pair with many posted receives, all of which complete with flush errors at once.
class StormQueue {
 public:
  static Result<std::unique_ptr<StormQueue>> create(const VerbsDevice& device, ibv_cq* cq,
                                                    uint32_t receives) {
    auto queue = std::make_unique<StormQueue>();
    queue->device_ = &device;
    queue->receives_ = receives;
    ibv_qp_init_attr attributes{};
    attributes.send_cq = cq;
    attributes.recv_cq = cq;
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {.max_send_wr = 1,
                      .max_recv_wr = receives,
                      .max_send_sge = 1,
                      .max_recv_sge = 1,
                      .max_inline_data = 0};
    queue->qp_.reset(ibv_create_qp(device.pd(), &attributes));
    if (!queue->qp_) return verbs_error(fmt::format("ibv_create_qp with {} receives", receives));
    if (Status error = queue->load()) return *error;
    return queue;
  }

  // To INIT, with all its receives posted. From a new queue pair, or one that has failed.
  Status load() {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RESET;
    if (const int error = ibv_modify_qp(qp_.get(), &attributes, IBV_QP_STATE); error != 0) {
      return verbs_error("ibv_modify_qp to RESET", error);
    }
    if (Status error = device_->initialize(qp_.get())) return error;
    ibv_recv_wr request{};
    request.wr_id = make_wr_id(Request::storm, 0);
    for (uint32_t i = 0; i < receives_; ++i) {
      ibv_recv_wr* bad = nullptr;
      if (const int error = ibv_post_recv(qp_.get(), &request, &bad); error != 0) {
        return verbs_error("ibv_post_recv", error);
      }
    }
    return std::nullopt;
  }

  void fail(bool soft) {
    if (soft) {
      soft_hca::fail_qp(qp_->qp_num, 0, 0);
      return;
    }
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    ibv_modify_qp(qp_.get(), &attributes, IBV_QP_STATE);
  }

  uint32_t receives() const { return receives_; }

 private:
  const VerbsDevice* device_ = nullptr;
  uint32_t receives_ = 0;
  Verbs<ibv_qp> qp_;
};

// So many error completions at once that one poll, which asks for as many as there may be, takes
// the length. What the polling thread saw is the truth: when its polls returned them.
class Errors final : public Disturbance {
 public:
  using Disturbance::Disturbance;
  ~Errors() override { thread_.stop(); }

  int extra_completions() const override {
    return static_cast<int>(std::min<uint64_t>(spec().length_ns / least_ns_each, most_completions));
  }
  Status prepare(Environment& environment) override {
    soft_ = environment.options.device == "soft";
    other_cpu_ = environment.options.other_cpu;
    poller_ = &victim(environment);
    double ns_each = 0;
    if (Status error = run_on_polling_core(
            poller_->cpu(), [&] { return calibrate(environment.device, ns_each); })) {
      return error;
    }
    auto left = static_cast<uint64_t>(static_cast<double>(spec().length_ns) / ns_each);
    if (left > static_cast<uint64_t>(extra_completions())) {
      return refusal(
          fmt::format("it takes {} error completions here, more than a CQ can hold: "
                      "shorten the length",
                      left));
    }
    while (left > 0) {
      const auto receives = static_cast<uint32_t>(std::min<uint64_t>(left, most_receives));
      Result<std::unique_ptr<StormQueue>> made =
          StormQueue::create(environment.device, poller_->endpoint().cq(), receives);
      if (!made) return refusal(made.error().message, made.error().code);
      queues_.push_back(std::move(*made));
      completions_ += receives;
      left -= receives;
    }
    return std::nullopt;
  }
  Status begin(uint64_t first_ns) override {
    thread_.start("pg-errors", other_cpu_, schedule(first_ns), [this](uint64_t) { storm(); });
    return std::nullopt;
  }
  void end() override { thread_.stop(); }
  void report(const Environment& environment, TruthLog& log) override {
    for (size_t i = 0; i < storms_.size(); ++i) {
      const uint64_t next_ns = i + 1 < storms_.size() ? storms_[i + 1] : UINT64_MAX;
      Occurrence seen{0, 0};
      uint64_t completions = 0;
      uint64_t polls = 0;
      for (const Poller::StormPoll& poll : poller_->storm_polls()) {
        const uint64_t exit_ns = environment.clock.to_mono_ns(poll.exit_ticks);
        if (exit_ns < storms_[i] || exit_ns >= next_ns) continue;
        if (polls++ == 0) seen.start_ns = environment.clock.to_mono_ns(poll.entry_ticks);
        seen.end_ns = exit_ns;
        completions += poll.completions;
      }
      if (polls == 0) continue;  // polling ended before
      log_occurrence(
          environment, log, "poll_function", seen, nlohmann::ordered_json::object(),
          {{"error_completions", completions}, {"polls", polls}, {"failed_mono_ns", storms_[i]}});
    }
  }

 private:
  static constexpr uint64_t least_ns_each = 10;
  static constexpr uint64_t most_completions = 1U << 20;
  static constexpr uint32_t most_receives = 1U << 14;

  // How long a poll takes an error completion in the mean, on a CQ of its own.
  Status calibrate(const VerbsDevice& device, double& ns_each) const {
    const Verbs<ibv_cq> cq(ibv_create_cq(device.context(), most_receives, nullptr, nullptr, 0));
    if (!cq) return verbs_error("ibv_create_cq");
    Result<std::unique_ptr<StormQueue>> made = StormQueue::create(device, cq.get(), most_receives);
    if (!made) return refusal(made.error().message, made.error().code);
    std::vector<ibv_wc> wc(most_receives);
    uint64_t spent_ns = 0;
    for (int sample = 0; sample < samples; ++sample) {
      (*made)->fail(soft_);
      for (uint32_t got = 0; got < most_receives;) {
        const uint64_t start = monotonic_ns();
        const int count = ibv_poll_cq(cq.get(), static_cast<int>(wc.size()), wc.data());
        if (count < 0) return refusal("ibv_poll_cq failed", ExitCode::other);
        if (count > 0) spent_ns += monotonic_ns() - start;
        got += static_cast<uint32_t>(count);
      }
      if (Status error = (*made)->load()) return error;
    }
    ns_each = static_cast<double>(spent_ns) / (samples * most_receives);
    return std::nullopt;
  }

  // Nothing else may be outstanding, or its completion would be late besides. The soft adapter is
  // told to hold completions until all queue pairs have failed: then theirs appear at once.
  void storm() {
    poller_->allow_posting(false);
    const uint64_t give_up_ns = monotonic_ns() + spec().length_ns + ns_per_s;
    while (!poller_->drained() && monotonic_ns() < give_up_ns) usleep(100);
    const uint64_t all = poller_->storm_completions() + completions_;
    storms_.push_back(monotonic_ns());
    if (soft_) soft_hca::hold_completions(hold_ns + queues_.size() * hold_ns_each);
    for (const auto& queue : queues_) queue->fail(soft_);
    while (poller_->storm_completions() < all && monotonic_ns() < give_up_ns) usleep(500);
    poller_->allow_posting(true);
    // Receives are posted again for the next time.
    for (const auto& queue : queues_) (void)queue->load();
  }

  static constexpr uint64_t hold_ns = 5 * ns_per_ms;
  static constexpr uint64_t hold_ns_each = 200 * ns_per_us;
  static constexpr int samples = 3;
  bool soft_ = false;
  int other_cpu_ = 0;
  Poller* poller_ = nullptr;
  std::vector<std::unique_ptr<StormQueue>> queues_;
  uint64_t completions_ = 0;
  InjectorThread thread_;
  std::vector<uint64_t> storms_;  // when they began; of thread_, until it has stopped
};

}  // namespace

DisturbancePtr make_errors(const DisturbanceSpec& spec, unsigned index) {
  return std::make_unique<Errors>(spec, index);
}
DisturbancePtr make_late(const DisturbanceSpec& spec, unsigned index) {
  return std::make_unique<Late>(spec, index);
}

}  // namespace pollgap::workload
