// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/silence_sampler.h"

#include <bpf/bpf.h>
#include <sched.h>

#include <vector>

#include "pollgap_bpf.skel.h"
#include "probes/monotonic_clock.h"

namespace pollgap {
namespace {

constexpr uint64_t kLooksPerCount = 64;  // of its own CPU time

// Of one thread's present silence.
struct Asked {
  uint64_t since_ns = 0;  // its last poll
  uint64_t next_ns = 0;   // silence at which to ask again
};

}  // namespace

void sample_cpu(KernelPrograms& programs, uint32_t cpu, bool snapshot) {
  uint64_t arguments[2] = {monotonic_ns(), snapshot ? 1u : 0u};
  LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = arguments, .ctx_size_in = sizeof(arguments),
              .flags = BPF_F_TEST_RUN_ON_CPU, .cpu = cpu);
  bpf_prog_test_run_opts(bpf_program__fd(programs.object().progs.on_silence), &options);
}

SilenceSampler::SilenceSampler(KernelPrograms& programs, uint64_t threshold_ns)
    : programs_(programs),
      first_ns_(threshold_ns / 2),
      period_ns_(first_ns_),
      thread_([this] { watch(); }) {}

SilenceSampler::~SilenceSampler() {
  stop_ = true;
  thread_.join();
}

// Sleeps for a period. Whether the core stood still meanwhile is for the kernel side to
// say, which has seen when the timer's interrupt came.
void SilenceSampler::sleep() {
  uint64_t due_ns = monotonic_ns() + period_ns_;
  sleep_until_ns(due_ns);
  if (monotonic_ns() < due_ns + PG_STANDSTILL_NS) return;
  LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = &due_ns, .ctx_size_in = sizeof(due_ns));
  bpf_prog_test_run_opts(bpf_program__fd(programs_.object().progs.on_late_timer), &options);
}

void SilenceSampler::watch() {
  // A few microseconds in each period: late, they would be worth nothing. Not by a nice
  // value: where the target is in one cgroup or autogroup with the agent, what this thread weighs
  // is taken from the target's share of its own core (kernel/sched/fair.c: calc_group_shares).
  // Above the thread that drains the records, which may be real-time, too (CatchUp).
  const sched_param low{.sched_priority = 2};
  sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &low);
  const auto& clocks = programs_.clocks();
  std::vector<Asked> asked(clocks.size());
  for (uint64_t looks = 0; !stop_; ++looks) {
    if (looks % kLooksPerCount == 0) cpu_ns_ = thread_cpu_ns();
    sleep();
    for (size_t slot = 0; slot < clocks.size() && clocks[slot].tid != 0; ++slot) {
      const volatile pg_thread_clock& clock = clocks[slot];
      const uint64_t last_ns = clock.last_poll_ns;
      const uint64_t now = monotonic_ns();
      if (clock.exited != 0 || clock.activity != PG_USER || now < last_ns + first_ns_) continue;
      Asked& silence = asked[slot];
      if (silence.since_ns != last_ns) silence = {last_ns, first_ns_};
      if (now - last_ns < silence.next_ns) continue;
      const uint32_t cpu = clock.cpu;
      // An interrupt is being handled there: its record will tell, and the IPI would wait for it.
      if (programs_.cpus()[cpu].hardirq_ns != 0 || programs_.cpus()[cpu].softirq_ns != 0) continue;
      silence.next_ns = 2 * (now - last_ns);
      sample_cpu(programs_, cpu, false);
      ++asked_;
    }
  }
}

}  // namespace pollgap
