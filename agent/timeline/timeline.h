// SPDX-License-Identifier: Apache-2.0
// What happened lately: on each watched CPU (which task ran, interrupts, softirqs, work items) and
// to each target thread (off the CPU, in the kernel, in a control verb, sampled, moved).
//
// Built from the evidence stream record by record, with bounded memory. Knows facts only: what
// they mean for a gap is the ledger's business. Pointers into it hold until the next accept().
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "agent/timeline/history.h"
#include "bpf/evidence.h"

namespace pollgap {

// Where a record's stacks are: sequence numbers in its thread's stack history; 0: none came.
struct StackIds {
  uint64_t user = 0;
  uint64_t kernel = 0;
};

struct OffCpu : ev_off_cpu {
  StackIds stacks;
};
struct SelfKernel : ev_self {
  StackIds stacks;
};
struct Sample : ev_sample {
  StackIds stacks;
};
struct GapRecord : ev_gap {
  StackIds stacks;
};

struct Steal : ev_steal {
  uint64_t told_ns = 0;  // of it, what gaps have been told is theirs
};

// A tracepoint that fired somewhere on the machine.
struct TraceEvent {
  ev_header header;
  uint32_t tid = 0;  // in whose context
  uint32_t pid = 0;
  char comm[EV_COMM_BYTES] = {};
  std::string json;  // ev_trace_event's, as it came
};

struct CpuTimeline {
  History<ev_run> runs;
  History<ev_irq> irqs;
  History<ev_softirq> softirqs;
  History<ev_work> works;
  History<Steal> steals;
  History<ev_smi> smis;
};

// The last stacks of one thread, found again by sequence number.
class StackHistory {
 public:
  // Keeps the stack for the record of the same thread and start that follows it.
  void push(const ev_stack& stack);
  // Stacks announced for a record that started at start_ns; they are handed out once.
  StackIds claim(uint64_t start_ns);
  // The stack, or nullptr if it has been overwritten meanwhile.
  const ev_stack* find(uint64_t id) const;

 private:
  static constexpr size_t kKept = 1 << 12;
  std::vector<ev_stack> slots_;
  uint64_t last_id_ = 0;
  StackIds waiting_;
  uint64_t waiting_for_start_ns_ = 0;
};

struct ThreadTimeline {
  History<OffCpu> off_cpu;
  History<SelfKernel> self;
  History<ev_verb> verbs;
  History<Sample> samples;
  History<ev_migrate> migrations;
  History<ev_wc_error> wc_errors;
  History<ev_stamp> stamps;
  StackHistory stacks;
  uint64_t last_ns = 0;  // latest end of any of its records
};

class Timeline {
 public:
  // CPU numbers at or above this are malformed: the kernel's largest NR_CPUS is 8192.
  static constexpr uint32_t kMaxCpus = 8192;

  // Takes in one record of a kind that speaks of CPUs and threads, or of what the agent did or
  // lost. False: its size or content is wrong, or its kind is none of these.
  bool accept(std::span<const std::byte> record);

  // nullptr: no record spoke of it.
  const CpuTimeline* cpu(uint32_t cpu) const;
  const ThreadTimeline* thread(uint32_t tid) const;

  // A gap in [start_ns, end_ns] has been told that so much was stolen from it.
  void tell_steal(uint32_t cpu, uint64_t start_ns, uint64_t end_ns, uint64_t stolen_ns);

  // A gap's record together with the stacks that were announced for it.
  bool read_gap(std::span<const std::byte> record, GapRecord& gap);

  const History<ev_signal>& signals() const { return signals_; }
  const History<ev_agent>& agent_windows() const { return agent_windows_; }
  const History<ev_lost>& losses() const { return losses_; }
  const History<ev_standstill>& standstills() const { return standstills_; }
  const History<TraceEvent>& trace_events() const { return trace_events_; }

  // Records dropped because there were too many, or came too late, though a coming gap could
  // have needed them.
  uint64_t evicted() const { return evicted_; }

 private:
  ThreadTimeline& thread_at(uint32_t tid, uint64_t end_ns);
  void drop_idle_threads(uint64_t now_ns);

  template <typename T>
  bool keep_on_cpu(std::span<const std::byte> record, History<T> CpuTimeline::*history);
  template <typename T>
  bool keep_of_thread(std::span<const std::byte> record, History<T> ThreadTimeline::*history);
  template <typename T, typename Stored>
  bool keep_with_stacks(std::span<const std::byte> record,
                        History<Stored> ThreadTimeline::*history);
  template <typename T>
  bool keep(std::span<const std::byte> record, History<T>& history);
  bool keep_steal(std::span<const std::byte> record);
  bool keep_stack(std::span<const std::byte> record);
  bool keep_trace_event(std::span<const std::byte> record);

  std::unordered_map<uint32_t, CpuTimeline> cpus_;
  std::unordered_map<uint32_t, ThreadTimeline> threads_;
  History<ev_signal> signals_;
  History<ev_agent> agent_windows_;
  History<ev_lost> losses_;
  History<ev_standstill> standstills_;
  History<TraceEvent> trace_events_;
  uint64_t evicted_ = 0;
  uint64_t new_threads_ = 0;
};

// The text that follows a fixed part of `fixed_bytes` in a record; false: the sizes do not fit.
bool trailing_text(std::span<const std::byte> record, size_t fixed_bytes, uint32_t text_bytes,
                   std::string_view& text);

// Reads a record of fixed size. False: the span or the record's own length is not T's.
// An end before the start (clocks of two CPUs) becomes an interval of no length.
template <typename T>
bool read_record(std::span<const std::byte> record, T& out) {
  if (record.size() != sizeof(T)) {
    return false;
  }
  std::memcpy(&out, record.data(), sizeof(T));
  if (out.header.bytes != sizeof(T)) {
    return false;
  }
  out.header.end_ns = std::max(out.header.end_ns, out.header.start_ns);
  return true;
}

}  // namespace pollgap
