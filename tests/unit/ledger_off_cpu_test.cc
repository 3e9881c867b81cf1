// SPDX-License-Identifier: Apache-2.0
// The thread was off the CPU: preempted, throttled, stopped, blocked.
#include <gtest/gtest.h>
#include <sched.h>

#include <csignal>

#include "tests/unit/ledger_stream.h"

namespace pollgap::test {
namespace {

constexpr uint32_t kFifo = SCHED_FIFO;

ev_run fifo_run(std::string_view comm, uint32_t tid, uint64_t from, uint64_t to) {
  ev_run run = run_of(comm, tid, from, to);
  run.task.policy = kFifo;
  run.task.priority = 49;
  return run;
}

ev_off_cpu real_time(ev_off_cpu off) {
  off.policy = kFifo;
  off.priority = 89;
  return off;
}

ev_gap between(uint64_t duration_ns) { return gap_of(EV_GAP_BETWEEN_POLLS, duration_ns); }

TEST(Preemption, NamesTheTaskItsPriorityAndWhoWokeIt) {
  ev_run run = fifo_run("pg-fifo-hog", 812, 10'000, 4'980'000);
  run.waker.tid = 802;
  run.waker.pid = 800;
  run.waker.at_ns = kStart + 9'000;
  run.waker.context = EV_WAKE_TASK;
  set_text(run.waker.comm, "pollgap-worker");
  run.task.cgroup_id = 7;
  const Gap gap = only_gap(EvidenceStream()
                               .name(EV_NAME_THREAD, kTid, "poller")
                               .name(EV_NAME_CGROUP, 7, "/system.slice")
                               .add(run)
                               .add(preempted(10'000, 4'980'000))
                               .add(between(5_ms)));
  EXPECT_EQ(gap.verdict.cause, Cause::preemption);
  EXPECT_EQ(gap.verdict.confidence, Confidence::high);
  EXPECT_EQ(gap.thread, "poller");
  EXPECT_EQ(gap.verdict.detail.task, (TaskRef{812, 812, "pg-fifo-hog"}));
  EXPECT_EQ(gap.verdict.detail.rt_priority, 50);
  EXPECT_EQ(gap.verdict.detail.cgroup, "/system.slice");
  EXPECT_EQ(gap.verdict.culprit_ns, 4'970'000u);
  EXPECT_EQ(gap.verdict.text,
            "preempted 4.97 ms by pg-fifo-hog (pid 812, SCHED_FIFO 50), woken by "
            "pollgap-worker/802");
  EXPECT_EQ(ns_of(gap, Cause::application), 30'000u);  // to the switch and from it
}

TEST(Preemption, NamesEachOfSeveralTasks) {
  const Gap gap = only_gap(EvidenceStream()
                               .add(run_of("a", 11, 0, 1'900'000))
                               .add(run_of("b", 12, 1'900'000, 3'900'000))
                               .add(run_of("a", 11, 3'900'000, 4'000'000))
                               .add(preempted(0, 4_ms))
                               .add(between(4_ms)));
  ASSERT_EQ(gap.segments.size(), 3u);
  EXPECT_EQ(gap.verdict.text, "preempted 4.00 ms by 2 tasks: a/11 2.00 ms, b/12 2.00 ms");
  ASSERT_EQ(gap.culprits.size(), 2u);
  EXPECT_EQ(gap.culprits[0].count, 2u);
}

TEST(Preemption, InterruptsInsideAreNotTheTasks) {
  const Gap gap = only_gap(EvidenceStream()
                               .add(device_irq(36, "virtio1-req.0", 1_ms, 1'200'000))
                               .add(softirq_of(3, 900'000, 2_ms))
                               .add(run_of("hog", 11, 0, 4_ms))
                               .add(preempted(0, 4_ms))
                               .add(between(4_ms)));
  EXPECT_EQ(ns_of(gap, Cause::hard_irq), 200'000u);
  EXPECT_EQ(ns_of(gap, Cause::soft_irq), 900'000u);  // net of the hard interrupt
  EXPECT_EQ(ns_of(gap, Cause::preemption), 2'900'000u);
  EXPECT_EQ(gap.segments.size(), 5u);
  EXPECT_EQ(gap.culprits[0].count, 1u) << "one stretch, though interrupts cut it";
}

TEST(Preemption, KworkerByTheWorkItTookMostTimeFor) {
  ev_run run = run_of("kworker/1:2", 77, 0, 3_ms);
  run.task.flags = EV_TASK_KTHREAD | EV_TASK_WQ_WORKER;
  run.work_function = 0xffff0003;
  const Gap gap = only_gap(EvidenceStream()
                               .name(EV_NAME_KERNEL_FUNCTION, 0xffff0002, "busy_work")
                               .add(work_of(77, 0xffff0001, 100'000, 200'000))
                               .add(work_of(77, 0xffff0002, 200'000, 2'900'000))
                               .add(work_of(78, 0xffff0004, 0, 3_ms))
                               .add(run)
                               .add(preempted(0, 3_ms))
                               .add(between(3_ms)));
  EXPECT_EQ(gap.verdict.detail.work_function, "busy_work");
  EXPECT_NE(gap.verdict.text.find("kworker/1:2"), std::string::npos);
  EXPECT_NE(gap.verdict.text.find("busy_work"), std::string::npos);
}

TEST(Preemption, KworkerStillInItsWorkItem) {
  ev_run run = run_of("kworker/1:2", 77, 0, 3_ms);
  run.task.flags = EV_TASK_WQ_WORKER;
  run.work_function = 0xffff0003;
  const Gap gap = only_gap(EvidenceStream().add(run).add(preempted(0, 3_ms)).add(between(3_ms)));
  EXPECT_EQ(gap.verdict.detail.work_function, "0xffff0003");
}

TEST(Preemption, TheAgentsOwnTasksAreTheAgents) {
  const Gap gap = only_gap(EvidenceStream()
                               .session()
                               .add(run_of("pollgap", kAgentPid, 0, 2_ms))
                               .add(preempted(0, 2_ms))
                               .add(between(2_ms)));
  EXPECT_EQ(gap.verdict.cause, Cause::agent);
}

TEST(Preemption, IdleCoreOrNoRecordIsUnexplained) {
  const Gap idle =
      only_gap(EvidenceStream().add(idle_run(0, 2_ms)).add(preempted(0, 2_ms)).add(between(2_ms)));
  EXPECT_EQ(idle.verdict.cause, Cause::unexplained);
  EXPECT_NE(idle.verdict.text.find("the core was idle"), std::string::npos);

  const Gap unseen = only_gap(EvidenceStream().add(preempted(0, 2_ms)).add(between(2_ms)));
  EXPECT_EQ(unseen.verdict.cause, Cause::unexplained);
  EXPECT_EQ(unseen.verdict.confidence, Confidence::low);
  EXPECT_NE(unseen.verdict.text.find("no record of what ran on CPU 1"), std::string::npos);
}

TEST(Preemption, LostRecordsAreNamedAndLowerTheConfidence) {
  auto lost = make_record<ev_lost>(EV_LOST, 0, kStart, kStart + 1_ms);
  lost.records = 12;
  const Gap gap = only_gap(EvidenceStream()
                               .add(run_of("hog", 11, 0, 2_ms))
                               .add(preempted(0, 2_ms))
                               .add(lost)
                               .add(between(2_ms)));
  EXPECT_EQ(gap.verdict.cause, Cause::preemption);
  EXPECT_EQ(gap.verdict.confidence, Confidence::low);
  EXPECT_EQ(gap.evidence.lost_records, 12u);
  EXPECT_NE(gap.verdict.text.find("12 records were lost"), std::string::npos);
}

TEST(Preemption, MomentsOfSwitchingBelongToTheTask) {
  const Gap gap = only_gap(EvidenceStream()
                               .add(run_of("a", 11, 3'000, 1_ms))
                               .add(run_of("b", 12, 1'004'000, 1'998'000))
                               .add(preempted(0, 2_ms))
                               .add(between(2_ms)));
  EXPECT_EQ(ns_of(gap, Cause::preemption), 2_ms);
}

TEST(Migration, EachWaitOnItsOwnCpu) {
  ev_off_cpu off = preempted(0, 4_ms);
  off.header.cpu = 2;
  EvidenceStream stream;
  stream.add(run_of("on-one", 11, 0, 3_ms, 1))
      .add(migrate_of(1, 2, 3_ms))
      .add(run_of("on-two", 12, 2_ms, 4_ms, 2))
      .add(off);
  ev_gap record = between(4_ms);
  record.header.cpu = 2;
  const Gap gap = only_gap(stream.add(record));
  ASSERT_EQ(gap.segments.size(), 2u);
  EXPECT_EQ(gap.segments[0].detail.task->comm, "on-one");
  EXPECT_EQ(gap.segments[0].duration_ns, 3_ms);
  EXPECT_EQ(gap.segments[1].detail.task->comm, "on-two");
  ASSERT_EQ(gap.evidence.migrations.size(), 1u);
  EXPECT_EQ(gap.evidence.migrations[0].offset_ns, 3_ms);
  EXPECT_EQ(gap.cpu, 2u);
}

TEST(Migration, WaitsForTheRecordOfTheTaskLeftBehind) {
  ev_off_cpu off = preempted(0, 3_ms);
  off.header.cpu = 2;
  EvidenceStream stream;
  stream.add(migrate_of(1, 2, 3_ms)).add(off).add(between(3'100'000));
  Correlator correlator({});
  std::vector<Gap> gaps;
  for (const auto& record : stream.records()) {
    correlator.accept(record, gaps);
  }
  EXPECT_TRUE(gaps.empty());
  EvidenceStream later;
  later.add(run_of("hog", 11, 0, 9_ms, 1));
  correlator.accept(later.records()[0], gaps);
  ASSERT_EQ(gaps.size(), 1u);
  EXPECT_EQ(gaps[0].verdict.cause, Cause::preemption);
  expect_exact(gaps[0]);
}

TEST(Migration, DoesNotWaitForEver) {
  ev_off_cpu off = preempted(0, 3_ms);
  off.header.cpu = 2;
  EvidenceStream stream;
  stream.add(migrate_of(1, 2, 3_ms))
      .add(off)
      .add(between(3_ms))
      .add(vector_irq(EV_VECTOR_LOCAL_TIMER, 2'000_ms, 2'001_ms));
  Correlator correlator({});
  std::vector<Gap> gaps;
  for (const auto& record : stream.records()) {
    correlator.accept(record, gaps);
  }
  ASSERT_EQ(gaps.size(), 1u);
  EXPECT_EQ(gaps[0].verdict.cause, Cause::unexplained);
}

TEST(Throttled, ByCfsQuotaThoughOthersRunMeanwhile) {
  ev_off_cpu off = preempted(1_ms, 9_ms);
  off.flags |= EV_OFF_CFS_THROTTLED;
  off.throttle_cgroup_id = 5;
  off.quota_ns = 2_ms;
  off.period_ns = 10_ms;
  const Gap gap = only_gap(EvidenceStream()
                               .name(EV_NAME_CGROUP, 5, "/x")
                               .add(run_of("other", 11, 1_ms, 3_ms))
                               .add(device_irq(36, "nic", 4_ms, 5_ms))
                               .add(idle_run(3_ms, 9_ms))
                               .add(off)
                               .add(sample_of(1, 500'000))
                               .add(between(9_ms)));
  EXPECT_EQ(gap.verdict.cause, Cause::throttled);
  EXPECT_EQ(gap.verdict.confidence, Confidence::high);
  EXPECT_EQ(ns_of(gap, Cause::throttled), 8_ms);
  EXPECT_EQ(ns_of(gap, Cause::hard_irq), 0u);
  EXPECT_EQ(gap.verdict.detail.throttle, "cfs_quota");
  EXPECT_EQ(gap.verdict.text,
            "throttled 8.00 ms: cgroup /x used up its CFS quota of 2.00 ms per 10.0 ms; also "
            "application 1.00 ms");
}

TEST(Throttled, SleepFirstThenTheQuota) {
  ev_off_cpu off = asleep(0, 2_ms, 6_ms);
  off.flags |= EV_OFF_CFS_THROTTLED;
  const Gap gap = only_gap(EvidenceStream().add(off).add(between(6_ms)));
  EXPECT_EQ(ns_of(gap, Cause::blocked), 2_ms);
  EXPECT_EQ(ns_of(gap, Cause::throttled), 4_ms);
}

TEST(Throttled, RealTimeThreadThatLosesTheCoreToAnOrdinaryTask) {
  const Gap gap = only_gap(EvidenceStream()
                               .session("6.1.0-57-amd64")
                               .add(run_of("stress", 11, 0, 30_ms))
                               .add(idle_run(30_ms, 50_ms))
                               .add(real_time(preempted(0, 50_ms)))
                               .add(between(50_ms)));
  EXPECT_EQ(gap.verdict.cause, Cause::throttled);
  EXPECT_EQ(ns_of(gap, Cause::throttled), 50_ms);
  EXPECT_EQ(gap.verdict.detail.throttle, "rt_runtime");
}

TEST(Throttled, FairServerByRecordOrByKernel) {
  ev_run lent = run_of("stress", 11, 0, 30_ms);
  lent.fair_server = 1;
  const Gap told =
      only_gap(EvidenceStream().add(lent).add(real_time(preempted(0, 30_ms))).add(between(30_ms)));
  EXPECT_EQ(told.verdict.detail.throttle, "fair_server");

  const Gap implied = only_gap(EvidenceStream()
                                   .session("6.18.0")
                                   .add(run_of("stress", 11, 0, 30_ms))
                                   .add(real_time(preempted(0, 30_ms)))
                                   .add(between(30_ms)));
  EXPECT_EQ(implied.verdict.detail.throttle, "fair_server");
  EXPECT_NE(implied.verdict.text.find("stress/11 ran instead"), std::string::npos);
}

TEST(Throttled, AnotherRealTimeTaskIsPreemption) {
  ev_off_cpu off = real_time(preempted(0, 4_ms));
  const Gap gap = only_gap(EvidenceStream()
                               .add(fifo_run("hog", 11, 0, 3_ms))
                               .add(run_of("stress", 12, 3_ms, 4_ms))
                               .add(off)
                               .add(between(4_ms)));
  EXPECT_EQ(ns_of(gap, Cause::preemption), 3_ms);
  EXPECT_EQ(ns_of(gap, Cause::throttled), 1_ms);
}

TEST(Throttled, WaitingForATaskThatHadTheCoreBeforeTheWakeupIsPreemption) {
  ev_run run = run_of("in-kernel", 11, 0, 3_ms);
  const Gap gap =
      only_gap(EvidenceStream().add(run).add(real_time(asleep(0, 1_ms, 3_ms))).add(between(3_ms)));
  EXPECT_EQ(ns_of(gap, Cause::blocked), 1_ms);
  EXPECT_EQ(ns_of(gap, Cause::preemption), 2_ms);
}

TEST(Throttled, TheKernelsFlagCoversWhatNoRecordDoes) {
  ev_off_cpu off = real_time(preempted(0, 50_ms));
  off.flags |= EV_OFF_RT_THROTTLED;
  const Gap gap = only_gap(
      EvidenceStream().add(fifo_run("migration/1", 19, 10_ms, 11_ms)).add(off).add(between(50_ms)));
  EXPECT_EQ(ns_of(gap, Cause::throttled), 49_ms);
  EXPECT_EQ(gap.verdict.detail.throttle, "rt_runtime") << "a group's, on a kernel this new";
  EXPECT_EQ(ns_of(gap, Cause::preemption), 1_ms);
}

TEST(Stopped, BySignalNamesItAndItsSender) {
  ev_off_cpu off = asleep(1_ms, 5_ms, 5'100'000);
  off.flags = EV_OFF_STOPPED;
  off.state = 4;
  const Gap gap = only_gap(EvidenceStream()
                               .add(signal_of(SIGUSR1, 900'000))
                               .add(signal_of(SIGSTOP, 950'000))
                               .add(signal_of(SIGCONT, 5_ms))
                               .add(device_irq(36, "nic", 2_ms, 3_ms))
                               .add(run_of("tail", 12, 5_ms, 5'100'000))
                               .add(off)
                               .add(sample_of(1, 500'000))
                               .add(between(5'200'000)));
  EXPECT_EQ(gap.verdict.cause, Cause::stopped);
  EXPECT_EQ(ns_of(gap, Cause::stopped), 4_ms) << "interrupts meanwhile are not its loss";
  EXPECT_EQ(ns_of(gap, Cause::preemption), 100'000u);
  EXPECT_EQ(gap.verdict.detail.kind, "signal");
  EXPECT_EQ(gap.verdict.detail.signal, "SIGSTOP");
  EXPECT_EQ(gap.verdict.text.rfind("stopped 4.00 ms by SIGSTOP from bash/900", 0), 0u);
}

TEST(Stopped, ByTracerAndByFreezer) {
  ev_off_cpu traced = asleep(0, 2_ms, 2_ms);
  traced.flags = EV_OFF_TRACED;
  EXPECT_EQ(only_gap(EvidenceStream().add(traced).add(between(2_ms))).verdict.detail.kind,
            "ptrace");
  ev_off_cpu frozen = asleep(0, 2_ms, 2_ms);
  frozen.flags = EV_OFF_FROZEN;
  const Gap gap = only_gap(EvidenceStream().add(frozen).add(between(2_ms)));
  EXPECT_EQ(gap.verdict.cause, Cause::stopped);
  EXPECT_EQ(gap.verdict.detail.kind, "freezer");
}

TEST(Blocked, NamesSystemCallStacksAndWaker) {
  ev_off_cpu off = asleep(100'000, 4_ms, 4'200'000);
  off.flags = EV_OFF_IN_SYSCALL;
  off.syscall_nr = 230;
  off.waker.tid = 850;
  off.waker.pid = kPid;
  off.waker.at_ns = kStart + 4_ms;
  off.waker.context = EV_WAKE_TASK;
  set_text(off.waker.comm, "helper");
  const Gap gap = only_gap(
      EvidenceStream()
          .name(EV_NAME_SYSCALL, 230, "clock_nanosleep")
          .name(EV_NAME_KERNEL_FUNCTION, 0xffff1000, "do_nanosleep")
          .name(EV_NAME_USER_FRAME, 0x5000,
                R"({"function":"pause_a_bit","file":"app.cc","line":12,"module":"/bin/app"})")
          .add(stack_of(EV_STACK_USER, 100'000, {0x5000, 0x6000}))
          .add(stack_of(EV_STACK_KERNEL, 100'000, {0xffff1000}))
          .add(run_of("other", 12, 4_ms, 4'200'000))
          .add(off)
          .add(between(4'300'000)));
  EXPECT_EQ(gap.verdict.cause, Cause::blocked);
  EXPECT_EQ(ns_of(gap, Cause::blocked), 3'900'000u);
  EXPECT_EQ(ns_of(gap, Cause::preemption), 200'000u);
  EXPECT_EQ(gap.verdict.detail.syscall, "clock_nanosleep");
  ASSERT_EQ(gap.verdict.detail.user_stack.size(), 2u);
  EXPECT_EQ(gap.verdict.detail.user_stack[0].line, 12u);
  EXPECT_EQ(gap.verdict.detail.kernel_stack.at(0).function, "do_nanosleep");
  EXPECT_EQ(gap.verdict.text,
            "blocked 3.90 ms in clock_nanosleep (do_nanosleep), called from pause_a_bit() at "
            "app.cc:12, woken by helper/850");
}

TEST(Blocked, WithoutAWakeupSaysThatWaitingMayBeIncluded) {
  ev_off_cpu off = asleep(0, 0, 4_ms);
  off.wakeup_ns = 0;
  const Gap gap = only_gap(EvidenceStream().add(off).add(between(4_ms)));
  EXPECT_EQ(gap.verdict.cause, Cause::blocked);
  EXPECT_TRUE(gap.verdict.detail.upper_bound);
  EXPECT_EQ(gap.verdict.confidence, Confidence::medium);
}

TEST(Blocked, InAPageFaultIsItsOwnKernelWork) {
  ev_off_cpu off = asleep(100'000, 4_ms, 4_ms);
  off.flags = EV_OFF_IN_FAULT;
  off.fault_address = 0xdead000;
  const Gap gap = only_gap(EvidenceStream()
                               .add(off)
                               .add(fault_of(EV_SELF_FAULT_MAJOR, 90'000, 4'050'000))
                               .add(between(4'100'000)));
  EXPECT_EQ(gap.verdict.cause, Cause::self_kernel);
  EXPECT_EQ(gap.verdict.detail.fault, "major");
  EXPECT_EQ(gap.verdict.detail.address, 0xdead000u);
  EXPECT_EQ(ns_of(gap, Cause::self_kernel), 3'960'000u);
}

TEST(Blocked, AFaultWhoseEndWasNotSeenDoesNotHideASystemCall) {
  ev_off_cpu off = asleep(0, 2_ms, 2_ms);
  off.flags = EV_OFF_IN_FAULT | EV_OFF_IN_SYSCALL;
  off.syscall_nr = 35;
  EXPECT_EQ(only_gap(EvidenceStream().add(off).add(between(2_ms))).verdict.cause, Cause::blocked);
}

TEST(Blocked, WakeThenWaitWithInterruptsOnlyWhileWaiting) {
  ev_off_cpu off = asleep(0, 2_ms, 5_ms);
  const Gap gap = only_gap(EvidenceStream()
                               .add(device_irq(36, "nic", 1_ms, 3_ms))
                               .add(run_of("hog", 11, 0, 5_ms))
                               .add(off)
                               .add(between(5_ms)));
  EXPECT_EQ(ns_of(gap, Cause::blocked), 2_ms);
  EXPECT_EQ(ns_of(gap, Cause::hard_irq), 1_ms);
  EXPECT_EQ(ns_of(gap, Cause::preemption), 2_ms);
}

TEST(Blocked, WakingUpIsPartOfIt) {
  ev_off_cpu off = asleep(0, 2_ms, 2'200'000);
  off.waker = {.tid = 0,
               .pid = 0,
               .at_ns = kStart + 2_ms,
               .context = EV_WAKE_HARDIRQ,
               .cpu = kCpu,
               .comm = {}};
  EvidenceStream stream;
  stream.add(device_irq(36, "disk", 1'950'000, 2'100'000));  // it woke the thread on an idle core
  stream.add(idle_run(0, 2'200'000)).add(off).add(between(3_ms));
  EXPECT_EQ(ns_of(only_gap(stream), Cause::blocked), 2'200'000u);
}

TEST(Blocked, ALongInterruptThatWokeItKeepsTheCoreFromIt) {
  ev_off_cpu off = asleep(0, 1_ms, 4_ms);
  off.waker = {.tid = 0,
               .pid = 0,
               .at_ns = kStart + 1_ms,
               .context = EV_WAKE_HARDIRQ,
               .cpu = kCpu,
               .comm = {}};
  EvidenceStream stream;
  stream.add(device_irq(36, "disk", 900'000, 3'900'000));
  stream.add(idle_run(0, 4_ms)).add(off).add(between(4_ms));
  const Gap gap = only_gap(stream);
  EXPECT_EQ(gap.verdict.cause, Cause::hard_irq);
  EXPECT_EQ(ns_of(gap, Cause::hard_irq), 2'900'000u);
}

TEST(Blocked, ACoreThatStaysIdleForLongIsNotWakingUp) {
  const Gap gap = only_gap(
      EvidenceStream().add(idle_run(0, 4_ms)).add(asleep(0, 1_ms, 4_ms)).add(between(4_ms)));
  EXPECT_EQ(ns_of(gap, Cause::blocked), 1_ms);
  EXPECT_EQ(ns_of(gap, Cause::unexplained), 3_ms);
}

TEST(Blocked, BackByASwitchThatLeftNoTrace) {
  ev_off_cpu sleep = asleep(100'000, 3_ms, 3_ms);
  ev_off_cpu unseen = preempted(3_ms, 3'500'000);
  unseen.flags = EV_OFF_UNSEEN;
  const Gap gap = only_gap(EvidenceStream()
                               .add(sleep)
                               .add(unseen)
                               .add(syscall_of(35, 50'000, 3'500'000))
                               .add(between(3'600'000)));
  EXPECT_EQ(ns_of(gap, Cause::blocked), 2'900'000u);
  EXPECT_EQ(ns_of(gap, Cause::unexplained), 500'000u);
  EXPECT_EQ(ns_of(gap, Cause::self_kernel), 50'000u);
}

TEST(OpenGap, StillOffTheCpu) {
  ev_off_cpu off = asleep(100'000, 0, 8_ms);
  off.flags = EV_OFF_OPEN | EV_OFF_IN_SYSCALL;
  off.syscall_nr = 35;
  off.wakeup_ns = 0;
  ev_gap record = between(8_ms);
  record.flags = EV_GAP_OPEN;
  const Gap gap = only_gap(EvidenceStream().add(off).add(record));
  EXPECT_TRUE(gap.open);
  EXPECT_EQ(gap.verdict.cause, Cause::blocked);
  EXPECT_EQ(gap.verdict.confidence, Confidence::high);
  EXPECT_EQ(gap.verdict.detail.syscall, "system call 35");
}

}  // namespace
}  // namespace pollgap::test
