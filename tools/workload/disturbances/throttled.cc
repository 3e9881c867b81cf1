// SPDX-License-Identifier: Apache-2.0
// The scheduler keeps the polling thread off its core although it could run: the CFS quota of its
// cgroup, and real-time throttling.
#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "tools/workload/cpu_cgroup.h"
#include "tools/workload/disturbances/catalog.h"
#include "tools/workload/helper_process.h"
#include "tools/workload/injector_thread.h"
#include "tools/workload/monotonic.h"

namespace pollgap::workload {
namespace {

constexpr uint64_t watch_period_ns = 200 * ns_per_us;
constexpr unsigned watches_per_look = 5;
constexpr uint64_t look_period_ns = watches_per_look * watch_period_ns;

// The kernel accounts a running thread's time, and sees that its quota is used up, in the scheduler
// tick, which is every 4 ms with HZ=250, and when somebody reads the thread's CPU clock: so one
// does that, from another CPU.
void account_now(clockid_t cpu_clock) {
  timespec spent{};
  clock_gettime(cpu_clock, &spent);
}

std::string group_name(unsigned index) {
  return fmt::format("pollgap-workload-{}-{}", getpid(), index);
}

// The polling thread's gaps in which it may have been off its core.
std::vector<Occurrence> stalls(const Poller& poller, const TscClock& clock) {
  std::vector<Occurrence> found;
  for (const GapRecord& gap : poller.detector().gaps()) {
    if (gap.kind == GapKind::late_completion) continue;
    found.push_back({clock.to_mono_ns(gap.start_ticks), clock.to_mono_ns(gap.end_ticks)});
  }
  return found;
}

// When a throttling of that length was that was seen to be over at seen_ns, up to two looks late:
// from when the polling thread left its core, which begins a gap.
// Where something else began the gap, up to so much earlier than it says (Occurrence::detail).
Occurrence place(const std::vector<Occurrence>& stalls, uint64_t length_ns, uint64_t seen_ns) {
  for (const Occurrence& stall : stalls) {
    const uint64_t end_ns = stall.start_ns + length_ns;
    if (end_ns <= seen_ns && seen_ns - end_ns < 2 * look_period_ns) return {stall.start_ns, end_ns};
  }
  return {seen_ns - length_ns, seen_ns, 2 * look_period_ns};
}

// In each period the polling thread may run all but `length`. The kernel looks at the quota in its
// scheduler tick and when the period ends: single occurrences differ from the length by up to a
// tick, their mean does not. That it was the quota, and how long, is known from cpu.stat; when,
// from the gap that the polling thread saw. (The gap may be longer: nothing preempts another task
// when a throttling ends.)
class Quota final : public Disturbance {
 public:
  using Disturbance::Disturbance;
  ~Quota() override { end(); }

  Status prepare(Environment& environment) override {
    if (environment.options.policy != Policy::other) {
      return refusal("the CFS quota does not apply to real-time threads: use --policy other",
                     ExitCode::usage);
    }
    other_cpu_ = environment.options.other_cpu;
    poller_ = &victim(environment);
    Result<std::unique_ptr<CpuCgroup>> made = CpuCgroup::create(group_name(index()));
    if (!made) return refusal(made.error().message, made.error().code);
    group_ = std::move(*made);
    path_ = group_->path();
    // Or the thread would not use its quota up where others want its core.
    if (Status error = group_->set_largest_weight()) return refusal(error->message, error->code);
    if (Status error = group_->set_quota(spec().period_ns - spec().length_ns, spec().period_ns)) {
      return refusal(error->message, error->code);
    }
    return std::nullopt;
  }
  // The first period begins with the thread's first run in the group.
  Status begin(uint64_t first_ns) override {
    watcher_.start("pg-quota", other_cpu_, {first_ns, watch_period_ns, 0},
                   [this](uint64_t) { watch(); });
    return std::nullopt;
  }
  void end() override {
    watcher_.stop();
    group_.reset();
  }
  void report(const Environment& environment, TruthLog& log) override {
    const std::vector<Occurrence> gaps = stalls(victim(environment), environment.clock);
    for (const Throttled& throttled : seen_) {
      const Occurrence placed = place(gaps, throttled.length_ns, throttled.seen_ns);
      log_occurrence(environment, log, "throttled", placed,
                     {{"throttle", "cfs_quota"},
                      {"cgroup", path_},
                      {"quota_ns", spec().period_ns - spec().length_ns},
                      {"period_ns", spec().period_ns}},
                     {{"throttled_ns", throttled.length_ns},
                      {"nr_throttled", throttled.number},
                      {"placed_within_ns", placed.detail}});
    }
  }

