// SPDX-License-Identifier: Apache-2.0
// The RDMA adapter in a gap: its driver's tracepoints as evidence, and its own interrupts.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "agent/ledger/adapter_interrupt.h"
#include "ledger_stream.h"

namespace pollgap::test {
namespace {

constexpr std::string_view kCommand =
    R"({"event":"mlx5:mlx5_cmd","text":"CREATE_QP(0x500) failed","fields":{"opcode":"1280"}})";
constexpr std::string_view kFirmware =
    R"({"event":"mlx5:mlx5_fw","text":"late","fields":{"msg":"late"},"truncated":true})";

TEST(AdapterEvidence, TracepointsInTheGapAreToldButNoCause) {
  EvidenceStream stream;
  stream.session();
  stream.add_bytes(trace_event_of(kFirmware, 0));
  stream.add_bytes(trace_event_of(kCommand, 1_ms, 3));
  stream.add(run_of("hog", 50, 0, 5_ms)).add(preempted(0, 5_ms));
  stream.add_bytes(trace_event_of(kFirmware, 2_ms));
  stream.add(gap_of(EV_GAP_BETWEEN_POLLS, 5_ms));
  stream.add_bytes(trace_event_of(kFirmware, 6_ms));
  const Gap gap = only_gap(stream);
  EXPECT_EQ(gap.verdict.cause, Cause::preemption);
  EXPECT_EQ(ns_of(gap, Cause::preemption), 5_ms);
  ASSERT_EQ(gap.evidence.trace_events.size(), 3U);
  const TraceEvidence& command = gap.evidence.trace_events[1];
  EXPECT_EQ(command.event, "mlx5:mlx5_cmd");
  EXPECT_EQ(command.offset_ns, 1_ms);
  EXPECT_EQ(command.cpu, 3U);
  EXPECT_EQ(command.task, (TaskRef{77, 70, "kworker/0:1"}));
  EXPECT_EQ(command.text, "CREATE_QP(0x500) failed");
  ASSERT_EQ(command.fields.size(), 1U);
  EXPECT_EQ(command.fields[0].second, "1280");
  EXPECT_FALSE(command.truncated);
  EXPECT_TRUE(gap.evidence.trace_events[2].truncated);
  EXPECT_NE(gap.verdict.text.find("; meanwhile mlx5:mlx5_fw (2 times), mlx5:mlx5_cmd"),
            std::string::npos)
      << gap.verdict.text;
}

TEST(AdapterEvidence, NotThoseBeforeIt) {
  EvidenceStream stream;
  stream.session();
  auto before = trace_event_of(kCommand, 0);
  const uint64_t at = kStart - 1;
  std::memcpy(before.data() + offsetof(ev_header, start_ns), &at, sizeof(at));
  std::memcpy(before.data() + offsetof(ev_header, end_ns), &at, sizeof(at));
  stream.add_bytes(before).add(gap_of(EV_GAP_BETWEEN_POLLS, 5_ms));
  EXPECT_TRUE(only_gap(stream).evidence.trace_events.empty());
}

TEST(AdapterEvidence, ManyAreBoundedAndCounted) {
  EvidenceStream stream;
  stream.session();
  for (uint64_t i = 0; i < 100; ++i) stream.add_bytes(trace_event_of(kFirmware, i * 10_us));
  stream.add(gap_of(EV_GAP_BETWEEN_POLLS, 5_ms));
  const Gap gap = only_gap(stream);
  EXPECT_EQ(gap.evidence.trace_events.size(), 32U);
  EXPECT_EQ(gap.evidence.trace_events_left_out, 68U);
  EXPECT_NE(gap.verdict.text.find("(32 times) and others"), std::string::npos);
}

TEST(AdapterEvidence, MalformedRecordsAreCountedAndOddJsonIsHarmless) {
  EvidenceStream stream;
  stream.session();
  auto wrong = trace_event_of(kCommand, 1_ms);
  const uint32_t length = 1 << 20;
  std::memcpy(wrong.data() + offsetof(ev_trace_event, text_bytes), &length, sizeof(length));
  stream.add_bytes(wrong);
  stream.add_bytes(trace_event_of("", 1_ms)).add_bytes(trace_event_of("[1, 2", 1_ms));
  stream.add_bytes(trace_event_of(R"({"event":7,"fields":[1],"truncated":"x"})", 1_ms));
  stream.add_bytes(trace_event_of("{\"event\":\"a\",\"fields\":{\"x\":\"\\u0007\"}}", 1_ms));
  stream.add(gap_of(EV_GAP_BETWEEN_POLLS, 5_ms));
  SessionFacts facts;
  const std::vector<Gap> gaps = correlate(stream, &facts);
  EXPECT_EQ(facts.malformed, 1U);
  ASSERT_EQ(gaps.size(), 1U);
  ASSERT_EQ(gaps[0].evidence.trace_events.size(), 4U);
  EXPECT_EQ(gaps[0].evidence.trace_events[3].fields[0].second, "?");
}

TEST(AdapterInterrupts, NamesOfTheMlx5Driver) {
  const auto vector = [](const char* action) { return adapter_interrupt(action)->vector; };
  EXPECT_EQ(vector("mlx5_comp3@pci:0000:3b:00.0"), "completion 3");
  EXPECT_EQ(adapter_interrupt("mlx5_comp3@pci:0000:3b:00.0")->device, "0000:3b:00.0");
  EXPECT_EQ(vector("mlx5_async0@pci:0000:3b:00.1"), "asynchronous 0");
  EXPECT_EQ(vector("mlx5_async"), "asynchronous");
  EXPECT_EQ(adapter_interrupt("mlx5_async")->device, "");
  EXPECT_EQ(vector("mlx5_sf_comp12"), "completion 12");
  EXPECT_EQ(vector("mlx5_ctrl1"), "control 1");
  EXPECT_EQ(vector("mlx5_pages_eq@pci:0000:3b:00.0"), "pages");
  EXPECT_EQ(vector("mlx5_something_new4"), "something_new 4");
  for (const char* other : {"", "mlx5", "mlx5_", "mlx5_7", "virtio0-input.0", "mlx4-async@pci:x"})
    EXPECT_FALSE(adapter_interrupt(other)) << other;
  EXPECT_EQ(threaded_interrupt("irq/45-mlx5_com"), 45);
  for (const char* other : {"", "irq/", "irq/x-y", "irq/45", "irq/-1-x", "kworker/0:1"})
    EXPECT_FALSE(threaded_interrupt(other)) << other;
}

EvidenceStream with_adapter() {
  EvidenceStream stream;
  nlohmann::json session{{"host", {{"kernel", "6.1.0"}}}};
  session["target"]["contexts"] = {{{"device", "mlx5_0"}}};
  stream.text(EV_SESSION, session.dump());
  stream.name(EV_NAME_IRQ, 45,
              R"({"device":"0000:3b:00.0","rdma_device":"mlx5_0",)"
              R"("action":"mlx5_comp3@pci:0000:3b:00.0","affinity":"1"})");
  return stream;
}

TEST(AdapterInterrupts, AHardInterruptOfTheAdapterThatTheTargetUses) {
  EvidenceStream stream = with_adapter();
  stream.add(device_irq(45, "mlx5_comp3@pci:0000:3b:00.0", 0, 4_ms));
  stream.add(gap_of(EV_GAP_BETWEEN_POLLS, 4_ms));
  const Gap gap = only_gap(stream);
  EXPECT_EQ(gap.verdict.cause, Cause::hard_irq);
  EXPECT_EQ(gap.verdict.detail.vector, "completion 3");
  EXPECT_EQ(gap.verdict.detail.rdma_device, "mlx5_0");
  EXPECT_TRUE(gap.verdict.detail.target_uses_adapter);
  EXPECT_NE(gap.verdict.text.find("hard interrupt 45 mlx5_comp3@pci:0000:3b:00.0 (0000:3b:00.0, "
                                  "completion 3 of RDMA adapter mlx5_0, which this process uses)"),
            std::string::npos)
      << gap.verdict.text;
}

TEST(AdapterInterrupts, AmongOthersTheAdaptersIsToldToo) {
  EvidenceStream stream = with_adapter();
  stream.add(device_irq(45, "mlx5_comp3@pci:0000:3b:00.0", 0, 3_ms));
  stream.add(device_irq(36, "virtio1-req.0", 3_ms, 4_ms));
  stream.add(gap_of(EV_GAP_BETWEEN_POLLS, 4_ms));
  const Gap gap = only_gap(stream);
  EXPECT_NE(gap.verdict.text.find(
                "irq 45 mlx5_comp3@pci:0000:3b:00.0 (0000:3b:00.0, completion 3 of RDMA adapter "
                "mlx5_0, which this process uses) 3.00 ms, irq 36 virtio1-req.0 1.00 ms"),
            std::string::npos)
      << gap.verdict.text;
}

TEST(AdapterInterrupts, OnlyItsNameIsKnown) {
  EvidenceStream stream;
  stream.session();
  stream.add(device_irq(45, "mlx5_async0@pci:0000:3b:00.0", 0, 4_ms));
  stream.add(gap_of(EV_GAP_BETWEEN_POLLS, 4_ms));
  const Detail detail = only_gap(stream).verdict.detail;
  EXPECT_EQ(detail.device, "0000:3b:00.0");
  EXPECT_EQ(detail.vector, "asynchronous 0");
  EXPECT_EQ(detail.rdma_device, "");
  EXPECT_FALSE(detail.target_uses_adapter);
}

TEST(AdapterInterrupts, AThreadThatHandlesTheAdaptersInterrupt) {
  EvidenceStream stream = with_adapter();
  ev_run thread = run_of("irq/45-mlx5_com", 60, 0, 4_ms);
  thread.task.flags = EV_TASK_KTHREAD;
  stream.add(thread).add(preempted(0, 4_ms)).add(gap_of(EV_GAP_BETWEEN_POLLS, 4_ms));
  const Gap gap = only_gap(stream);
  EXPECT_EQ(gap.verdict.cause, Cause::preemption);
  EXPECT_EQ(gap.verdict.detail.irq, 45);
  EXPECT_EQ(gap.verdict.detail.rdma_device, "mlx5_0");
  EXPECT_NE(gap.verdict.text.find("which handles hard interrupt 45 mlx5_comp3"), std::string::npos)
      << gap.verdict.text;
}

}  // namespace
}  // namespace pollgap::test
