// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "agent/report/advice.h"
#include "agent/report/cpu_list.h"
#include "tests/unit/report_sample.h"

namespace pollgap {
namespace {

const HostFacts kHost{"0-7", 2};

std::string advice_for(Cause cause, const Detail& detail, const HostFacts& host = kHost) {
  std::string all;
  for (const std::string& sentence : advise(sample::gap_of(cause, detail), host))
    all += sentence + "\n";
  return all;
}

Detail task_detail(const char* comm) {
  Detail detail;
  detail.task = TaskRef{70, 69, comm};
  return detail;
}

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)
#define EXPECT_SAYS_NOT(text, part) EXPECT_EQ((text).find(part), std::string::npos) << (text)

TEST(Advice, MovesThePreemptingTaskToTheOtherCpus) {
  Detail detail = task_detail("stress-ng");
  detail.policy = "SCHED_FIFO";
  detail.rt_priority = 50;
  const std::string advice = advice_for(Cause::preemption, detail);
  EXPECT_SAYS(advice, "taskset -apc 0-2,4-7 69");
  EXPECT_SAYS(advice, "chrt -o -p 0 70");
  EXPECT_SAYS(advice, "isolcpus=domain,managed_irq,3");
  EXPECT_SAYS(advice_for(Cause::preemption, detail, HostFacts{}), "taskset -apc LIST 69");
  EXPECT_SAYS_NOT(advice_for(Cause::preemption, detail, HostFacts{"3", 2}), "taskset");
}

TEST(Advice, KnowsKernelThreads) {
  Detail unbound = task_detail("kworker/u17:2");
  unbound.work_function = "wb_workfn";
  EXPECT_SAYS(advice_for(Cause::preemption, unbound),
              "echo f7 > /sys/devices/virtual/workqueue/cpumask");
  Detail bound = task_detail("kworker/3:1");
  bound.work_function = "drain_local_pages_wq";
  EXPECT_SAYS(advice_for(Cause::preemption, bound), "drain_local_pages_wq()");
  EXPECT_SAYS(advice_for(Cause::preemption, bound), "-M 8");
  bound.work_function = "vmstat_update";
  EXPECT_SAYS(advice_for(Cause::preemption, bound), "vm.stat_interval");
  EXPECT_SAYS(advice_for(Cause::preemption, task_detail("irq/36-nvme0q1")),
              "echo 0-2,4-7 > /proc/irq/36/smp_affinity_list");
  for (const char* comm : {"migration/3", "ksoftirqd/3", "rcuc/3", "kworker/3:1", "irq/36-nvme"})
    EXPECT_SAYS_NOT(advice_for(Cause::preemption, task_detail(comm)), "taskset");
  EXPECT_SAYS(advice_for(Cause::preemption, task_detail("rcu_preempt")), "rcu_nocbs=3");
}

TEST(Advice, LiftsTheQuotaWithTheHostsCgroupVersion) {
  Detail detail;
  detail.throttle = "cfs_quota";
  detail.cgroup = "/system.slice/db.service";
  EXPECT_SAYS(advice_for(Cause::throttled, detail),
              "echo max > /sys/fs/cgroup/system.slice/db.service/cpu.max");
  EXPECT_SAYS(advice_for(Cause::throttled, detail), "systemctl set-property db.service CPUQuota=");
  EXPECT_SAYS(advice_for(Cause::throttled, detail, HostFacts{"0-7", 1}),
              "echo -1 > /sys/fs/cgroup/cpu/system.slice/db.service/cpu.cfs_quota_us");
  detail.throttle = "rt_runtime";
  EXPECT_SAYS(advice_for(Cause::throttled, detail), "kernel.sched_rt_runtime_us=-1");
  detail.throttle = "fair_server";
  EXPECT_SAYS(advice_for(Cause::throttled, detail), "fair_server/cpu3/runtime");
  detail.throttle = "dl_runtime";
  EXPECT_SAYS(advice_for(Cause::throttled, detail), "-p 0 4711");
}

TEST(Advice, TellsWhoStoppedIt) {
  Detail detail = task_detail("bash");
  detail.kind = "signal";
  detail.signal = "SIGSTOP";
  EXPECT_SAYS(advice_for(Cause::stopped, detail), "SIGSTOP came from bash (pid 69, tid 70)");
  detail.kind = "ptrace";
  EXPECT_SAYS(advice_for(Cause::stopped, detail), "grep TracerPid /proc/4711/status");
  detail.kind = "freezer";
  detail.cgroup = "/a";
  EXPECT_SAYS(advice_for(Cause::stopped, detail), "echo 0 > /sys/fs/cgroup/a/cgroup.freeze");
}

TEST(Advice, NamesTheSleepAndItsCallSite) {
  Detail detail;
  detail.syscall = "clock_nanosleep";
  detail.user_stack.resize(2);
  detail.user_stack[1].function = "loop";
  detail.user_stack[1].file = "s.cc";
  detail.user_stack[1].line = 3;
  EXPECT_SAYS(advice_for(Cause::blocked, detail), "clock_nanosleep() in loop at s.cc:3");
  detail.syscall = "futex";
  detail.woken_by = Waker{{9, 9, "holder"}, "task"};
  EXPECT_SAYS(advice_for(Cause::blocked, detail), "holder (pid 9) let it go");
  Gap gap = sample::gap_of(Cause::blocked, detail);
  gap.waited_for_event = true;
  EXPECT_SAYS(advise(gap, kHost).at(0), "completion event");
}

TEST(Advice, MovesInterrupts) {
  Detail detail;
  detail.kind = "device";
  detail.irq = 36;
  detail.action = "virtio1-req.0";
  EXPECT_SAYS(advice_for(Cause::hard_irq, detail),
              "interrupt 36 (virtio1-req.0) off CPU 3: echo 0-2,4-7 > "
              "/proc/irq/36/smp_affinity_list");
  EXPECT_SAYS(advice_for(Cause::hard_irq, detail), "IRQBALANCE_BANNED_CPULIST=3");
  detail.kind = "NET_RX";
  EXPECT_SAYS(advice_for(Cause::soft_irq, detail), "/proc/irq/36/smp_affinity_list");
}

TEST(Advice, KnowsVectorsAndSoftirqs) {
  Detail detail;
  detail.kind = "local_timer";
  EXPECT_SAYS(advice_for(Cause::hard_irq, detail), "nohz_full=3");
  detail.kind = "call_function";
  detail.callback = "flush_tlb_func";
  detail.sender = TaskRef{5, 4, "peer"};
  EXPECT_SAYS(advice_for(Cause::hard_irq, detail), "munmap");
  EXPECT_SAYS(advice_for(Cause::hard_irq, detail), "peer (pid 4, tid 5)");
  detail.callback = "ipi_mb";
  EXPECT_SAYS(advice_for(Cause::hard_irq, detail), "membarrier");
  detail = {};
  detail.kind = "TIMER";
  EXPECT_SAYS(advice_for(Cause::soft_irq, detail), "kernel.timer_migration=0");
  detail.kind = "RCU";
  EXPECT_SAYS(advice_for(Cause::soft_irq, detail), "rcu_nocbs=3");
  EXPECT_SAYS(advice_for(Cause::nmi, {}), "kernel.nmi_watchdog=0");
}

TEST(Advice, TreatsTheThreadsOwnKernelWork) {
  Detail detail;
  detail.kind = "page_fault";
  detail.fault = "minor";
  EXPECT_SAYS(advice_for(Cause::self_kernel, detail), "MAP_POPULATE");
  detail = {};
  detail.kind = "syscall";
  detail.syscall = "munmap";
  EXPECT_SAYS(advice_for(Cause::self_kernel, detail), "munmap()");
  detail = {};
  detail.kind = "task_work";
  detail.work_function = "task_numa_work";
  EXPECT_SAYS(advice_for(Cause::self_kernel, detail), "kernel.numa_balancing=0");
  detail = {};
  detail.note = "in the kernel at change_prot_numa, but not for a system call";
  EXPECT_SAYS(advice_for(Cause::unexplained, detail), "kernel.numa_balancing=0");
}

TEST(Advice, TakesVerbsOutOfTheLoop) {
  Detail detail;
  detail.verb = "ibv_reg_mr";
  EXPECT_SAYS(advice_for(Cause::control_verb, detail), "registration cache");
  detail.verb = "rdma_destroy_qp";
  EXPECT_SAYS(advice_for(Cause::control_verb, detail), "rdma_destroy_qp() from another thread");
}

TEST(Advice, SaysWhatIsMissingToNameTheFunction) {
  Detail detail;
  detail.user_stack.resize(1);
  detail.user_stack[0].module = "/usr/bin/server";
  EXPECT_SAYS(advice_for(Cause::application, detail), "debug symbols of /usr/bin/server");
  detail.user_stack[0].function = "parse";
  EXPECT_SAYS(advice_for(Cause::application, detail), "parse");
  detail.user_stack[0].function = "pthread_spin_lock";
  EXPECT_SAYS(advice_for(Cause::poll_function, detail), "MLX5_SINGLE_THREADED=1");
}

TEST(Advice, TellsCausesOfLateCompletionsApart) {
  Detail detail;
  detail.reason = "rnr";
  EXPECT_SAYS(advice_for(Cause::late_completion, detail), "min_rnr_timer");
  detail.reason = "retransmission";
  EXPECT_SAYS(advice_for(Cause::late_completion, detail), "Packets were lost");
  detail.reason = "undetermined";
  EXPECT_SAYS(advice_for(Cause::late_completion, detail), "local_ack_timeout_err");
  detail = {};
  detail.kind = "smi";
  EXPECT_SAYS(advice_for(Cause::stolen, detail), "turbostat");
  detail.kind = "hypervisor";
  EXPECT_SAYS(advice_for(Cause::stolen, detail), "vcpupin");
}

TEST(Advice, PointsToTheFirstErrorThatIsNoFlush) {
  Gap gap = sample::mixed_gap();
  EXPECT_SAYS(advise(gap, kHost).back(), "IBV_WC_RETRY_EXC_ERR on QP 17");
  gap.evidence.errors = ErrorCompletions{8, 8, 5, "IBV_WC_WR_FLUSH_ERR", 17, 0};
  EXPECT_SAYS(advise(gap, kHost).back(), "flushes, a consequence");
}

TEST(Advice, SpeaksOnlyOfCausesThatMatterAndOnce) {
  const auto advice = advise(sample::mixed_gap(), kHost);  // 78 % preemption, 15 % irq, 5 % faults
  const std::string all = testing::PrintToString(advice);
  EXPECT_SAYS(all, "taskset");
  EXPECT_SAYS(all, "/proc/irq/36");
  EXPECT_SAYS_NOT(all, "mlockall");
  EXPECT_TRUE(advise(sample::gap_of(Cause::unexplained, {}), kHost).empty());
  EXPECT_TRUE(advise(sample::gap_of(Cause::agent, {}), kHost).empty());
  // Nothing known, nothing said.
  for (const Cause cause : {Cause::preemption, Cause::throttled, Cause::stopped, Cause::blocked,
                            Cause::hard_irq, Cause::soft_irq, Cause::self_kernel,
                            Cause::control_verb, Cause::application, Cause::poll_function})
    EXPECT_TRUE(advise(sample::gap_of(cause, {}), kHost).empty()) << to_string(cause);
}

TEST(CpuList, ParsesAndPrints) {
  EXPECT_EQ(format_cpu_list(parse_cpu_list("0-2,5,7-8\n").value()), "0-2,5,7-8");
  EXPECT_EQ(format_cpu_list({}), "");
  EXPECT_TRUE(parse_cpu_list("").value().empty());
  for (const char* text : {"x", "1-", "-1", "3-1", "1,", ",1", "1;2", "70000", "0-99999999999"})
    EXPECT_FALSE(parse_cpu_list(text)) << text;
  EXPECT_EQ(format_cpu_mask({0, 1, 33}), "2,00000003");
  EXPECT_EQ(format_cpu_mask({4}), "10");
}

}  // namespace
}  // namespace pollgap
