// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/report_sample.h"

#include <string>
#include <utility>

namespace pollgap::sample {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kMillisecond = 1'000'000;
constexpr uint64_t kCq = 0x55d0c0de4010;

Frame frame(std::string function, std::string file, uint32_t line) {
  Frame result;
  result.address = 0x401234;
  result.function = std::move(function);
  result.file = std::move(file);
  result.line = line;
  result.module = "/usr/bin/server";
  result.module_offset = 0x1234;
  return result;
}

Detail preempted_by(const char* comm, uint32_t pid) {
  Detail detail;
  detail.task = TaskRef{pid, pid, comm};
  detail.policy = "SCHED_FIFO";
  detail.priority = 49;
  detail.rt_priority = 50;
  detail.cgroup = "/system.slice/stress.service";
  detail.woken_by = Waker{{812, 812, "cron"}, "task"};
  return detail;
}

Detail detail_for(Cause cause) {
  Detail detail;
  switch (cause) {
    case Cause::preemption:
      return preempted_by("stress-ng", 4242);
    case Cause::throttled:
      detail.throttle = "cfs_quota";
      detail.cgroup = "/kubepods.slice/pod1";
      detail.quota_ns = 20 * kMillisecond;
      detail.period_ns = 100 * kMillisecond;
      break;
    case Cause::stopped:
      detail.kind = "signal";
      detail.signal = "SIGSTOP";
      detail.task = TaskRef{77, 77, "bash"};
      break;
    case Cause::blocked:
      detail.syscall = "nanosleep";
      detail.user_stack = {frame("pause_a_bit", "server.cc", 88)};
      detail.kernel_stack = {{0xffffffff81000000, "hrtimer_nanosleep", "", 0, "[kernel]", 0}};
      break;
    case Cause::hard_irq:
      detail.kind = "device";
      detail.irq = 36;
      detail.action = "virtio1-req.0";
      detail.device = "virtio1";
      detail.vector = "completion 3";
      detail.rdma_device = "mlx5_0";
      detail.target_uses_adapter = true;
      detail.affinity = "0-7";
      break;
    case Cause::soft_irq:
      detail.kind = "TIMER";
      break;
    case Cause::nmi:
      break;
    case Cause::self_kernel:
      detail.kind = "page_fault";
      detail.fault = "major";
      detail.address = 0x7f12345000;
      detail.count = 3;
      break;
    case Cause::control_verb:
      detail.verb = "ibv_reg_mr";
      detail.bytes = 1 << 30;
      detail.result = 0;
      break;
    case Cause::application:
      detail.user_stack = {frame("parse_reply", "reply.cc", 17), frame("main", "server.cc", 9)};
      detail.samples = 5;
      break;
    case Cause::poll_function:
      detail.error_completions = 512;
      detail.samples = 2;
      break;
    case Cause::stolen:
      detail.kind = "hypervisor";
      detail.note = "the steal clock advanced 4.8 ms";
      break;
    case Cause::late_completion:
      detail.reason = "undetermined";
      detail.outstanding = 1;
      detail.polls = 300'000;
      break;
    case Cause::agent:
      detail.note = "attaching";
      break;
    case Cause::unexplained:
      detail.note = "3 records were lost";
      break;
  }
  return detail;
}

Segment segment(uint64_t offset_ns, uint64_t duration_ns, Cause cause, Detail detail) {
  return {offset_ns, duration_ns, cause, std::move(detail)};
}

}  // namespace

SessionFacts facts() {
  SessionFacts facts;
  facts.session_json = R"({
    "tool": {"name": "pollgap", "version": "0.1.0", "pid": 99},
    "host": {"hostname": "node7", "kernel": "6.1.0", "online_cpus": "0-7", "cgroup_version": 2,
             "clock": {"mono_ns": 1000000000000, "realtime_ns": 1738367999000000000}},
    "target": {"pid": 4711, "comm": "server", "sites": []},
    "options": {"threshold_ns": 1000000, "timing": "uprobe"}})";
  facts.coverage_json = R"({"warnings": ["steal clock: not readable on this machine"]})";
  facts.first_ns = 1000 * kSecond;
  facts.last_ns = 1030 * kSecond;
  facts.records = 12345;
  facts.polls[{4711, kCq}] = {.polls = 30'000'000,
                              .empty_polls = 29'990'000,
                              .completions = 10'000,
                              .error_completions = 0,
                              .idle_ns = 1'200 * kMillisecond,
                              .posted_sends = 10'000,
                              .posted_signaled = 10'000,
                              .first_mono_ns = 1000 * kSecond,
                              .last_mono_ns = 1030 * kSecond,
                              .event_waits = EventWaits{.interrupt_to_wakeup = {90, 270'000, 9'000},
                                                        .wakeup_to_run = {120, 480'000, 41'000},
                                                        .run_to_poll = {120, 600'000, 12'000}}};
  facts.threads[4711] = "poller";
  return facts;
}

