// SPDX-License-Identifier: Apache-2.0
// Time that no clock tells of: SMIs, which are counted, and standstills of the machine.
#include <gtest/gtest.h>

#include "tests/unit/ledger_stream.h"

namespace pollgap::test {
namespace {

constexpr uint32_t kHousekeeping = 0;

// On bare metal no hypervisor steals. SMIs are counted where there are records of it.
EvidenceStream bare_metal() { return EvidenceStream().session("6.12.0", "none", "none_needed"); }

ev_gap gap_there(uint64_t duration_ns, ev_gap_kind kind = EV_GAP_BETWEEN_POLLS) {
  ev_gap gap = gap_of(kind, duration_ns);
  gap.flags = EV_GAP_STEAL_VALID;
  return gap;
}

// Under a hypervisor without a steal clock.
ev_gap gap_in_silent_guest(uint64_t duration_ns) {
  return gap_of(EV_GAP_BETWEEN_POLLS, duration_ns);
}

// A reading of the count, and so long before the gap's start the one before it.
ev_smi smis(uint64_t count, uint64_t before, uint64_t to) {
  auto reading = make_record<ev_smi>(EV_SMI, kCpu, kStart - before, kStart + to);
  reading.count = count;
  return reading;
}

ev_standstill standstill(uint64_t from, uint64_t to, uint32_t cpu = kHousekeeping) {
  return make_record<ev_standstill>(EV_STANDSTILL, cpu, kStart + from, kStart + to);
}

ev_sample answer(uint64_t asked, uint64_t answered, uint32_t flags = 0) {
  ev_sample sample = sample_of(EV_SAMPLE_USER, answered);
  sample.reason = EV_SAMPLE_SILENCE;
  sample.asked_ns = kStart + asked;
  sample.flags = flags;
  return sample;
}

TEST(Smi, CoreThatDidNotAnswer) {
  const Gap gap = only_gap(bare_metal()
                               .add(answer(600_us, 9'900_us))
                               .add(smis(1, 3_ms, 10_ms + 5_us))
                               .add(gap_there(10_ms)));
  EXPECT_EQ(gap.verdict.cause, Cause::stolen);
  EXPECT_EQ(gap.verdict.detail.kind, "smi");
  EXPECT_EQ(gap.verdict.detail.count, 1u);
  EXPECT_EQ(gap.verdict.confidence, Confidence::high);
  EXPECT_EQ(gap.verdict.text,
            "stolen 9.30 ms: CPU 1 counted 1 SMI since 3.00 ms before the gap; "
            "also unexplained 600 us");
  EXPECT_EQ(ns_of(gap, Cause::stolen), 9'300_us);
  EXPECT_EQ(ns_of(gap, Cause::application), 100_us);
  EXPECT_EQ(first_of(gap, Cause::unexplained).detail.note,
            "in it the core stopped, at an instant that is not known");
  EXPECT_EQ(gap.evidence.smis, 1u);
  EXPECT_EQ(gap.evidence.smis_before_ns, 3_ms);
}

TEST(Smi, CoreThatDidNotAnswerBetweenTwoSamples) {
  // The thread was seen in user code 2 ms into the gap: the core stopped after that.
  const Gap gap = only_gap(bare_metal()
                               .add(sample_of(EV_SAMPLE_USER, 2_ms))
                               .add(answer(2'500_us, 9'900_us))
                               .add(smis(1, 3_ms, 10_ms + 5_us))
                               .add(gap_there(10_ms)));
  EXPECT_EQ(ns_of(gap, Cause::application), 2_ms + 1 + 100_us);
  EXPECT_EQ(ns_of(gap, Cause::unexplained), 500_us - 1);
  EXPECT_EQ(ns_of(gap, Cause::stolen), 7'400_us);
}

TEST(Smi, NoneCounted) {
  const Gap gap = only_gap(bare_metal()
                               .add(answer(600_us, 9'900_us))
                               .add(smis(0, 3_ms, 10_ms + 5_us))
                               .add(gap_there(10_ms)));
  EXPECT_EQ(gap.verdict.cause, Cause::unexplained);
  EXPECT_NE(gap.verdict.text.find("did not answer"), std::string::npos);
  EXPECT_EQ(gap.evidence.smis, 0u);
}

TEST(Smi, CountedElsewhereOrBefore) {
  ev_smi elsewhere = smis(1, 3_ms, 10_ms + 5_us);
  elsewhere.header.cpu = 3;
  const Gap other =
      only_gap(bare_metal().add(answer(600_us, 9'900_us)).add(elsewhere).add(gap_there(10_ms)));
  EXPECT_EQ(ns_of(other, Cause::stolen), 0u);
  EXPECT_FALSE(other.evidence.smis.has_value());

  ev_smi before = smis(1, 3_ms, 0);
  before.header.end_ns = kStart - 1_ms;
  const Gap earlier = only_gap(bare_metal()
                                   .add(before)
                                   .add(answer(600_us, 9'900_us))
                                   .add(smis(0, 1_ms, 10_ms + 5_us))
                                   .add(gap_there(10_ms)));
  EXPECT_EQ(ns_of(earlier, Cause::stolen), 0u);
  EXPECT_EQ(earlier.evidence.smis, 0u);
}

TEST(Smi, WhetherItCameInTheGapIsLessSureWhereThereAreMany) {
  ev_smi before = smis(4, 60_ms, 0);
  before.header.end_ns = kStart - 50_ms;
  const auto stream = [&] { return bare_metal().add(before).add(answer(600_us, 9'900_us)); };
  const Gap perhaps = only_gap(stream().add(smis(1, 3_ms, 10_ms + 5_us)).add(gap_there(10_ms)));
  EXPECT_EQ(perhaps.verdict.cause, Cause::stolen);
  EXPECT_EQ(perhaps.verdict.confidence, Confidence::medium);
  ev_smi inside = smis(1, 0, 10_ms + 5_us);
  inside.header.start_ns = kStart + 100_us;
  const Gap surely =
      only_gap(stream().add(smis(0, 3_ms, 100_us)).add(inside).add(gap_there(10_ms)));
  EXPECT_EQ(surely.verdict.confidence, Confidence::high);
  EXPECT_EQ(surely.evidence.smis_before_ns, 0u);
}

TEST(Smi, SometimeInALongTimeBeforeTheGap) {
  const Gap gap = only_gap(bare_metal()
                               .add(answer(600_us, 9'900_us))
                               .add(smis(1, 500_ms, 10_ms + 5_us))
                               .add(gap_there(10_ms)));
  EXPECT_EQ(gap.verdict.cause, Cause::unexplained);
  EXPECT_EQ(gap.evidence.smis, 1u);
  EXPECT_EQ(gap.evidence.smis_before_ns, 500_ms);
}

TEST(Smi, AloneItVoidsTheAbsenceOfEvidence) {
  const Gap without = only_gap(bare_metal().add(smis(0, 3_ms, 10_ms + 5_us)).add(gap_there(10_ms)));
  EXPECT_EQ(without.verdict.cause, Cause::application);
  EXPECT_EQ(without.verdict.confidence, Confidence::low);
  const Gap with = only_gap(bare_metal().add(smis(2, 3_ms, 10_ms + 5_us)).add(gap_there(10_ms)));
  EXPECT_EQ(with.verdict.cause, Cause::unexplained);
  EXPECT_NE(with.verdict.text.find("SMIs were counted, of which nothing says how long"),
            std::string::npos)
      << with.verdict.text;
}

TEST(Smi, ChangesNothingWhereTheTimeIsProven) {
  const Gap gap = only_gap(bare_metal()
                               .add(run_of("hog", 11, 0, 10_ms))
                               .add(preempted(0, 10_ms))
                               .add(smis(1, 3_ms, 10_ms + 5_us))
                               .add(gap_there(10_ms)));
  EXPECT_EQ(gap.verdict.cause, Cause::preemption);
  EXPECT_EQ(gap.verdict.share, 1);
  EXPECT_EQ(gap.evidence.smis, 1u);
}

TEST(Standstill, OfAllCoresWithAnSmi) {
  // The witness is written after the gap's own record: its core, too, stood still.
  const Gap gap = only_gap(bare_metal()
                               .add(smis(1, 3_ms, 10_ms + 5_us))
                               .add(gap_there(10_ms))
                               .add(standstill(300_us, 9'950_us)));
  EXPECT_EQ(gap.verdict.cause, Cause::stolen);
  EXPECT_EQ(gap.verdict.detail.kind, "smi");
  EXPECT_EQ(gap.verdict.confidence, Confidence::high);
  EXPECT_EQ(ns_of(gap, Cause::stolen), 9'650_us);
  EXPECT_EQ(ns_of(gap, Cause::unexplained), 300_us);
  EXPECT_EQ(ns_of(gap, Cause::application), 50_us);
}

TEST(Standstill, TakesFromWhateverRan) {
  const Gap gap = only_gap(bare_metal()
                               .add(syscall_of(1, 100_us, 9'990_us))
                               .add(smis(1, 3_ms, 10_ms + 5_us))
                               .add(gap_there(10_ms))
                               .add(standstill(300_us, 9'950_us)));
  EXPECT_EQ(ns_of(gap, Cause::stolen), 9'650_us);
  EXPECT_EQ(ns_of(gap, Cause::self_kernel), 240_us);

  const Gap irq = only_gap(bare_metal()
                               .add(device_irq(36, "nic", 100_us, 9'990_us))
                               .add(smis(1, 3_ms, 10_ms + 5_us))
                               .add(gap_there(10_ms))
                               .add(standstill(300_us, 9'950_us)));
  EXPECT_EQ(ns_of(irq, Cause::stolen), 9'650_us);
  EXPECT_EQ(ns_of(irq, Cause::hard_irq), 240_us);
}

TEST(Standstill, NotWhereThePolledCoreWentOn) {
  const auto stands_with = [](const auto& sign) {
    return only_gap(bare_metal()
                        .add(sign)
                        .add(smis(1, 3_ms, 10_ms + 5_us))
                        .add(gap_there(10_ms))
                        .add(standstill(300_us, 9'950_us)));
  };
  EXPECT_EQ(ns_of(stands_with(vector_irq(EV_VECTOR_LOCAL_TIMER, 4_ms, 4_ms + 2_us)), Cause::stolen),
            0u);
  EXPECT_EQ(ns_of(stands_with(softirq_of(1, 4_ms, 4_ms + 2_us)), Cause::stolen), 0u);
  EXPECT_EQ(ns_of(stands_with(syscall_of(1, 0, 5_ms)), Cause::stolen), 0u);
  EXPECT_EQ(ns_of(stands_with(sample_of(EV_SAMPLE_USER, 5_ms)), Cause::stolen), 0u);
  EXPECT_EQ(ns_of(stands_with(preempted(5_ms, 6_ms)), Cause::stolen), 0u);
  ev_self run = syscall_of(1, 0, 10_ms);
  run.count = 50;
  EXPECT_EQ(ns_of(stands_with(run), Cause::stolen), 0u);
  // Soon after it, that is the system going on.
  EXPECT_EQ(
      ns_of(stands_with(vector_irq(EV_VECTOR_LOCAL_TIMER, 9'900_us, 9'910_us)), Cause::stolen),
      9'600_us);
}

TEST(Standstill, BeforeTheGapItWasNotOfThePolledCore) {
  ev_gap later = gap_there(5_ms);
  later.header.start_ns += 5_ms;
  later.header.end_ns += 5_ms;
  const Gap gap = only_gap(
      bare_metal().add(standstill(0, 9'950_us)).add(smis(1, 3_ms, 10_ms + 5_us)).add(later));
  EXPECT_EQ(ns_of(gap, Cause::stolen), 0u);
}

TEST(Standstill, NotWhereRecordsAreMissing) {
  auto lost = make_record<ev_lost>(EV_LOST, 0, kStart + 4_ms, kStart + 5_ms);
  lost.records = 3;
  const Gap gap = only_gap(bare_metal()
                               .add(lost)
                               .add(smis(1, 3_ms, 10_ms + 5_us))
                               .add(gap_there(10_ms))
                               .add(standstill(300_us, 9'950_us)));
  EXPECT_EQ(ns_of(gap, Cause::stolen), 0u);
}

TEST(Standstill, OfThePolledCoreIsNoWitness) {
  const Gap gap = only_gap(bare_metal()
                               .add(smis(1, 3_ms, 10_ms + 5_us))
                               .add(gap_there(10_ms))
                               .add(standstill(300_us, 9'950_us, kCpu)));
  EXPECT_EQ(ns_of(gap, Cause::stolen), 0u);
}

TEST(Standstill, WithoutACountOnlyDoubt) {
  // Nobody counts SMIs here: the sample at the beginning proves nothing of what follows.
  const auto stream = [] { return bare_metal().add(sample_of(EV_SAMPLE_USER, 500_us)); };
  const Gap went_on = only_gap(stream().add(gap_there(10_ms)));
  EXPECT_EQ(went_on.verdict.cause, Cause::application);
  const Gap gap = only_gap(stream().add(gap_there(10_ms)).add(standstill(800_us, 9'950_us)));
  EXPECT_EQ(gap.verdict.cause, Cause::unexplained);
  EXPECT_NE(gap.verdict.text.find("the machine may have stood still"), std::string::npos);
  EXPECT_EQ(ns_of(gap, Cause::application), 550_us + 1);
  EXPECT_EQ(ns_of(gap, Cause::unexplained), 9'450_us - 1);
  // Nor where a hypervisor tells nothing.
  const Gap guest = only_gap(EvidenceStream()
                                 .session()
                                 .add(sample_of(EV_SAMPLE_USER, 500_us))
                                 .add(gap_in_silent_guest(10_ms))
                                 .add(standstill(800_us, 9'950_us)));
  EXPECT_EQ(guest.verdict.cause, Cause::unexplained);
}

TEST(Standstill, NoDoubtWhereTheStealClockOrTheCountSaysNo) {
  const Gap clock = only_gap(EvidenceStream()
                                 .session()
                                 .add(sample_of(EV_SAMPLE_USER, 500_us))
                                 .add(gap_there(10_ms))
                                 .add(standstill(800_us, 9'950_us)));
  EXPECT_EQ(clock.verdict.cause, Cause::application);
  const Gap counted = only_gap(bare_metal()
                                   .add(sample_of(EV_SAMPLE_USER, 500_us))
                                   .add(smis(0, 3_ms, 10_ms + 5_us))
                                   .add(gap_there(10_ms))
                                   .add(standstill(800_us, 9'950_us)));
  EXPECT_EQ(counted.verdict.cause, Cause::application);
}

TEST(Standstill, NotOfPollsInVain) {
  ev_gap late = gap_there(10_ms, EV_GAP_LATE_COMPLETION);
  late.polls = 20'000;
  late.outstanding = 1;
  late.vain_until_ns = late.header.end_ns - 2_us;
  const Gap gap = only_gap(
      bare_metal().add(smis(1, 3_ms, 10_ms + 5_us)).add(late).add(standstill(300_us, 9'950_us)));
  EXPECT_EQ(gap.verdict.cause, Cause::late_completion);
  EXPECT_EQ(ns_of(gap, Cause::stolen), 0u);
}

TEST(Standstill, IsAwaitedOnlyWhereItMatters) {
  const auto released_by = [](EvidenceStream stream, uint64_t next_at) {
    const auto next = vector_irq(EV_VECTOR_LOCAL_TIMER, next_at, next_at + 1_us);
    stream.add(next);
    Correlator correlator({.threshold_ns = 1'000'000});
    std::vector<Gap> gaps;
    for (const std::vector<std::byte>& record : stream.records()) {
      correlator.accept(record, gaps);
    }
    return gaps.size();
  };
  EXPECT_EQ(released_by(bare_metal().add(smis(1, 3_ms, 10_ms)).add(gap_there(10_ms)), 14_ms), 0u);
  EXPECT_EQ(released_by(bare_metal().add(smis(1, 3_ms, 10_ms)).add(gap_there(10_ms)), 16_ms), 1u);
  EXPECT_EQ(released_by(bare_metal().add(smis(0, 3_ms, 10_ms)).add(gap_there(10_ms)), 11_ms), 1u);
  EXPECT_EQ(released_by(bare_metal().add(gap_there(10_ms)), 11_ms), 0u);
  EXPECT_EQ(released_by(bare_metal()
                            .add(run_of("hog", 11, 0, 10_ms))
                            .add(preempted(0, 10_ms))
                            .add(gap_there(10_ms)),
                        11_ms),
            1u);
}

// Before Linux 6.4 it is not known when the sampler's interrupt was sent, but not before when.
TEST(Smi, LateAnswerWithoutTheTimeOfAsking) {
  const auto late = answer(600_us, 9'900_us, EV_SAMPLE_ASKED_LATER);
  const Gap stolen =
      only_gap(bare_metal().add(late).add(smis(1, 3_ms, 10_ms + 5_us)).add(gap_there(10_ms)));
  EXPECT_EQ(stolen.verdict.cause, Cause::stolen);
  EXPECT_EQ(stolen.verdict.detail.kind, "smi");
  const Gap doubtful = only_gap(bare_metal().add(late).add(gap_there(10_ms)));
  EXPECT_EQ(doubtful.verdict.cause, Cause::unexplained);
  EXPECT_NE(doubtful.verdict.text.find("if not the sampler itself was late"), std::string::npos);
  // Asked in time it answers in time: then the sample proves what it always did.
  const Gap prompt = only_gap(
      bare_metal().add(answer(600_us, 650_us, EV_SAMPLE_ASKED_LATER)).add(gap_there(10_ms)));
  EXPECT_EQ(prompt.verdict.cause, Cause::application);
}

}  // namespace
}  // namespace pollgap::test
