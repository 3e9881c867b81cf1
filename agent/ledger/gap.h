// SPDX-License-Identifier: Apache-2.0
// What the ledger produces: gaps, their segments and their verdicts. Passive data only.
//
// Every duration and offset is in nanoseconds; *_mono_ns are CLOCK_MONOTONIC. A gap's segments are
// sorted, disjoint, and their durations sum exactly to the gap's; what no evidence covers is a
// segment of cause `unexplained`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pollgap {

enum class GapKind { in_poll, between_polls, late_completion, unpolled_completion, stalled };

// The causes, in the order of the report's tables. The strings are part of the report's schema.
enum class Cause {
  preemption,
  throttled,
  stopped,
  blocked,
  hard_irq,
  soft_irq,
  nmi,
  self_kernel,
  control_verb,
  application,
  poll_function,
  stolen,
  late_completion,
  agent,
  unexplained,
};

// "preemption", "between_polls", ...: the strings of the report.
const char* to_string(Cause cause);
const char* to_string(GapKind kind);

// A task that had the CPU instead of the polling thread, or that woke or stopped something.
struct TaskRef {
  uint32_t tid = 0;
  uint32_t pid = 0;
  std::string comm;
  bool operator==(const TaskRef&) const = default;
};

struct Waker {
  TaskRef task;
  // "task", "softirq", "hard_irq": the context it was woken from. In the latter two the task is
  // only the one that was interrupted.
  std::string context;
  bool operator==(const Waker&) const = default;
};

struct Frame {
  uint64_t address = 0;
  std::string function;  // empty: not known
  std::string file;      // source file, empty: not known
  uint32_t line = 0;
  std::string module;  // ELF file, or "[kernel]"
  uint64_t module_offset = 0;
  bool operator==(const Frame&) const = default;
};

// What there is to say of a segment, by cause. Only the members that its cause uses are set; the
// report writes those that are (empty, 0 and nullopt are left out).
struct Detail {
  // preemption: the task that ran. stopped: who sent the signal. soft_irq: ksoftirqd.
  std::optional<TaskRef> task;
  std::string policy;              // "SCHED_OTHER", "SCHED_FIFO", ...
  std::optional<int> priority;     // kernel priority, 0..139
  std::optional<int> rt_priority;  // 1..99 for SCHED_FIFO and SCHED_RR
  std::string cgroup;              // path of the task (preemption) or of the throttled group
  std::optional<Waker> woken_by;   // preemption: who woke the task; blocked: who woke the sleeper
  std::string work_function;       // preemption by a kworker: where it spent most of the segment
  // throttled
  std::string throttle;  // "cfs_quota", "rt_runtime", "fair_server"
  uint64_t quota_ns = 0;
  uint64_t period_ns = 0;
  // stopped: "signal", "ptrace", "freezer". self_kernel: "syscall", "page_fault",
  // stolen: "hypervisor", "smi",
  // hard_irq: "device", "local_timer", "reschedule", "call_function", ... soft_irq: "TIMER", ...
  std::string kind;
  std::string signal;  // stopped: "SIGSTOP"
  // hard_irq, soft_irq
  std::optional<int> irq;
  std::string action;  // interrupt's action name
  std::string device;
  std::string vector;                // what the driver uses it for: "completion 3"
  std::string rdma_device;           // "mlx5_0": the RDMA adapter whose interrupt it is
  bool target_uses_adapter = false;  // that the target has open
  std::string affinity;              // CPU list
  std::string callback;              // function an IPI was to run
  std::optional<TaskRef> sender;     // of an IPI
  // blocked, self_kernel, control_verb
  std::string syscall;              // "nanosleep"
  std::string fault;                // "minor", "major"
  std::optional<uint64_t> address;  // fault address
  std::string verb;                 // "ibv_reg_mr"
  uint64_t bytes = 0;               // registered
  std::optional<int64_t> result;    // of the verb
  bool upper_bound = false;         // where it ended is a bound, not a measurement
  // application, poll_function, blocked: user stack, innermost first. blocked: kernel wait stack.
  std::vector<Frame> user_stack;
  std::vector<Frame> kernel_stack;
  uint64_t samples = 0;  // application, poll_function: samples that say so
  // poll_function
  uint64_t error_completions = 0;
  // late_completion
  std::string reason;  // "undetermined", "cqe_write"
  uint32_t outstanding = 0;
  uint64_t polls = 0;
  // unexplained, stolen: why nothing better can be said, or the evidence
  std::string note;
  // how many events the segment stands for; > 1: their order inside the segment is not kept
  uint64_t count = 1;
  bool operator==(const Detail&) const = default;
};