Gap gap_of(Cause cause, Detail detail) {
  Gap gap;
  gap.id = static_cast<uint64_t>(cause) + 1;
  gap.kind = cause == Cause::late_completion ? GapKind::late_completion : GapKind::between_polls;
  gap.tid = 4711;
  gap.thread = "poller";
  gap.cpu = 3;
  gap.cq = kCq;
  gap.start_mono_ns = 1001 * kSecond + gap.id * 100 * kMillisecond + 123'456;
  gap.duration_ns = (4 + gap.id) * kMillisecond + 20'000;
  gap.verdict = {cause,
                 1,
                 Confidence::high,
                 detail,
                 gap.duration_ns,
                 std::string("all of it was ") + to_string(cause)};
  gap.segments = {segment(0, gap.duration_ns, cause, std::move(detail))};
  gap.culprits = {{cause, std::string("culprit of ") + to_string(cause), gap.duration_ns, 1}};
  return gap;
}

std::vector<Gap> gaps_of_every_cause() {
  std::vector<Gap> gaps;
  for (int cause = 0; cause <= static_cast<int>(Cause::unexplained); ++cause)
    gaps.push_back(gap_of(static_cast<Cause>(cause), detail_for(static_cast<Cause>(cause))));
  return gaps;
}

Gap mixed_gap() {
  Gap gap = gap_of(Cause::preemption, preempted_by("stress-ng", 4242));
  gap.id = 16;
  gap.start_mono_ns = 1003 * kSecond;
  gap.duration_ns = 5 * kMillisecond;
  gap.segments = {segment(0, 250'000, Cause::self_kernel, detail_for(Cause::self_kernel)),
                  segment(250'000, 3'000'000, Cause::preemption, preempted_by("stress-ng", 4242)),
                  segment(3'250'000, 750'000, Cause::hard_irq, detail_for(Cause::hard_irq)),
                  segment(4'000'000, 900'000, Cause::preemption, preempted_by("stress-ng", 4242)),
                  segment(4'900'000, 100'000, Cause::unexplained, {})};
  gap.verdict.share = 0.78;
  gap.verdict.confidence = Confidence::medium;
  gap.verdict.culprit_ns = 3'900'000;
  gap.verdict.text = "preempted 3.90 ms by stress-ng (pid 4242, SCHED_FIFO 50), woken by cron";
  gap.culprits = {{Cause::preemption, "stress-ng/4242", 3'900'000, 2},
                  {Cause::hard_irq, "irq 36 virtio1-req.0", 750'000, 1}};
  gap.evidence.end_stack = {frame("poll_loop", "server.cc", 41)};
  gap.evidence.completions = 1;
  gap.evidence.outstanding = 4;
  gap.evidence.steal_ns = 0;
  gap.evidence.smis = 1;
  gap.evidence.smis_before_ns = 3'000'000;
  gap.evidence.errors = ErrorCompletions{8, 7, 12, "IBV_WC_RETRY_EXC_ERR", 17, 0x81};
  gap.evidence.stamp = CompletionStamp{.ticks = 4711,
                                       .made_after_ns = gap.start_mono_ns + 1'000'000,
                                       .made_until_ns = gap.start_mono_ns + 1'400'000,
                                       .written_after_ns = gap.start_mono_ns + 2'600'000,
                                       .written_until_ns = gap.start_mono_ns + 2'800'000};
  gap.evidence.migrations = {{1'000'000, 3, 5}};
  gap.evidence.trace_events = {{.offset_ns = 2'000'000,
                                .cpu = 0,
                                .event = "mlx5:mlx5_cmd",
                                .task = {77, 70, "kworker/0:1"},
                                .text = "CREATE_QP(0x500) failed, syndrome (0x3f2a51)",
                                .fields = {{"opcode", "1280"}, {"command_str", "CREATE_QP"}},
                                .truncated = true}};
  gap.evidence.trace_events_left_out = 3;
  gap.evidence.lost_records = 2;
  return gap;
}

Detail full_detail() {
  Detail detail = preempted_by("task", 1);
  detail.work_function = "vmstat_update";
  detail.throttle = "cfs_quota";
  detail.quota_ns = 1;
  detail.period_ns = 2;
  detail.kind = "device";
  detail.signal = "SIGSTOP";
  detail.irq = 0;
  detail.action = "timer";
  detail.device = "0000:03:00.0";
  detail.affinity = "0-3";
  detail.callback = "flush_tlb_func";
  detail.sender = TaskRef{5, 4, "sender"};
  detail.syscall = "futex";
  detail.fault = "minor";
  detail.address = 0;
  detail.verb = "ibv_modify_qp";
  detail.bytes = 4096;
  detail.result = -22;
  detail.upper_bound = true;
  detail.user_stack = {frame("f", "f.c", 1)};
  detail.kernel_stack = {frame("", "", 0)};
  detail.samples = 7;
  detail.error_completions = 9;
  detail.reason = "rnr";
  detail.outstanding = 3;
  detail.polls = 11;
  detail.note = "note";
  detail.count = 2;
  return detail;
}

}  // namespace pollgap::sample