 private:
  struct Throttled {
    uint64_t seen_ns;    // over at most about look_period_ns ago
    uint64_t length_ns;  // cpu.stat
    uint64_t number;
  };

  void watch() {
    if (done_) return;
    if (!added_) {
      added_ = true;
      done_ = group_->add_thread(poller_->tid()).has_value();
      return;
    }
    account_now(poller_->cpu_clock());
    if (++watches_ % watches_per_look != 0) return;
    const CpuCgroup::Throttling now = group_->throttling();
    if (now.total_ns == before_.total_ns) return;
    seen_.push_back({monotonic_ns(), now.total_ns - before_.total_ns, now.count});
    before_ = now;
    if (spec().count == 0 || seen_.size() < spec().count) return;
    group_->remove_threads();
    done_ = true;
  }

  int other_cpu_ = 0;
  Poller* poller_ = nullptr;
  std::unique_ptr<CpuCgroup> group_;
  std::string path_;
  InjectorThread watcher_;
  bool added_ = false;
  bool done_ = false;
  unsigned watches_ = 0;
  CpuCgroup::Throttling before_;
  std::vector<Throttled> seen_;  // of watcher_, until it has stopped
};

// The runtime and period of a CPU's fair server (since 6.12), which lends real-time threads' time
// to ordinary ones. Puts back what it found.
class FairServer {
 public:
  Status set(int cpu, uint64_t runtime_ns, uint64_t period_ns) {
    directory_ = fmt::format("/sys/kernel/debug/sched/fair_server/cpu{}/", cpu);
    if (!read("runtime", old_runtime_) || !read("period", old_period_)) {
      return Error{ExitCode::kernel_lacks,
                   fmt::format("cannot read {}runtime: {} (needs kernel 6.12, debugfs, and no "
                               "lockdown)",
                               directory_, std::strerror(errno))};
    }
    if (write(runtime_ns, period_ns)) return std::nullopt;
    const int error = errno;
    restore();
    return Error{ExitCode::kernel_lacks,
                 fmt::format("cannot write {}: {}", directory_, std::strerror(error))};
  }
  void restore() {
    if (old_period_ != 0) write(old_runtime_, old_period_);
    old_period_ = 0;
  }
  ~FairServer() { restore(); }

 private:
  bool read(const char* name, uint64_t& value) const {
    std::ifstream file(directory_ + name);
    return static_cast<bool>(file >> value);
  }
  bool write_one(const char* name, uint64_t value) const {
    std::ofstream file(directory_ + name);
    file << value << std::flush;
    return static_cast<bool>(file);
  }
  // The runtime may never be more than the period: the order depends on which way they go.
  bool write(uint64_t runtime_ns, uint64_t period_ns) const {
    uint64_t period_now = 0;
    if (!read("period", period_now)) return false;
    if (period_ns >= period_now) {
      return write_one("period", period_ns) && write_one("runtime", runtime_ns);
    }
    return write_one("runtime", runtime_ns) && write_one("period", period_ns);
  }

  std::string directory_;
  uint64_t old_runtime_ = 0;
  uint64_t old_period_ = 0;
};

// A real-time thread that never sleeps is kept off its core now and then: by the runtime of its
// cgroup (RT_GROUP_SCHED), or by the fair server. An ordinary task that always wants the core is
// there to take it. Its turns tell that the polling thread was throttled; when, the gap of that
// thread around them, because other ordinary tasks take their turns too.
class RealTimeThrottling final : public Disturbance {
 public:
  using Disturbance::Disturbance;
  ~RealTimeThrottling() override { end(); }

  Status spawn(const Options& options) override {
    if (options.policy == Policy::other) {
      return refusal("only real-time threads are throttled: use --policy fifo --priority N",
                     ExitCode::usage);
    }
    Status error =
        taker_.spawn({.comm = taker_comm, .cpu = victim_cpu(options)}, [] { return take_turn(); });
    if (error) return refusal(error->message, error->code);
    return std::nullopt;
  }
  Status prepare(Environment& environment) override {
    poller_ = &victim(environment);
    other_cpu_ = environment.options.other_cpu;
    const std::string mechanism = setting("mechanism", "auto");
    Status error;
    if (mechanism != "fair-server") error = prepare_group();
    by_group_ = mechanism != "fair-server" && !error;
    if (mechanism == "fair-server" || (mechanism == "auto" && error)) {
      period_ns_ = spec().period_ns;
      const std::string other = error ? error->message + "; " : "";
      error = fair_server_.set(poller_->cpu(), spec().length_ns, spec().period_ns);
      if (error) error->message.insert(0, other);
    }
    if (error) return refusal(error->message, error->code);
    return std::nullopt;
  }
  Status begin(uint64_t first_ns) override {
    watcher_.start("pg-rt-throttle", other_cpu_, {first_ns, watch_period_ns, 0},
                   [this](uint64_t) { watch(); });
    return std::nullopt;
  }
  void end() override {
    watcher_.stop();
    taker_.end();
    group_.reset();
    fair_server_.restore();
  }
  void report(const Environment& environment, TruthLog& log) override {
    nlohmann::ordered_json culprit{{"throttle", by_group_ ? "rt_runtime" : "fair_server"}};
    if (by_group_) culprit["cgroup"] = path_;
    std::vector<Occurrence> times = throttlings();
    if (spec().count != 0 && times.size() > spec().count) times.resize(spec().count);
    const std::vector<Occurrence> gaps = stalls(victim(environment), environment.clock);
    for (const Occurrence& time : times) {
      log_occurrence(environment, log, "throttled", around(gaps, time), culprit,
                     {{"took", {{"comm", taker_comm}, {"pid", taker_.pid()}}},
                      {"took_from_mono_ns", time.start_ns},
                      {"took_until_mono_ns", time.end_ns}});
    }
  }

