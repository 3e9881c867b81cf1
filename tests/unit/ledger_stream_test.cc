// SPDX-License-Identifier: Apache-2.0
// The correlator over whole streams: bounds, clamping, several threads and CQs, odd input.
#include "tests/unit/ledger_stream.h"

#include <gtest/gtest.h>

namespace pollgap::test {
namespace {

ev_gap between(uint64_t duration_ns) { return gap_of(EV_GAP_BETWEEN_POLLS, duration_ns); }

TEST(Stream, RecordsThatReachOverTheEdgesAreCut) {
  ev_run run = run_of("hog", 11, 0, 0);
  run.header.start_ns = kStart - 5_ms;
  run.header.end_ns = kStart + 9_ms;
  ev_off_cpu off = preempted(0, 0);
  off.header.start_ns = kStart - 5_ms;
  off.header.end_ns = kStart + 9_ms;
  const Gap gap = only_gap(EvidenceStream().add(run).add(off).add(between(2_ms)));
  EXPECT_EQ(ns_of(gap, Cause::preemption), 2_ms);
}

TEST(Stream, AnEndBeforeItsStartIsAnEmptyInterval) {
  ev_run run = run_of("hog", 11, 1_ms, 500'000);
  ev_off_cpu off = preempted(1_ms, 0);
  off.wakeup_ns = 5;
  const Gap gap = only_gap(EvidenceStream()
                               .add(run)
                               .add(off)
                               .add(vector_irq(EV_VECTOR_LOCAL_TIMER, 1_ms, 0))
                               .add(syscall_of(1, 1_ms, 3))
                               .add(between(2_ms)));
  EXPECT_EQ(gap.duration_ns, 2_ms);
}

TEST(Stream, AWakeupOutsideItsSleepIsClamped) {
  ev_off_cpu off = asleep(1_ms, 0, 2_ms);
  off.wakeup_ns = kStart + 7_ms;
  EXPECT_EQ(ns_of(only_gap(EvidenceStream().add(off).add(between(2_ms))), Cause::blocked), 1_ms);
  off.wakeup_ns = kStart;
  EXPECT_EQ(ns_of(only_gap(EvidenceStream().add(off).add(between(2_ms))), Cause::blocked), 0u);
}

TEST(Stream, GapsBelowTheThresholdAreDropped) {
  EXPECT_TRUE(correlate(EvidenceStream().add(between(999'999))).empty());
  EXPECT_EQ(correlate(EvidenceStream().add(between(1'000'000))).size(), 1u);
}

TEST(Stream, TwoThreadsAreNotMixedUp) {
  ev_off_cpu others = preempted(0, 3_ms);
  others.tid = 999;
  ev_self syscall = syscall_of(39, 0, 3_ms);
  syscall.tid = 999;
  ev_gap other_gap = between(3_ms);
  other_gap.tid = 999;
  const std::vector<Gap> gaps = correlate(EvidenceStream()
                                              .add(run_of("hog", 11, 0, 3_ms))
                                              .add(others)
                                              .add(syscall)
                                              .add(sample_of(1, 1_ms))
                                              .add(between(3_ms))
                                              .add(other_gap));
  ASSERT_EQ(gaps.size(), 2u);
  EXPECT_EQ(gaps[0].verdict.cause, Cause::application);
  EXPECT_EQ(gaps[1].verdict.cause, Cause::preemption);
  EXPECT_EQ(gaps[0].id, 1u);
  EXPECT_EQ(gaps[1].id, 2u);
  EXPECT_EQ(gaps[1].tid, 999u);
}

TEST(Stream, TwoCqsOfOneThreadShareTheirEvidence) {
  ev_gap second = between(3_ms);
  second.cq = kCq + 0x1000;
  auto error = make_record<ev_wc_error>(EV_WC_ERROR, kCpu, kStart + 1_ms, kStart + 1_ms);
  error.tid = kTid;
  error.cq = second.cq;
  error.errors = 2;
  const std::vector<Gap> gaps = correlate(EvidenceStream()
                                              .add(run_of("hog", 11, 0, 3_ms))
                                              .add(preempted(0, 3_ms))
                                              .add(error)
                                              .add(between(3_ms))
                                              .add(second));
  ASSERT_EQ(gaps.size(), 2u);
  EXPECT_EQ(gaps[0].verdict.cause, Cause::preemption);
  EXPECT_EQ(gaps[1].verdict.cause, Cause::preemption);
  EXPECT_FALSE(gaps[0].evidence.errors.has_value());
  EXPECT_TRUE(gaps[1].evidence.errors.has_value());
}

TEST(Stream, AStackBelongsToTheRecordThatFollowsIt) {
  const Gap gap = only_gap(EvidenceStream()
                               .add(stack_of(EV_STACK_USER, 1_ms, {0x9999}))
                               .add(sample_of(1, 2_ms))  // another start: not its stack
                               .add(stack_of(EV_STACK_USER, 0, {0x1234, 0x5678}))
                               .add(between(3_ms)));
  ASSERT_EQ(gap.evidence.end_stack.size(), 2u);
  EXPECT_EQ(gap.evidence.end_stack[0].address, 0x1234u);
  EXPECT_EQ(gap.verdict.detail.user_stack.at(0).address, 0x5000u);
}

TEST(Stream, ManySegmentsAreBoundedAndExact) {
  EvidenceStream stream;
  for (uint64_t at = 0; at < 40_ms; at += 10_us) {
    stream.add(vector_irq(EV_VECTOR_LOCAL_TIMER, at, at + 3_us));
  }
  for (uint32_t i = 0; i < 1000; ++i) {
    stream.add(run_of("t" + std::to_string(i), 5000 + i, i * 40_us, i * 40_us + 40_us));
  }
  stream.add(preempted(0, 40_ms));
  const Gap gap = only_gap(stream.add(between(40_ms)));
  EXPECT_EQ(ns_of(gap, Cause::hard_irq), 12_ms);
  EXPECT_EQ(ns_of(gap, Cause::preemption), 28_ms);
  EXPECT_EQ(gap.verdict.cause, Cause::preemption);
  EXPECT_LT(gap.culprits.size(), 100u);
}

TEST(Stream, BoundingKeepsTheLongestSegmentsInPlace) {
  EvidenceStream stream;
  for (uint64_t at = 0; at < 4_ms; at += 4_us) {
    stream.add(vector_irq(EV_VECTOR_RESCHEDULE, at, at + 1_us));
  }
  stream.add(device_irq(36, "nic", 4_ms, 6_ms));
  for (uint64_t at = 6_ms; at < 10_ms; at += 4_us) {
    stream.add(vector_irq(EV_VECTOR_RESCHEDULE, at, at + 1_us));
  }
  const Gap gap = only_gap(stream.add(sample_of(1, 3_ms)).add(between(10_ms)));
  bool found = false;
  for (const Segment& segment : gap.segments) {
    found = found ||
            (segment.offset_ns == 4_ms && segment.duration_ns == 2_ms && segment.detail.irq == 36);
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(ns_of(gap, Cause::hard_irq), 4_ms);
}

TEST(Stream, MalformedRecordsAreCountedAndDropped) {
  EvidenceStream stream;
  stream.add_bytes({});
  stream.add_bytes(std::vector<std::byte>(10));
  stream.add_bytes(std::vector<std::byte>(24));
  ev_run short_run = run_of("x", 1, 0, 1);
  short_run.header.bytes -= 8;
  stream.add(short_run);
  ev_run far = run_of("x", 1, 0, 1);
  far.header.cpu = 1'000'000;
  stream.add(far);
  ev_gap odd = between(2_ms);
  odd.gap_kind = 99;
  stream.add(odd);
  ev_stack tall = stack_of(EV_STACK_USER, 0, {1});
  tall.frames = 200;
  stream.add(tall);
  auto name = make_record<ev_name>(EV_NAME, 0, 0, 0);
  name.text_bytes = 0xffffffff;
  stream.add(name);
  SessionFacts facts;
  EXPECT_TRUE(correlate(stream, &facts).empty());
  EXPECT_EQ(facts.records, 8u);
  EXPECT_EQ(facts.malformed, 8u);
}

TEST(Stream, FactsOfTheSession) {
  auto polls = make_record<ev_polls>(EV_POLLS, kCpu, kStart, kStart + 9_ms);
  polls.tid = kTid;
  polls.cq = kCq;
  polls.polls = 10;
  polls.wakeup_to_run = {.count = 2, .sum_ns = 3000, .longest_ns = 2000};
  auto lost = make_record<ev_lost>(EV_LOST, 0, kStart, kStart + 1);
  lost.records = 3;
  SessionFacts facts;
  correlate(EvidenceStream()
                .session()
                .name(EV_NAME_THREAD, kTid, "poller")
                .add(polls)
                .add(lost)
                .add(sample_of(1, 20_ms))
                .text(EV_COVERAGE, "{\"x\":1}"),
            &facts);
  EXPECT_NE(facts.session_json.find("4242"), std::string::npos);
  EXPECT_EQ(facts.coverage_json, "{\"x\":1}");
  EXPECT_EQ(facts.threads.at(kTid), "poller");
  EXPECT_EQ(facts.lost, 3u);
  const PollTotals& totals = facts.polls.at({kTid, kCq});
  EXPECT_EQ(totals.polls, 10u);
  ASSERT_TRUE(totals.event_waits);
  EXPECT_EQ(totals.event_waits->wakeup_to_run.longest_ns, 2000u);
  EXPECT_EQ(totals.event_waits->interrupt_to_wakeup.count, 0u);
  EXPECT_EQ(facts.first_ns, kStart);
  EXPECT_EQ(facts.last_ns, kStart + 20_ms);
  EXPECT_EQ(facts.malformed, 0u);
}

TEST(Stream, HostileTextsComeOutPrintable) {
  ev_run run = run_of("", 11, 0, 2_ms);
  std::memset(run.task.comm, 0xff, sizeof(run.task.comm));
  run.task.comm[0] = '\n';
  const Gap gap = only_gap(EvidenceStream().add(run).add(preempted(0, 2_ms)).add(between(2_ms)));
  EXPECT_EQ(gap.verdict.detail.task->comm, std::string(16, '?'));
}

TEST(Stream, SessionsThatAreNotAsExpectedAreIgnored) {
  for (const char* json :
       {"", "[]", "{", "{\"tool\":3}", "{\"target\":{\"sites\":[1,{\"name\":2}]}}",
        "{\"tool\":{\"pid\":-1}}"}) {
    EvidenceStream stream;
    stream.text(EV_SESSION, json).add(sample_of(1, 1_ms)).add(between(2_ms));
    EXPECT_EQ(only_gap(stream).verdict.cause, Cause::application) << json;
  }
}

TEST(Stream, HistoryThatNoLongerFitsIsSaid) {
  EvidenceStream stream;
  for (uint64_t i = 0; i < 40'000; ++i) {
    stream.add(vector_irq(EV_VECTOR_LOCAL_TIMER, i * 200, i * 200 + 100));
  }
  SessionFacts facts;
  const std::vector<Gap> gaps = correlate(stream.add(between(8_ms)), &facts);
  ASSERT_EQ(gaps.size(), 1u);
  expect_exact(gaps[0]);
  EXPECT_GT(facts.evicted, 0u);
  EXPECT_EQ(gaps[0].verdict.confidence, Confidence::low);
}

TEST(Stream, RecordsSlightlyOutOfOrderAreSorted) {
  // The softirq's record was reserved after that of an interrupt that began and ended later.
  const Gap gap = only_gap(EvidenceStream()
                               .add(vector_irq(EV_VECTOR_LOCAL_TIMER, 2'000'100, 2'100'000))
                               .add(softirq_of(1, 0, 2_ms))
                               .add(between(2'200'000)));
  EXPECT_EQ(ns_of(gap, Cause::soft_irq), 2_ms);
  EXPECT_EQ(ns_of(gap, Cause::hard_irq), 99'900u);
}

}  // namespace
}  // namespace pollgap::test
