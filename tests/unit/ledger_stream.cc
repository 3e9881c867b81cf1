// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/ledger_stream.h"

#include <gtest/gtest.h>
#include <sched.h>

namespace pollgap::test {

ev_gap gap_of(ev_gap_kind kind, uint64_t duration_ns) {
  auto gap = make_record<ev_gap>(EV_GAP, kCpu, kStart, kStart + duration_ns);
  gap.tid = kTid;
  gap.pid = kPid;
  gap.gap_kind = kind;
  gap.cq = kCq;
  gap.start_cpu = kCpu;
  return gap;
}

ev_run run_of(std::string_view comm, uint32_t tid, uint64_t from, uint64_t to, uint32_t cpu) {
  auto run = make_record<ev_run>(EV_RUN, cpu, kStart + from, kStart + to);
  run.task.tid = tid;
  run.task.pid = tid;
  run.task.priority = 120;
  run.task.policy = SCHED_OTHER;
  set_text(run.task.comm, comm);
  return run;
}

ev_run idle_run(uint64_t from, uint64_t to) { return run_of("swapper/1", 0, from, to); }

ev_off_cpu preempted(uint64_t from, uint64_t to) {
  auto off = make_record<ev_off_cpu>(EV_OFF_CPU, kCpu, kStart + from, kStart + to);
  off.tid = kTid;
  off.out_cpu = kCpu;
  off.flags = EV_OFF_PREEMPTED;
  off.syscall_nr = -1;
  off.priority = 120;
  return off;
}

ev_off_cpu asleep(uint64_t from, uint64_t wakeup, uint64_t to) {
  ev_off_cpu off = preempted(from, to);
  off.flags = 0;
  off.state = 1;
  off.wakeup_ns = kStart + wakeup;
  return off;
}

ev_irq device_irq(int irq, std::string_view action, uint64_t from, uint64_t to) {
  ev_irq record = vector_irq(EV_VECTOR_DEVICE, from, to);
  record.irq = irq;
  set_text(record.action, action);
  return record;
}

ev_irq vector_irq(ev_vector vector, uint64_t from, uint64_t to) {
  auto record = make_record<ev_irq>(EV_IRQ, kCpu, kStart + from, kStart + to);
  record.vector = vector;
  record.irq = -1;
  return record;
}

ev_softirq softirq_of(uint32_t vector, uint64_t from, uint64_t to) {
  auto record = make_record<ev_softirq>(EV_SOFTIRQ, kCpu, kStart + from, kStart + to);
  record.vector = vector;
  record.after_irq = -1;
  record.after_vector = EV_VECTOR_COUNT;
  return record;
}

ev_work work_of(uint32_t tid, uint64_t function, uint64_t from, uint64_t to) {
  auto record = make_record<ev_work>(EV_WORK, kCpu, kStart + from, kStart + to);
  record.tid = tid;
  record.function = function;
  return record;
}

ev_self syscall_of(int number, uint64_t from, uint64_t to) {
  auto record = make_record<ev_self>(EV_SELF, kCpu, kStart + from, kStart + to);
  record.tid = kTid;
  record.type = EV_SELF_SYSCALL;
  record.syscall_nr = number;
  record.count = 1;
  record.sum_ns = to - from;
  return record;
}

ev_self fault_of(ev_self_type type, uint64_t from, uint64_t to) {
  ev_self record = syscall_of(-1, from, to);
  record.type = type;
  record.address = 0x7fff0000;
  return record;
}

ev_verb verb_of(uint32_t verb, uint64_t from, uint64_t to, uint64_t depth) {
  auto record = make_record<ev_verb>(EV_VERB, kCpu, kStart + from, kStart + to);
  record.tid = kTid;
  record.verb = verb;
  record.depth = depth;
  return record;
}

ev_sample sample_of(uint32_t mode, uint64_t at) {
  auto record = make_record<ev_sample>(EV_SAMPLE, kCpu, kStart + at, kStart + at);
  record.tid = kTid;
  record.mode = mode;
  record.on_cpu = 1;
  record.user_ip = 0x5000;
  return record;
}

ev_stack stack_of(ev_stack_role role, uint64_t record_start, std::initializer_list<uint64_t> ips) {
  auto record = make_record<ev_stack>(EV_STACK, kCpu, kStart + record_start, kStart + record_start);
  record.tid = kTid;
  record.role = role;
  for (const uint64_t ip : ips) {
    record.ip[record.frames++] = ip;
  }
  return record;
}

ev_signal signal_of(int signal, uint64_t at) {
  auto record = make_record<ev_signal>(EV_SIGNAL, 0, kStart + at, kStart + at);
  record.tid = kPid;
  record.pid = kPid;
  record.signal = signal;
  record.sender_tid = 900;
  record.sender_pid = 900;
  set_text(record.sender_comm, "bash");
  return record;
}

std::vector<std::byte> trace_event_of(std::string_view json, uint64_t at, uint32_t cpu) {
  auto record = make_record<ev_trace_event>(EV_TRACE_EVENT, cpu, kStart + at, kStart + at);
  const size_t padded = (json.size() + 7) / 8 * 8;
  record.header.bytes = static_cast<uint16_t>(sizeof(record) + padded);
  record.tid = 77;
  record.pid = 70;
  set_text(record.comm, "kworker/0:1");
  record.text_bytes = static_cast<uint32_t>(json.size());
  std::vector<std::byte> bytes(sizeof(record) + padded);
  std::memcpy(bytes.data(), &record, sizeof(record));
  std::memcpy(bytes.data() + sizeof(record), json.data(), json.size());
  return bytes;
}

ev_migrate migrate_of(uint32_t from_cpu, uint32_t to_cpu, uint64_t at) {
  auto record = make_record<ev_migrate>(EV_MIGRATE, to_cpu, kStart + at, kStart + at);
  record.tid = kTid;
  record.from_cpu = from_cpu;
  record.to_cpu = to_cpu;
  return record;
}

EvidenceStream& EvidenceStream::add_bytes(std::vector<std::byte> record) {
  records_.push_back(std::move(record));
  return *this;
}

EvidenceStream& EvidenceStream::name(ev_name_kind kind, uint64_t key, std::string_view text) {
  const size_t padded = (text.size() + 7) / 8 * 8;
  auto name = make_record<ev_name>(EV_NAME, 0, 0, 0);
  name.header.bytes = static_cast<uint16_t>(sizeof(name) + padded);
  name.name_kind = kind;
  name.text_bytes = static_cast<uint32_t>(text.size());
  name.key = key;
  std::vector<std::byte> record(sizeof(name) + padded);
  std::memcpy(record.data(), &name, sizeof(name));
  std::memcpy(record.data() + sizeof(name), text.data(), text.size());
  return add_bytes(std::move(record));
}

EvidenceStream& EvidenceStream::text(ev_kind kind, std::string_view json) {
  const size_t padded = (json.size() + 7) / 8 * 8;
  auto value = make_record<ev_text>(kind, 0, 0, 0);
  value.header.bytes = static_cast<uint16_t>(sizeof(value) + padded);
  value.text_bytes = static_cast<uint32_t>(json.size());
  std::vector<std::byte> record(sizeof(value) + padded);
  std::memcpy(record.data(), &value, sizeof(value));
  std::memcpy(record.data() + sizeof(value), json.data(), json.size());
  return add_bytes(std::move(record));
}

EvidenceStream& EvidenceStream::session(std::string_view kernel, std::string_view steal_read,
                                        std::string_view steal_clock) {
  return text(EV_SESSION,
              std::string(R"({"tool":{"pid":4242},"host":{"kernel":")") + std::string(kernel) +
                  R"(","steal_read":")" + std::string(steal_read) + R"(","steal_clock":")" +
                  std::string(steal_clock) +
                  R"("},"target":{"sites":[{"name":"poll_it","function_address":4096,)" +
                  R"("function_bytes":256}]}})");
}

std::vector<Gap> correlate(const EvidenceStream& stream, SessionFacts* facts) {
  Correlator correlator({.threshold_ns = 1'000'000});
  std::vector<Gap> gaps;
  for (const std::vector<std::byte>& record : stream.records()) {
    correlator.accept(record, gaps);
  }
  correlator.finish(gaps);
  if (facts != nullptr) {
    *facts = correlator.facts();
  }
  return gaps;
}

Gap only_gap(const EvidenceStream& stream) {
  const std::vector<Gap> gaps = correlate(stream);
  EXPECT_EQ(gaps.size(), 1u);
  if (gaps.size() != 1) {
    return {};
  }
  expect_exact(gaps[0]);
  return gaps[0];
}

void expect_exact(const Gap& gap) {
  uint64_t cursor_ns = 0;
  for (const Segment& segment : gap.segments) {
    EXPECT_EQ(segment.offset_ns, cursor_ns) << "sorted, disjoint, no hole";
    EXPECT_GT(segment.duration_ns, 0u);
    cursor_ns += segment.duration_ns;
  }
  EXPECT_EQ(cursor_ns, gap.duration_ns) << "the segments sum to the gap";
  EXPECT_LE(gap.segments.size(), 256u);
  uint64_t culprits_ns = 0;
  for (const Culprit& culprit : gap.culprits) {
    culprits_ns += culprit.total_ns;
    EXPECT_FALSE(culprit.name.empty());
  }
  EXPECT_EQ(culprits_ns, gap.duration_ns) << "so do the culprits";
  EXPECT_FALSE(gap.verdict.text.empty());
  EXPECT_GT(gap.verdict.share, 0);
  EXPECT_LE(gap.verdict.share, 1);
}

uint64_t ns_of(const Gap& gap, Cause cause) {
  uint64_t sum_ns = 0;
  for (const Segment& segment : gap.segments) {
    sum_ns += segment.cause == cause ? segment.duration_ns : 0;
  }
  return sum_ns;
}

Segment first_of(const Gap& gap, Cause cause) {
  for (const Segment& segment : gap.segments) {
    if (segment.cause == cause) {
      return segment;
    }
  }
  ADD_FAILURE() << "no segment of cause " << to_string(cause) << "; verdict: " << gap.verdict.text;
  return {};
}

bool same(const Gap& left, const Gap& right) {
  const auto same_segment = [](const Segment& a, const Segment& b) {
    return a.offset_ns == b.offset_ns && a.duration_ns == b.duration_ns && a.cause == b.cause &&
           a.detail == b.detail;
  };
  const auto same_culprit = [](const Culprit& a, const Culprit& b) {
    return a.cause == b.cause && a.name == b.name && a.total_ns == b.total_ns && a.count == b.count;
  };
  return left.id == right.id && left.kind == right.kind && left.tid == right.tid &&
         left.thread == right.thread && left.cpu == right.cpu && left.cq == right.cq &&
         left.start_mono_ns == right.start_mono_ns && left.duration_ns == right.duration_ns &&
         left.verdict.cause == right.verdict.cause && left.verdict.text == right.verdict.text &&
         left.verdict.share == right.verdict.share &&
         left.verdict.confidence == right.verdict.confidence &&
         left.verdict.detail == right.verdict.detail &&
         left.verdict.culprit_ns == right.verdict.culprit_ns &&
         std::equal(left.segments.begin(), left.segments.end(), right.segments.begin(),
                    right.segments.end(), same_segment) &&
         std::equal(left.culprits.begin(), left.culprits.end(), right.culprits.begin(),
                    right.culprits.end(), same_culprit) &&
         left.evidence.end_stack == right.evidence.end_stack &&
         left.evidence.lost_records == right.evidence.lost_records &&
         left.evidence.migrations.size() == right.evidence.migrations.size();
}

}  // namespace pollgap::test