 private:
  static constexpr const char* taker_comm = "pg-rt-taker";
  static constexpr uint64_t least_turn_ns = 300 * ns_per_us;
  static constexpr uint64_t interrupted_ns = 100 * ns_per_us;
  // A period of the fair server's that began before the group's limit was in force may still end in
  // its turn.
  static constexpr uint64_t fair_server_period_ns = 1000 * ns_per_ms;

  Status prepare_group() {
    Result<std::unique_ptr<CpuCgroup>> made = CpuCgroup::create(group_name(index()));
    if (!made) return made.error();
    // Ordinary tasks must get more of the core than the fair server gives them (5 %), or it takes
    // the core too: then the throttlings come more often than asked for.
    period_ns_ = std::min(spec().period_ns, spec().length_ns * 10);
    if (Status error = (*made)->set_real_time_quota(period_ns_ - spec().length_ns, period_ns_)) {
      return error;
    }
    group_ = std::move(*made);
    path_ = group_->path();
    return std::nullopt;
  }

  // In the helper process: from when it got the core until it lost it. That it lost it shows when
  // it runs again.
  static Occurrence take_turn() {
    const uint64_t start = monotonic_ns();
    uint64_t last = start;
    for (;;) {
      const uint64_t now = monotonic_ns();
      if (now - last > interrupted_ns) return {start, last};
      last = now;
    }
  }

  // The taker's turns, those of one throttling taken together; by the group only those that cannot
  // be the fair server's.
  std::vector<Occurrence> throttlings() const {
    const uint64_t from_ns = begun_ns_ + (by_group_ ? fair_server_period_ns : 0);
    std::vector<Occurrence> times;
    for (const Occurrence& turn : taker_.occurrences()) {
      if (turn.start_ns < from_ns || turn.end_ns - turn.start_ns < least_turn_ns) continue;
      if (!times.empty() && turn.start_ns - times.back().end_ns < period_ns_ / 2) {
        times.back().end_ns = turn.end_ns;
      } else {
        times.push_back(turn);
      }
    }
    return times;
  }

  static Occurrence around(const std::vector<Occurrence>& gaps, const Occurrence& time) {
    for (const Occurrence& gap : gaps) {
      if (gap.start_ns <= time.start_ns && time.start_ns < gap.end_ns) return gap;
    }
    return time;
  }

  // The first time begins, later counts.
  void watch() {
    if (begun_ns_ == 0) {
      begun_ns_ = monotonic_ns();
      if (group_) (void)group_->add_thread(poller_->tid());
      taker_.begin({0, 1, 0});
      return;
    }
    account_now(poller_->cpu_clock());
    if (++watches_ % watches_per_look != 0) return;
    // One more than asked for: only then is the last complete.
    if (spec().count == 0 || throttlings().size() <= spec().count) return;
    if (group_) group_->remove_threads();
    fair_server_.restore();
  }

  Poller* poller_ = nullptr;
  int other_cpu_ = 0;
  bool by_group_ = false;
  uint64_t period_ns_ = 0;  // in force
  uint64_t begun_ns_ = 0;   // 0: not yet
  unsigned watches_ = 0;
  std::string path_;
  std::unique_ptr<CpuCgroup> group_;
  FairServer fair_server_;
  HelperProcess taker_;
  InjectorThread watcher_;
};

}  // namespace

DisturbancePtr make_quota(const DisturbanceSpec& spec, unsigned index) {
  return std::make_unique<Quota>(spec, index);
}
DisturbancePtr make_rt_throttle(const DisturbanceSpec& spec, unsigned index) {
  return std::make_unique<RealTimeThrottling>(spec, index);
}

}  // namespace pollgap::workload
