// SPDX-License-Identifier: Apache-2.0
// The thread was on the CPU: interrupts, its own kernel work, control verbs, user code, stolen
// time.
#include <gtest/gtest.h>

#include "tests/unit/ledger_stream.h"

namespace pollgap::test {
namespace {

ev_gap between(uint64_t duration_ns, uint32_t flags = 0, uint64_t steal_ns = 0) {
  ev_gap gap = gap_of(EV_GAP_BETWEEN_POLLS, duration_ns);
  gap.flags = flags;
  gap.steal_ns = steal_ns;
  return gap;
}

// The scheduler's reading of the steal clock. It began `before` the gap's start.
ev_steal steal_read(uint64_t before, uint64_t to, uint64_t steal_ns) {
  auto reading = make_record<ev_steal>(EV_STEAL, kCpu, kStart - before, kStart + to);
  reading.steal_ns = steal_ns;
  return reading;
}

EvidenceStream steal_read_at_ticks() { return EvidenceStream().session("6.1.0", "at_ticks"); }

ev_sample late_answer(uint64_t asked, uint64_t answered) {
  ev_sample sample = sample_of(1, answered);
  sample.reason = EV_SAMPLE_SILENCE;
  sample.asked_ns = kStart + asked;
  return sample;
}

TEST(HardIrq, NamesNumberActionDeviceAndAffinity) {
  const Gap gap = only_gap(
      EvidenceStream()
          .name(EV_NAME_IRQ, 36, R"({"device":"0000:00:02.0","affinity":"1","chip":"PCI-MSIX"})")
          .add(device_irq(36, "virtio1-req.0", 50'000, 4'950'000))
          .add(between(5_ms)));
  EXPECT_EQ(gap.verdict.cause, Cause::hard_irq);
  EXPECT_EQ(gap.verdict.confidence, Confidence::high);
  EXPECT_EQ(gap.verdict.detail.irq, 36);
  EXPECT_EQ(gap.verdict.text,
            "hard interrupt 36 virtio1-req.0 (0000:00:02.0) held CPU 1 for 4.90 ms; affinity 1");
}

TEST(HardIrq, NestedInSoftirqIsNetOfIt) {
  const Gap gap = only_gap(EvidenceStream()
                               .add(sample_of(0, 2_ms + 1_us))
                               .add(vector_irq(EV_VECTOR_LOCAL_TIMER, 2_ms, 3_ms))
                               .add(softirq_of(1, 1_ms, 4_ms))
                               .add(sample_of(1, 500'000))
                               .add(between(5_ms)));
  EXPECT_EQ(ns_of(gap, Cause::hard_irq), 1_ms);
  EXPECT_EQ(ns_of(gap, Cause::soft_irq), 2_ms);
  EXPECT_EQ(ns_of(gap, Cause::application), 2_ms);
  EXPECT_EQ(first_of(gap, Cause::hard_irq).detail.kind, "local_timer");
  EXPECT_EQ(first_of(gap, Cause::soft_irq).detail.kind, "TIMER");
}

TEST(HardIrq, TheWayFromOneIntoTheNextIsTheirsWhereItsCostIsKnown) {
  const auto storm = [](const char* session) {
    EvidenceStream stream;
    stream.text(EV_SESSION, session);
    for (uint64_t at = 0; at < 3_ms; at += 30_us) {
      stream.add(vector_irq(EV_VECTOR_IRQ_WORK, at, at + 10_us));
    }
    return only_gap(stream.add(between(3_ms)));
  };
  const Gap measured = storm(R"({"host":{"interrupt_cost_ns":10000}})");
  EXPECT_EQ(ns_of(measured, Cause::hard_irq), 3_ms - 20_us);  // all but the last way out
  EXPECT_EQ(measured.verdict.confidence, Confidence::medium);
  const Gap unknown = storm("{}");
  EXPECT_EQ(ns_of(unknown, Cause::hard_irq), 1_ms);
}

TEST(HardIrq, WhatHasAnotherExplanationIsNotTheWayBetweenTwo) {
  EvidenceStream stream;
  stream.text(EV_SESSION, R"({"host":{"interrupt_cost_ns":10000}})");
  for (uint64_t at = 0; at < 3_ms; at += 30_us) {
    stream.add(vector_irq(EV_VECTOR_IRQ_WORK, at, at + 10_us));
  }
  stream.add(verb_of(1, 1_ms, 2_ms));
  const Gap gap = only_gap(stream.add(between(3_ms)));
  EXPECT_EQ(ns_of(gap, Cause::control_verb), 1_ms - 330_us);
}

TEST(HardIrq, TheWayFromOneIntoTheNextIsTheirsAlsoWhileAnotherTaskHasTheCore) {
  EvidenceStream stream;
  stream.text(EV_SESSION, R"({"host":{"interrupt_cost_ns":10000}})");
  for (uint64_t at = 0; at < 3_ms; at += 30_us) {
    stream.add(vector_irq(EV_VECTOR_IRQ_WORK, at, at + 10_us));
  }
  stream.add(run_of("hog", 11, 0, 1_ms + 5_us)).add(run_of("other", 12, 1_ms + 15_us, 2_ms));
  stream.add(preempted(0, 2_ms));
  const Gap gap = only_gap(stream.add(between(2_ms)));
  // But not where they switched in between.
  EXPECT_EQ(ns_of(gap, Cause::preemption), 20_us + 10_us);
  EXPECT_EQ(ns_of(gap, Cause::hard_irq), 2_ms - 30_us);
}

TEST(HardIrq, OfAnotherCpuIsNotCounted) {
  ev_irq elsewhere = device_irq(36, "nic", 1_ms, 4_ms);
  elsewhere.header.cpu = 3;
  const Gap gap =
      only_gap(EvidenceStream().add(elsewhere).add(sample_of(1, 1_ms)).add(between(5_ms)));
  EXPECT_EQ(ns_of(gap, Cause::hard_irq), 0u);
}

TEST(HardIrq, IpiNamesSenderAndFunction) {
  ev_irq ipi = vector_irq(EV_VECTOR_CALL_FUNCTION, 0, 3_ms);
  ipi.sender_tid = 61;
  ipi.sender_pid = 60;
  ipi.callback = 0xffff2000;
  set_text(ipi.sender_comm, "membarrier-er");
  const Gap gap = only_gap(EvidenceStream()
                               .name(EV_NAME_KERNEL_FUNCTION, 0xffff2000, "ipi_mb")
                               .add(ipi)
                               .add(between(3_ms)));
  EXPECT_EQ(gap.verdict.detail.sender, (TaskRef{61, 60, "membarrier-er"}));
  EXPECT_EQ(gap.verdict.text,
            "call_function interrupt held CPU 1 for 3.00 ms to run ipi_mb, sent by "
            "membarrier-er/61");
}

TEST(Agent, ItsSamplerAndItsIpis) {
  ev_irq sampler = vector_irq(EV_VECTOR_CALL_FUNCTION_SINGLE, 0, 1_ms);
  sampler.flags = EV_IRQ_FROM_AGENT;
  ev_irq ipi = vector_irq(EV_VECTOR_CALL_FUNCTION, 1_ms, 2_ms);
  ipi.sender_pid = kAgentPid;
  const Gap gap = only_gap(EvidenceStream().session().add(sampler).add(ipi).add(between(2_ms)));
  EXPECT_EQ(ns_of(gap, Cause::agent), 2_ms);
}

TEST(SoftIrq, NamesTheInterruptThatRaisedIt) {
  ev_softirq softirq = softirq_of(3, 10'000, 3_ms);
  softirq.after_irq = 40;
  softirq.after_vector = EV_VECTOR_DEVICE;
  const Gap gap = only_gap(EvidenceStream()
                               .name(EV_NAME_IRQ, 40, R"({"device":"0000:01:00.0"})")
                               .add(device_irq(40, "mlx5_comp0", 5'000, 9'000))
                               .add(softirq)
                               .add(between(3_ms)));
  EXPECT_EQ(gap.verdict.cause, Cause::soft_irq);
  EXPECT_EQ(gap.verdict.detail.kind, "NET_RX");
  EXPECT_EQ(gap.verdict.detail.irq, 40);
  EXPECT_EQ(gap.verdict.detail.action, "mlx5_comp0");
}

TEST(SoftIrq, InKsoftirqdWhileTheThreadWaits) {
  ev_softirq softirq = softirq_of(3, 100'000, 2'900'000);
  softirq.in_ksoftirqd = 1;
  const Gap gap = only_gap(EvidenceStream()
                               .add(softirq)
                               .add(run_of("ksoftirqd/1", 22, 0, 3_ms))
                               .add(preempted(0, 3_ms))
                               .add(between(3_ms)));
  EXPECT_EQ(gap.verdict.cause, Cause::soft_irq);
  EXPECT_EQ(gap.verdict.detail.task, (TaskRef{22, 22, "ksoftirqd/1"}));
  EXPECT_EQ(ns_of(gap, Cause::preemption), 200'000u);
}

TEST(ControlVerb, OutermostWithItsKernelTimeAndItsSleep) {
  ev_off_cpu off = asleep(2_ms, 3_ms, 3_ms);
  off.flags = EV_OFF_IN_SYSCALL;
  off.syscall_nr = 16;
  ev_verb outer = verb_of(7, 100'000, 4_ms);
  outer.bytes = 4096;
  const Gap gap = only_gap(EvidenceStream()
                               .name(EV_NAME_VERB, 7, "ibv_reg_mr")
                               .name(EV_NAME_VERB, 8, "ibv_reg_mr_iova2")
                               .add(off)
                               .add(syscall_of(16, 1_ms, 3'500'000))
                               .add(device_irq(36, "nic", 500'000, 600'000))
                               .add(verb_of(8, 200'000, 3'900'000, 1))
                               .add(outer)
                               .add(between(4'100'000)));
  EXPECT_EQ(gap.verdict.cause, Cause::control_verb);
  EXPECT_EQ(gap.verdict.detail.verb, "ibv_reg_mr");
  EXPECT_EQ(gap.verdict.detail.bytes, 4096u);
  EXPECT_EQ(ns_of(gap, Cause::control_verb), 3'800'000u);
  EXPECT_EQ(ns_of(gap, Cause::hard_irq), 100'000u);
  EXPECT_EQ(gap.verdict.text, "ibv_reg_mr on the polling thread took 3.80 ms for 4096 bytes");
}

TEST(ControlVerb, PreemptionInsideStaysPreemption) {
  const Gap gap = only_gap(EvidenceStream()
                               .add(run_of("hog", 11, 1_ms, 3_ms))
                               .add(preempted(1_ms, 3_ms))
                               .add(verb_of(7, 0, 4_ms))
                               .add(between(4_ms)));
  EXPECT_EQ(ns_of(gap, Cause::preemption), 2_ms);
  EXPECT_EQ(ns_of(gap, Cause::control_verb), 2_ms);
}

TEST(SelfKernel, SystemCallNetOfInterrupts) {
  const Gap gap = only_gap(EvidenceStream()
                               .name(EV_NAME_SYSCALL, 39, "getpid")
                               .add(device_irq(36, "nic", 1_ms, 2_ms))
                               .add(syscall_of(39, 50'000, 4_ms))
                               .add(between(4_ms)));
  EXPECT_EQ(gap.verdict.cause, Cause::self_kernel);
  EXPECT_EQ(gap.verdict.detail.syscall, "getpid");
  EXPECT_EQ(ns_of(gap, Cause::self_kernel), 2'950'000u);
  EXPECT_EQ(ns_of(gap, Cause::application), 50'000u);
}

TEST(SelfKernel, ARunGivesItsSumTheRestIsUserCode) {
  ev_self run = fault_of(EV_SELF_FAULT_MINOR, 0, 4_ms);
  run.count = 2000;
  run.sum_ns = 3_ms;
  const Gap gap = only_gap(
      EvidenceStream().add(device_irq(36, "nic", 1_ms, 1'500'000)).add(run).add(between(4_ms)));
  EXPECT_EQ(ns_of(gap, Cause::self_kernel), 3_ms);
  EXPECT_EQ(ns_of(gap, Cause::hard_irq), 500'000u);
  EXPECT_EQ(ns_of(gap, Cause::application), 500'000u) << "between faults 1 us apart";
  EXPECT_EQ(gap.verdict.detail.fault, "minor");
  EXPECT_EQ(gap.verdict.detail.count, 2000u);
  EXPECT_EQ(gap.verdict.confidence, Confidence::medium);
  EXPECT_EQ(gap.verdict.text.rfind("its own minor page faults took 3.00 ms (2000 times)", 0), 0u);
}

TEST(SelfKernel, ARunDoesNotCountItsSleepTwice) {
  ev_self run = syscall_of(35, 0, 4_ms);
  run.count = 4;
  run.sum_ns = 3'500'000;
  ev_off_cpu off = asleep(500'000, 3'500'000, 3'500'000);
  off.flags = EV_OFF_IN_SYSCALL;
  off.syscall_nr = 35;
  const Gap gap = only_gap(EvidenceStream().add(off).add(run).add(between(4_ms)));
  EXPECT_EQ(ns_of(gap, Cause::blocked), 3_ms);
  EXPECT_EQ(ns_of(gap, Cause::self_kernel), 500'000u);
}

TEST(SelfKernel, ABoundEndsWhereASampleFindsUserCode) {
  ev_self fault = fault_of(EV_SELF_FAULT, 0, 4_ms);
  fault.flags = EV_SELF_BOUND;
  const Gap bounded = only_gap(EvidenceStream().add(fault).add(between(4_ms)));
  EXPECT_EQ(ns_of(bounded, Cause::self_kernel), 4_ms);
  EXPECT_EQ(bounded.verdict.confidence, Confidence::low);
  EXPECT_TRUE(bounded.verdict.detail.upper_bound);
  EXPECT_NE(bounded.verdict.text.find("at most"), std::string::npos);

  const Gap ended =
      only_gap(EvidenceStream().add(sample_of(1, 1_ms)).add(fault).add(between(4_ms)));
  EXPECT_EQ(ns_of(ended, Cause::self_kernel), 1_ms);
  EXPECT_EQ(ns_of(ended, Cause::application), 3_ms);
}

TEST(Application, NamedByItsSamples) {
  const Gap gap =
      only_gap(EvidenceStream()
                   .name(EV_NAME_USER_FRAME, 0x5000,
                         R"({"function":"compute","file":"app.cc","line":7,"module":"app"})")
                   .add(stack_of(EV_STACK_USER, 1_ms, {0x5000, 0x6000}))
                   .add(sample_of(1, 1_ms))
                   .add(sample_of(1, 2_ms))
                   .add(between(4_ms, EV_GAP_STEAL_VALID)));
  EXPECT_EQ(gap.verdict.cause, Cause::application);
  EXPECT_EQ(gap.verdict.confidence, Confidence::high);
  EXPECT_EQ(gap.verdict.detail.samples, 2u);
  EXPECT_EQ(gap.verdict.text,
            "the application ran 4.00 ms outside the poll function in compute() at app.cc:7 "
            "(2 samples)");
}

TEST(Application, WithoutStealClockOnlyMediumConfidence) {
  const Gap gap = only_gap(EvidenceStream().add(sample_of(1, 1_ms)).add(between(4_ms)));
  EXPECT_EQ(gap.verdict.cause, Cause::application);
  EXPECT_EQ(gap.verdict.confidence, Confidence::medium);
}

TEST(Application, WithoutSampleOnlyIfNothingWasStolen) {
  const Gap flat = only_gap(EvidenceStream().add(between(4_ms, EV_GAP_STEAL_VALID)));
  EXPECT_EQ(flat.verdict.cause, Cause::application);
  EXPECT_EQ(flat.verdict.confidence, Confidence::low);
  EXPECT_NE(flat.verdict.text.find("no sample fell into it"), std::string::npos);

  const Gap unknown = only_gap(EvidenceStream().add(between(4_ms)));
  EXPECT_EQ(unknown.verdict.cause, Cause::unexplained);

  const Gap open = only_gap(EvidenceStream().add(between(4_ms, EV_GAP_STEAL_VALID | EV_GAP_OPEN)));
  EXPECT_EQ(open.verdict.cause, Cause::unexplained);

  auto lost = make_record<ev_lost>(EV_LOST, 0, kStart, kStart + 1);
  lost.records = 1;
  const Gap holes = only_gap(EvidenceStream().add(lost).add(between(4_ms, EV_GAP_STEAL_VALID)));
  EXPECT_EQ(holes.verdict.cause, Cause::unexplained);
}

TEST(Application, ShortStretchesBetweenKernelEvents) {
  EvidenceStream stream;
  for (uint64_t at = 0; at < 4_ms; at += 200_us) {
    stream.add(syscall_of(39, at, at + 100_us));
  }
  const Gap gap = only_gap(stream.add(between(4_ms)));
  EXPECT_EQ(ns_of(gap, Cause::application), 2_ms);
  EXPECT_EQ(ns_of(gap, Cause::self_kernel), 2_ms);
  EXPECT_EQ(ns_of(gap, Cause::unexplained), 0u);
}

TEST(Application, AStretchTooLongForThatNeedsProof) {
  const Gap gap = only_gap(EvidenceStream()
                               .add(syscall_of(39, 0, 500_us))
                               .add(syscall_of(39, 1_ms, 2_ms))
                               .add(between(2_ms)));
  EXPECT_EQ(ns_of(gap, Cause::application), 0u);
  EXPECT_EQ(ns_of(gap, Cause::unexplained), 500_us);
}

TEST(Application, StretchesAreJudgedEachByItself) {
  // One long system call between two long stretches; a sample in the first alone.
  const Gap gap = only_gap(
      EvidenceStream().add(sample_of(1, 1_ms)).add(syscall_of(39, 2_ms, 3_ms)).add(between(6_ms)));
  EXPECT_EQ(ns_of(gap, Cause::application), 2_ms);
  EXPECT_EQ(ns_of(gap, Cause::self_kernel), 1_ms);
  EXPECT_EQ(ns_of(gap, Cause::unexplained), 3_ms);
}

TEST(Application, SamplesInTheKernelWithoutEvidenceAreUnexplained) {
  const Gap gap = only_gap(EvidenceStream()
                               .name(EV_NAME_KERNEL_FUNCTION, 0xffff3000, "task_numa_work")
                               .add(sample_of(1, 1_ms))
                               .add(stack_of(EV_STACK_KERNEL, 3_ms, {0xffff3000}))
                               .add(sample_of(0, 3_ms))
                               .add(sample_of(1, 5_ms))
                               .add(between(6_ms)));
  EXPECT_EQ(ns_of(gap, Cause::application), 2_ms);
  EXPECT_EQ(ns_of(gap, Cause::unexplained), 4_ms);
  EXPECT_NE(gap.verdict.text.find("in the kernel at task_numa_work"), std::string::npos);
}

TEST(Application, ASampleThatMetAPollsProbeContradictsNothing) {
  const auto with = [](uint32_t mode) {
    return only_gap(
        EvidenceStream().add(sample_of(mode, 2_ms)).add(between(4_ms, EV_GAP_STEAL_VALID)));
  };
  EXPECT_EQ(with(EV_SAMPLE_KERNEL).verdict.cause, Cause::unexplained);
  const Gap gap = with(EV_SAMPLE_UPROBE);
  EXPECT_EQ(gap.verdict.cause, Cause::application);
  EXPECT_EQ(gap.verdict.confidence, Confidence::low) << "nor does it prove anything";
}

TEST(Application, AKernelSampleInsideASoftirqSaysNothingOfTheRest) {
  const Gap gap = only_gap(EvidenceStream()
                               .add(sample_of(1, 500'000))
                               .add(sample_of(0, 2_ms))
                               .add(softirq_of(1, 1_ms, 3_ms))
                               .add(between(5_ms)));
  EXPECT_EQ(ns_of(gap, Cause::soft_irq), 2_ms);
  EXPECT_EQ(ns_of(gap, Cause::application), 3_ms);
}

TEST(Application, AKernelSampleInsideARunOfFaultsIsTheRuns) {
  ev_self run = fault_of(EV_SELF_FAULT_MINOR, 0, 4_ms);
  run.count = 2000;
  run.sum_ns = 3_ms;
  const Gap gap =
      only_gap(EvidenceStream().add(sample_of(0, 3'500'000)).add(run).add(between(4_ms)));
  EXPECT_EQ(ns_of(gap, Cause::self_kernel), 3_ms);
  EXPECT_EQ(ns_of(gap, Cause::application), 1_ms);
}

TEST(Application, SamplesThatDoNotTellTheModeProveNothing) {
  const Gap unknown = only_gap(EvidenceStream().add(sample_of(2, 1_ms)).add(between(4_ms)));
  EXPECT_EQ(unknown.verdict.cause, Cause::unexplained);
  const Gap flat =
      only_gap(EvidenceStream().add(sample_of(2, 1_ms)).add(between(4_ms, EV_GAP_STEAL_VALID)));
  EXPECT_EQ(flat.verdict.cause, Cause::application);
  EXPECT_EQ(flat.verdict.confidence, Confidence::low);
}

ev_irq tick(uint64_t at) { return vector_irq(EV_VECTOR_LOCAL_TIMER, at, at + 5_us); }

TEST(Application, TimerInterruptsThatDoNotFindTheThreadContradictIt) {
  // Its switch away went unseen: the steal clock is flat, but the ticks met somebody else.
  const Gap gap = only_gap(EvidenceStream()
                               .add(tick(1_ms))
                               .add(tick(5_ms))
                               .add(tick(9_ms))
                               .add(between(12_ms, EV_GAP_STEAL_VALID)));
  EXPECT_EQ(gap.verdict.cause, Cause::unexplained);
  EXPECT_NE(gap.verdict.text.find("did not find the thread"), std::string::npos);

  const Gap found = only_gap(EvidenceStream()
                                 .add(sample_of(1, 5_ms + 1_us))
                                 .add(tick(1_ms))  // too early: it had just polled
                                 .add(tick(5_ms))
                                 .add(between(12_ms, EV_GAP_STEAL_VALID)));
  EXPECT_EQ(found.verdict.cause, Cause::application);
  EXPECT_EQ(found.verdict.confidence, Confidence::high);
}

TEST(Application, UpToTheSampleBeforeAMissedTick) {
  const Gap gap = only_gap(EvidenceStream()
                               .add(sample_of(1, 4_ms + 1_us))
                               .add(tick(4_ms))
                               .add(tick(8_ms))
                               .add(between(12_ms, EV_GAP_STEAL_VALID)));
  EXPECT_EQ(ns_of(gap, Cause::unexplained), 8_ms - 10_us);  // less the ticks themselves
  EXPECT_EQ(ns_of(gap, Cause::application), 4_ms);
}

TEST(Application, NotWhileTheThreadWasNotOnTheCpu) {
  ev_sample sample = sample_of(1, 1_ms);
  sample.on_cpu = 0;
  const Gap gap = only_gap(EvidenceStream().add(sample).add(between(4_ms)));
  EXPECT_EQ(gap.verdict.cause, Cause::unexplained);
}

TEST(PollFunction, SamplesInsideItWhereReturnsAreNotTimed) {
  ev_sample sample = sample_of(1, 1_ms);
  sample.user_ip = 0x1010;
  const Gap inside =
      only_gap(EvidenceStream().session().add(sample).add(between(4_ms, EV_GAP_NO_RETURN)));
  EXPECT_EQ(inside.verdict.cause, Cause::poll_function);
  sample.user_ip = 0x1100;
  const Gap outside =
      only_gap(EvidenceStream().session().add(sample).add(between(4_ms, EV_GAP_NO_RETURN)));
  EXPECT_EQ(outside.verdict.cause, Cause::application);
}

TEST(PollFunction, WhatItCallsIsPartOfIt) {
  const Gap gap = only_gap(EvidenceStream()
                               .session()
                               .add(stack_of(EV_STACK_USER, 1_ms, {0x5000, 0x1010, 0x6000}))
                               .add(sample_of(1, 1_ms))
                               .add(between(4_ms, EV_GAP_NO_RETURN)));
  EXPECT_EQ(gap.verdict.cause, Cause::poll_function);
}

TEST(PollFunction, ItsSamplesAreOfOneFunction) {
  EvidenceStream stream = EvidenceStream().session();
  const uint64_t found[] = {0x5000, 0x1010, 0x5000, 0x1020, 0x1030};
  for (size_t i = 0; i < std::size(found); ++i) {
    ev_sample sample = sample_of(1, (i + 1) * 500_us);
    sample.user_ip = found[i];
    stream.add(sample);
  }
  const Gap gap = only_gap(stream.add(between(4_ms, EV_GAP_NO_RETURN)));
  EXPECT_EQ(gap.verdict.cause, Cause::poll_function);
}

TEST(PollFunction, WhereItsSizeIsUnknownNothingIsClaimedOfItsFile) {
  const char* session =
      R"({"target":{"sites":[{"name":"x","module":"/lib/p.so","function_address":4096}]}})";
  const Gap gap = only_gap(EvidenceStream()
                               .text(EV_SESSION, session)
                               .name(EV_NAME_USER_FRAME, 0x5000, R"({"module":"/lib/p.so"})")
                               .add(sample_of(1, 1_ms))
                               .add(between(4_ms, EV_GAP_NO_RETURN | EV_GAP_STEAL_VALID)));
  EXPECT_EQ(gap.verdict.cause, Cause::application);
  EXPECT_EQ(gap.verdict.confidence, Confidence::medium);
  EXPECT_NE(gap.verdict.text.find("whether in that function is not known"), std::string::npos);
}

TEST(PollFunction, OnePollCallWithErrorCompletions) {
  ev_gap record = gap_of(EV_GAP_IN_POLL, 3_ms);
  record.error_completions = 64;
  record.completions = 64;
  auto error = make_record<ev_wc_error>(EV_WC_ERROR, kCpu, kStart + 3_ms, kStart + 3_ms);
  error.tid = kTid;
  error.cq = kCq;
  error.status = 12;
  error.qp_num = 77;
  error.errors = 32;
  error.flushes = 31;
  const Gap gap = only_gap(EvidenceStream().add(error).add(record));
  EXPECT_EQ(gap.verdict.cause, Cause::poll_function);
  EXPECT_EQ(gap.verdict.detail.error_completions, 64u);
  ASSERT_TRUE(gap.evidence.errors.has_value());
  EXPECT_EQ(gap.evidence.errors->errors, 64u);
  EXPECT_EQ(gap.evidence.errors->flushes, 31u);
  EXPECT_EQ(gap.evidence.errors->first_status_name, "IBV_WC_RETRY_EXC_ERR");
  EXPECT_EQ(gap.evidence.errors->first_qp_num, 77u);
}

TEST(PollFunction, OnePollCallSampledThere) {
  const Gap gap =
      only_gap(EvidenceStream().add(sample_of(1, 1_ms)).add(gap_of(EV_GAP_IN_POLL, 3_ms)));
  EXPECT_EQ(gap.verdict.cause, Cause::poll_function);
}

TEST(Stolen, LateAnswerAndStealClock) {
  const Gap stolen = only_gap(EvidenceStream()
                                  .add(late_answer(1_ms, 6_ms))
                                  .add(between(7_ms, EV_GAP_STEAL_VALID, 4'800'000)));
  EXPECT_EQ(stolen.verdict.cause, Cause::stolen);
  EXPECT_EQ(ns_of(stolen, Cause::stolen), 4'800'000u) << "never more than the clock says";
  EXPECT_EQ(stolen.verdict.detail.kind, "hypervisor");
  EXPECT_EQ(ns_of(stolen, Cause::unexplained), 1'200'000u) << "when it stopped is not known";
  EXPECT_EQ(ns_of(stolen, Cause::application), 1_ms);

  const Gap silent = only_gap(
      EvidenceStream().add(late_answer(1_ms, 6_ms)).add(between(7_ms, EV_GAP_STEAL_VALID)));
  EXPECT_EQ(silent.verdict.cause, Cause::unexplained);
  EXPECT_NE(silent.verdict.text.find("did not answer"), std::string::npos);
  EXPECT_EQ(ns_of(silent, Cause::unexplained), 6_ms);
}

TEST(Stolen, AnInterruptExplainsALateAnswer) {
  const Gap gap = only_gap(EvidenceStream()
                               .add(device_irq(36, "nic", 900'000, 5'950'000))
                               .add(late_answer(1_ms, 6_ms))
                               .add(between(7_ms)));
  EXPECT_EQ(gap.verdict.cause, Cause::hard_irq);
  EXPECT_EQ(ns_of(gap, Cause::unexplained), 0u);
}

TEST(Stolen, UnsupportedTimeUpToTheClockNoiseIgnored) {
  const Gap gap = only_gap(EvidenceStream().add(between(4_ms, EV_GAP_STEAL_VALID, 3_ms)));
  EXPECT_EQ(ns_of(gap, Cause::stolen), 3_ms);
  EXPECT_EQ(ns_of(gap, Cause::unexplained), 1_ms);
  EXPECT_EQ(gap.verdict.cause, Cause::stolen);
  EXPECT_EQ(gap.verdict.confidence, Confidence::medium);

  const Gap noise = only_gap(EvidenceStream().add(between(4_ms, EV_GAP_STEAL_VALID, 19'000)));
  EXPECT_EQ(noise.verdict.cause, Cause::application);

  const Gap invalid = only_gap(EvidenceStream().add(between(4_ms, 0, 3_ms)));
  EXPECT_EQ(ns_of(invalid, Cause::stolen), 0u);
}

TEST(Stolen, AThreadThatWasElsewhereMeanwhileHadAnotherClock) {
  ev_off_cpu away = preempted(0, 1_ms);
  away.header.cpu = 3;
  ev_off_cpu back = preempted(2_ms, 3_ms);
  back.out_cpu = 3;
  const Gap gap =
      only_gap(EvidenceStream().add(away).add(back).add(between(5_ms, EV_GAP_STEAL_VALID)));
  EXPECT_FALSE(gap.evidence.steal_ns.has_value());
  EXPECT_EQ(ns_of(gap, Cause::application), 0u);
}

TEST(Stolen, FromSampledCodeOnlyWhatCannotHaveFallenElsewhere) {
  // 6 ms, 2 of them preempted: of 5 ms stolen at least 3 fell into the sampled code.
  const Gap gap = only_gap(EvidenceStream()
                               .add(run_of("hog", 11, 0, 2_ms))
                               .add(preempted(0, 2_ms))
                               .add(sample_of(1, 3_ms))
                               .add(between(6_ms, EV_GAP_STEAL_VALID, 5_ms)));
  EXPECT_EQ(ns_of(gap, Cause::preemption), 2_ms);
  EXPECT_EQ(ns_of(gap, Cause::stolen), 3_ms);
  EXPECT_EQ(ns_of(gap, Cause::application), 1_ms);
}

TEST(Stolen, WhatIsLeftOfAStretchIsUserCodeIfItIsShort) {
  const Gap gap = only_gap(EvidenceStream().add(between(4_ms, EV_GAP_STEAL_VALID, 3'700'000)));
  EXPECT_EQ(ns_of(gap, Cause::stolen), 3'700'000u);
  EXPECT_EQ(ns_of(gap, Cause::application), 300'000u);
}

TEST(Stolen, TheSchedulersReadingAroundTheGap) {
  const Gap stolen = only_gap(steal_read_at_ticks()
                                  .add(steal_read(1_ms, 2_ms, 1_ms))
                                  .add(between(5_ms))
                                  .add(steal_read(0, 7_ms, 3_ms)));
  EXPECT_EQ(stolen.verdict.cause, Cause::stolen);
  EXPECT_EQ(ns_of(stolen, Cause::stolen), 4_ms);
  EXPECT_EQ(stolen.evidence.steal_ns, 4_ms);

  const Gap flat =
      only_gap(steal_read_at_ticks().add(between(4_ms)).add(steal_read(1_ms, 7_ms, 0)));
  EXPECT_EQ(flat.verdict.cause, Cause::application);
  EXPECT_EQ(flat.evidence.steal_ns, 0u);
}

TEST(Stolen, NotKnownBeforeTheSchedulerHasReadTheClock) {
  const Gap early =
      only_gap(steal_read_at_ticks().add(steal_read(2_ms, 1_ms, 0)).add(between(4_ms)));
  EXPECT_EQ(early.verdict.cause, Cause::unexplained);
  EXPECT_FALSE(early.evidence.steal_ns.has_value());
  // Nor where it reads the clock of another CPU.
  ev_steal elsewhere = steal_read(1_ms, 7_ms, 4_ms);
  elsewhere.header.cpu = 3;
  const Gap other = only_gap(steal_read_at_ticks().add(between(4_ms)).add(elsewhere));
  EXPECT_EQ(other.verdict.cause, Cause::unexplained);
}

TEST(Stolen, AReadingAroundTwoGapsIsSharedByThem) {
  ev_gap second = between(2_ms);
  second.header.start_ns += 3_ms;
  second.header.end_ns += 3_ms;
  const std::vector<Gap> gaps = correlate(
      steal_read_at_ticks().add(between(2_ms)).add(second).add(steal_read(1_ms, 7_ms, 3_ms)));
  ASSERT_EQ(gaps.size(), 2u);
  EXPECT_EQ(ns_of(gaps[0], Cause::stolen), 2_ms);
  EXPECT_EQ(ns_of(gaps[1], Cause::stolen), 1_ms);
}

TEST(Stolen, FromSampledCodeOnlyWhatCannotHaveFallenBesideTheGap) {
  // Readings 2 ms before and 1 ms after a gap of sampled code: of 5 ms stolen 2 fell into it.
  const Gap gap = only_gap(steal_read_at_ticks()
                               .add(sample_of(1, 2_ms))
                               .add(between(6_ms))
                               .add(steal_read(2_ms, 7_ms, 5_ms)));
  EXPECT_EQ(ns_of(gap, Cause::stolen), 2_ms);
  EXPECT_EQ(ns_of(gap, Cause::application), 4_ms);
}

TEST(LateCompletion, PollsWentOnInVain) {
  ev_gap record = gap_of(EV_GAP_LATE_COMPLETION, 5_ms);
  record.polls = 20'000;
  record.outstanding = 1;
  record.vain_until_ns = record.header.end_ns - 2'000;
  const Gap gap = only_gap(EvidenceStream()
                               .add(sample_of(0, 2_ms))
                               .add(run_of("hog", 11, 3_ms, 3'500'000))
                               .add(preempted(3_ms, 3'500'000))
                               .add(record));
  EXPECT_EQ(gap.kind, GapKind::late_completion);
  EXPECT_EQ(gap.verdict.cause, Cause::late_completion);
  EXPECT_EQ(gap.verdict.confidence, Confidence::high);
  EXPECT_EQ(gap.verdict.detail.reason, "undetermined");
  EXPECT_EQ(gap.verdict.detail.polls, 20'000u);
  EXPECT_EQ(ns_of(gap, Cause::late_completion), 4'500'000u);
  EXPECT_EQ(gap.verdict.text,
            "no completion arrived for 4.50 ms of polling: 20000 polls with 1 signaled send "
            "outstanding; reason undetermined; also preemption 500 us");
}

// An observed gap of 5 ms whose completion was made and written then.
Gap late_with_stamp(uint64_t made_after, uint64_t made_until, uint64_t written_after) {
  ev_gap record = gap_of(EV_GAP_LATE_COMPLETION, 5_ms);
  record.flags = EV_GAP_OBSERVED | EV_GAP_STEAL_VALID;
  record.outstanding = 2;
  auto stamp = make_record<ev_stamp>(EV_STAMP, kCpu, kStart + 5_ms, kStart + 5_ms);
  stamp.tid = kTid;
  stamp.cq = kCq;
  stamp.ticks = 77;
  stamp.made_after_ns = kStart + made_after;
  stamp.made_until_ns = kStart + made_until;
  stamp.written_after_ns = kStart + written_after;
  stamp.written_until_ns = kStart + written_after + 200_us;
  return only_gap(EvidenceStream().add(stamp).add(record));
}

TEST(LateCompletion, MadeAndNotWritten) {
  const Gap gap = late_with_stamp(1_ms, 1'500_us, 4'900_us);
  ASSERT_EQ(gap.segments.size(), 2u);
  EXPECT_EQ(gap.segments[0].detail.reason, "undetermined");
  EXPECT_EQ(gap.segments[0].duration_ns, 1'500_us);
  EXPECT_EQ(gap.segments[1].detail.reason, "cqe_write");
  EXPECT_EQ(gap.verdict.cause, Cause::late_completion);
  EXPECT_EQ(gap.verdict.detail.reason, "cqe_write");
  EXPECT_NE(gap.verdict.text.find("not written it for 3.50 ms"), std::string::npos)
      << gap.verdict.text;
  ASSERT_TRUE(gap.evidence.stamp);
  EXPECT_EQ(gap.evidence.stamp->ticks, 77u);
  EXPECT_EQ(gap.evidence.stamp->written_after_ns, kStart + 4'900_us);
}

TEST(LateCompletion, MadeBeforeTheGap) {
  const Gap gap = late_with_stamp(0, 0, 4'900_us);
  ASSERT_EQ(gap.segments.size(), 1u);
  EXPECT_EQ(gap.segments[0].detail.reason, "cqe_write");
}

TEST(LateCompletion, WrittenSoonAfterItWasMade) {
  const Gap gap = late_with_stamp(4'500_us, 5'300_us, 4'900_us);
  ASSERT_EQ(gap.segments.size(), 1u);
  EXPECT_EQ(gap.segments[0].detail.reason, "undetermined");
  EXPECT_NE(gap.verdict.text.find("made it no more than 600 us before"), std::string::npos)
      << gap.verdict.text;
}

TEST(LateCompletion, AStampThatTellsNothing) {
  const Gap gap = late_with_stamp(500_us, 5'300_us, 4'900_us);
  ASSERT_EQ(gap.segments.size(), 1u);
  EXPECT_EQ(gap.segments[0].detail.reason, "undetermined");
  EXPECT_TRUE(gap.segments[0].detail.note.empty());
}

TEST(LateCompletion, AfterTheLastPollInVainTheThreadMayHaveMissedIt) {
  ev_gap record = gap_of(EV_GAP_LATE_COMPLETION, 3_ms);
  record.polls = 5'000;
  record.outstanding = 1;
  record.vain_until_ns = record.header.start_ns + 2'100'000;
  const Gap gap = only_gap(EvidenceStream().add(syscall_of(39, 2'200'000, 2'900'000)).add(record));
  EXPECT_EQ(ns_of(gap, Cause::late_completion), 2'100'000u);
  EXPECT_EQ(ns_of(gap, Cause::self_kernel), 700'000u);
  EXPECT_EQ(ns_of(gap, Cause::application), 200'000u);
}

TEST(LateCompletion, AfterTheLastPollInVainWithoutASampleOnlyTheStealClockTells) {
  ev_gap record = gap_of(EV_GAP_LATE_COMPLETION, 3_ms);
  record.polls = 5'000;
  record.outstanding = 1;
  record.vain_until_ns = record.header.start_ns + 2_ms;
  EXPECT_EQ(ns_of(only_gap(EvidenceStream().add(record)), Cause::unexplained), 1_ms);
  const Gap at_ticks = only_gap(steal_read_at_ticks().add(record).add(steal_read(1_ms, 7_ms, 0)));
  EXPECT_EQ(ns_of(at_ticks, Cause::application), 1_ms) << "it waits for the next reading";
  record.flags |= EV_GAP_STEAL_VALID;
  const Gap at_polls = only_gap(EvidenceStream().add(record));
  EXPECT_EQ(ns_of(at_polls, Cause::late_completion), 2_ms);
  EXPECT_EQ(ns_of(at_polls, Cause::application), 1_ms);
}

}  // namespace
}  // namespace pollgap::test