struct Segment {
  uint64_t offset_ns = 0;
  uint64_t duration_ns = 0;
  Cause cause = Cause::unexplained;
  Detail detail;
};

enum class Confidence { low, medium, high };
const char* to_string(Confidence confidence);

// The ledger's answer: the cause with the largest total in the gap.
struct Verdict {
  Cause cause = Cause::unexplained;
  double share = 0;  // of the gap, 0..1
  Confidence confidence = Confidence::low;
  Detail detail;  // of the largest culprit of that cause; durations summed over its segments
  uint64_t culprit_ns = 0;  // of the gap's time, that culprit's
  // One line for a person: "preempted 4.9 ms by stress-ng (pid 812, SCHED_FIFO 50), woken by ..."
  std::string text;
};

// A task's, interrupt's, ... total inside one gap: the culprits by name, largest first.
struct Culprit {
  Cause cause = Cause::unexplained;
  std::string name;  // "stress-ng/812", "irq 36 virtio1-req.0", "softirq HRTIMER", "nanosleep"
  uint64_t total_ns = 0;
  uint64_t count = 0;
};

// Coincident evidence: true of the gap's window, but not a cause by itself.
struct ErrorCompletions {
  uint64_t errors = 0;
  uint64_t flushes = 0;
  uint32_t first_status = 0;  // enum ibv_wc_status of the first that is not a flush
  std::string first_status_name;
  uint32_t first_qp_num = 0;
  uint32_t first_vendor_err = 0;
};

// When the adapter made the completion that ended the gap, by its timestamp: between made_after_ns
// and made_until_ns. It lay in memory after written_after_ns, by written_until_ns. All
// CLOCK_MONOTONIC.
struct CompletionStamp {
  uint64_t ticks = 0;  // the timestamp
  uint64_t made_after_ns = 0;
  uint64_t made_until_ns = 0;
  uint64_t written_after_ns = 0;
  uint64_t written_until_ns = 0;
};

struct Migration {
  uint64_t offset_ns = 0;
  uint32_t from_cpu = 0;
  uint32_t to_cpu = 0;
};

// A tracepoint that fired somewhere on the machine: firmware, a driver, connection management.
struct TraceEvidence {
  uint64_t offset_ns = 0;
  uint32_t cpu = 0;
  std::string event;                                        // "mlx5:mlx5_cmd"
  TaskRef task;                                             // in whose context
  std::string text;                                         // as the kernel words it
  std::vector<std::pair<std::string, std::string>> fields;  // name, value
  bool truncated = false;                                   // its end was not recorded
};

struct GapEvidence {
  std::vector<Frame> end_stack;  // user stack at the gap's end, innermost first
  uint32_t completions = 0;      // returned by the poll that ended it
  uint32_t outstanding = 0;      // signaled sends outstanding when it ended
  uint64_t polls = 0;            // inside it
  std::optional<uint64_t> steal_ns;
  std::optional<uint64_t> smis;  // that its CPU counted
  uint64_t smis_before_ns = 0;   // so long before the gap the first of them may have come
  std::optional<ErrorCompletions> errors;
  std::optional<CompletionStamp> stamp;
  std::vector<Migration> migrations;
  std::vector<TraceEvidence> trace_events;  // the first of them
  uint64_t trace_events_left_out = 0;       // the others
  uint64_t lost_records = 0;                // lost while it lasted
};

struct Gap {
  uint64_t id = 0;  // from 1, in the order they ended
  GapKind kind = GapKind::between_polls;
  uint32_t tid = 0;
  std::string thread;  // comm
  uint32_t cpu = 0;    // at its end
  uint64_t cq = 0;     // address of the ibv_cq
  uint64_t start_mono_ns = 0;
  uint64_t duration_ns = 0;
  uint64_t edge_uncertainty_ns = 0;  // either edge may lie so much earlier or later
  bool open = false;  // the thread had not polled again when the session or the thread ended
  bool waited_for_event = false;
  Verdict verdict;
  std::vector<Segment> segments;
  std::vector<Culprit> culprits;
  GapEvidence evidence;
};

}  // namespace pollgap
