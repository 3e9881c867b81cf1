// SPDX-License-Identifier: Apache-2.0
// Other tasks take the polling core.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>

#include "tools/workload/cpu_cgroup.h"
#include "tools/workload/disturbances/catalog.h"
#include "tools/workload/helper_process.h"
#include "tools/workload/monotonic.h"
#include "tools/workload/shared_futex.h"
#include "tools/workload/shared_memory.h"

namespace pollgap::workload {
namespace {

uint64_t own_cpu_ns() {
  timespec spent{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
  return static_cast<uint64_t>(spent.tv_sec) * ns_per_s + static_cast<uint64_t>(spent.tv_nsec);
}

// Tells how much of it the task really ran: less, when it was itself preempted.
Occurrence spin_until(uint64_t start_ns, uint64_t until_ns, uint64_t& ran_ns) {
  const uint64_t cpu_before = own_cpu_ns();
  uint64_t now = start_ns;
  while (now < until_ns) now = monotonic_ns();
  ran_ns = own_cpu_ns() - cpu_before;
  return {start_ns, now};
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
    Status error = hog_.spawn({.comm = fifo_comm,
                               .cpu = victim_cpu(options),
                               .policy = Policy::fifo,
                               .priority = priority_},
                              [this] { return run(); });
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
      log_occurrence(environment, log, "preemption", occurrence, culprit,
                     {{"ran_ns", occurrence.detail}});
    }
  }

 private:
  // In the helper process.
  Occurrence run() const {
    const uint64_t start = monotonic_ns();
    uint64_t ran_ns = 0;
    Occurrence occurrence = spin_until(start, start + spec().length_ns, ran_ns);
    occurrence.detail = ran_ns;
    return occurrence;
  }

  int priority_ = fifo_priority;
  HelperProcess hog_;
};

constexpr size_t chain_links = 3;

// Ordinary tasks that take the core one after the other, each woken by the one before it. They are
// in a cgroup of the largest weight, where that can be had, and have the lowest nice value, so that
// no other turn comes in between: under EEVDF a task of 87 times (nice) or 256 times (cgroup) the
// weight keeps its claim for as much longer.
class Ordinary final : public Disturbance {
 public:
  using Disturbance::Disturbance;
  ~Ordinary() override { end(); }

  Status spawn(const Options& options) override {
    if (options.policy != Policy::other) {
      return refusal("ordinary tasks never get a core from a real-time thread: use --policy other",
                     ExitCode::usage);
    }
    for (size_t link = 0; link < chain_links; ++link) {
      Status error = tasks_[link].spawn({.comm = comm(link),
                                         .cpu = victim_cpu(options),
                                         .policy = Policy::other,
                                         .priority = lowest_nice,
                                         .on_change_of = link == 0 ? nullptr : &chain_->turn[link]},
                                        [this, link] { return run(link); });
      if (error) return refusal(error->message, error->code);
    }
    return std::nullopt;
  }
  Status prepare(Environment&) override {
    Result<std::unique_ptr<CpuCgroup>> made =
        CpuCgroup::create(fmt::format("pollgap-workload-{}-{}", getpid(), index()));
    if (!made) return std::nullopt;
    group_ = std::move(*made);
    (void)group_->set_largest_weight();
    for (const HelperProcess& task : tasks_) (void)group_->add_thread(task.pid());
    return std::nullopt;
  }
  Status begin(uint64_t first_ns) override {
    for (HelperProcess& task : tasks_) task.begin(schedule(first_ns));
    return std::nullopt;
  }
  void end() override {
    for (HelperProcess& task : tasks_) task.end();
    group_.reset();
  }
  void report(const Environment& environment, TruthLog& log) override {
    const size_t complete = tasks_.back().occurrences().size();
    for (size_t i = 0; i < complete; ++i) {
      nlohmann::ordered_json ran = nlohmann::ordered_json::array();
      for (size_t link = 0; link < chain_links; ++link) {
        const Occurrence& part = tasks_[link].occurrences()[i];
        nlohmann::ordered_json entry = task(comm(link), tasks_[link].pid());
        entry["start_mono_ns"] = part.start_ns;
        entry["duration_ns"] = part.end_ns - part.start_ns;
        entry["ran_ns"] = part.detail;
        ran.push_back(std::move(entry));
      }
      const Occurrence whole{tasks_.front().occurrences()[i].start_ns,
                             tasks_.back().occurrences()[i].end_ns};
      log_occurrence(environment, log, "preemption", whole,
                     {{"task", {{"comm", comm_prefix}}}, {"policy", "SCHED_OTHER"}},
                     {{"tasks", std::move(ran)}});
    }
  }

 private:
  static constexpr const char* comm_prefix = "pg-ordinary-";
  static constexpr int lowest_nice = -20;

  struct Chain {
    uint64_t start_ns;  // of this occurrence; written by the first, read by those it wakes
    std::atomic<uint32_t> turn[chain_links];
  };

  static std::string comm(size_t link) { return comm_prefix + std::to_string(link); }

  // In the helper process: its part of the length, then it wakes the next.
  Occurrence run(size_t link) {
    const uint64_t start = monotonic_ns();
    if (link == 0) chain_->start_ns = start;
    const uint64_t until = chain_->start_ns + spec().length_ns * (link + 1) / chain_links;
    uint64_t ran_ns = 0;
    Occurrence part = spin_until(start, until, ran_ns);
    part.detail = ran_ns;
    if (link + 1 < chain_links) {
      std::atomic<uint32_t>& next = chain_->turn[link + 1];
      futex_store(next, next + 1);
    }
    return part;
  }

  SharedMemory<Chain> chain_;
  std::unique_ptr<CpuCgroup> group_;
  std::array<HelperProcess, chain_links> tasks_;
};

}  // namespace

DisturbancePtr make_ordinary(const DisturbanceSpec& spec, unsigned index) {
  return std::make_unique<Ordinary>(spec, index);
}
DisturbancePtr make_fifo(const DisturbanceSpec& spec, unsigned index) {
  return std::make_unique<Fifo>(spec, index);
}

}  // namespace pollgap::workload
