// SPDX-License-Identifier: Apache-2.0
#include "agent/timeline/timeline.h"

#include <cstddef>

namespace pollgap {

bool trailing_text(std::span<const std::byte> record, size_t fixed_bytes, uint32_t text_bytes,
                   std::string_view& text) {
  const size_t padded = (static_cast<size_t>(text_bytes) + 7) / 8 * 8;
  ev_header header;
  if (record.size() < fixed_bytes || record.size() - fixed_bytes != padded) {
    return false;
  }
  std::memcpy(&header, record.data(), sizeof(header));
  if (header.bytes != record.size()) {
    return false;
  }
  text = {reinterpret_cast<const char*>(record.data()) + fixed_bytes, text_bytes};
  return true;
}

void StackHistory::push(const ev_stack& stack) {
  if (slots_.size() < kKept) {
    slots_.push_back(stack);
  } else {
    slots_[last_id_ % kKept] = stack;
  }
  ++last_id_;
  if (stack.header.start_ns != waiting_for_start_ns_) {
    waiting_ = {};
    waiting_for_start_ns_ = stack.header.start_ns;
  }
  (stack.role == EV_STACK_KERNEL ? waiting_.kernel : waiting_.user) = last_id_;
}

StackIds StackHistory::claim(uint64_t start_ns) {
  if (start_ns != waiting_for_start_ns_) {
    return {};
  }
  const StackIds claimed = waiting_;
  waiting_ = {};
  return claimed;
}

const ev_stack* StackHistory::find(uint64_t id) const {
  if (id == 0 || id > last_id_ || last_id_ - id >= kKept) {
    return nullptr;
  }
  return &slots_[(id - 1) % kKept];
}

ThreadTimeline& Timeline::thread_at(uint32_t tid, uint64_t end_ns) {
  const auto [place, is_new] = threads_.try_emplace(tid);
  // A process that makes short-lived threads for days must not make the agent grow.
  constexpr uint64_t kNewThreadsBetweenSweeps = 1024;
  if (is_new && ++new_threads_ % kNewThreadsBetweenSweeps == 0) {
    place->second.last_ns = end_ns;
    drop_idle_threads(end_ns);
  }
  ThreadTimeline& thread = place->second;
  thread.last_ns = std::max(thread.last_ns, end_ns);
  return thread;
}

void Timeline::drop_idle_threads(uint64_t now_ns) {
  std::erase_if(threads_, [now_ns](const auto& entry) {
    const uint64_t last_ns = entry.second.last_ns;
    return now_ns > last_ns && now_ns - last_ns > HistoryLimits::kHorizonNs;
  });
}

template <typename T>
bool Timeline::keep(std::span<const std::byte> record, History<T>& history) {
  T value;
  if (!read_record(record, value)) {
    return false;
  }
  evicted_ += history.push(value);
  return true;
}

template <typename T>
bool Timeline::keep_on_cpu(std::span<const std::byte> record, History<T> CpuTimeline::*history) {
  T value;
  if (!read_record(record, value) || value.header.cpu >= kMaxCpus) {
    return false;
  }
  evicted_ += (cpus_[value.header.cpu].*history).push(value);
  return true;
}

template <typename T>
bool Timeline::keep_of_thread(std::span<const std::byte> record,
                              History<T> ThreadTimeline::*history) {
  T value;
  if (!read_record(record, value)) {
    return false;
  }
  evicted_ += (thread_at(value.tid, value.header.end_ns).*history).push(value);
  return true;
}

template <typename T, typename Stored>
bool Timeline::keep_with_stacks(std::span<const std::byte> record,
                                History<Stored> ThreadTimeline::*history) {
  T value;
  if (!read_record(record, value)) {
    return false;
  }
  ThreadTimeline& thread = thread_at(value.tid, value.header.end_ns);
  evicted_ += (thread.*history).push(Stored{value, thread.stacks.claim(value.header.start_ns)});
  return true;
}

bool Timeline::keep_steal(std::span<const std::byte> record) {
  ev_steal value;
  if (!read_record(record, value) || value.header.cpu >= kMaxCpus) {
    return false;
  }
  evicted_ += cpus_[value.header.cpu].steals.push(Steal{value});
  return true;
}

void Timeline::tell_steal(uint32_t cpu, uint64_t start_ns, uint64_t end_ns, uint64_t stolen_ns) {
  const auto found = cpus_.find(cpu);
  if (found == cpus_.end()) {
    return;
  }
  found->second.steals.for_each_overlapping(start_ns, end_ns, [&stolen_ns](Steal& steal) {
    const uint64_t told_ns = std::min<uint64_t>(stolen_ns, steal.steal_ns - steal.told_ns);
    steal.told_ns += told_ns;
    stolen_ns -= told_ns;
  });
}

bool Timeline::keep_stack(std::span<const std::byte> record) {
  ev_stack stack;
  if (!read_record(record, stack) || stack.frames > EV_STACK_FRAMES ||
      stack.role > EV_STACK_KERNEL) {
    return false;
  }
  thread_at(stack.tid, stack.header.end_ns).stacks.push(stack);
  return true;
}

bool Timeline::keep_trace_event(std::span<const std::byte> record) {
  ev_trace_event value;
  std::string_view json;
  if (record.size() < sizeof(value)) {
    return false;
  }
  std::memcpy(&value, record.data(), sizeof(value));
  if (!trailing_text(record, sizeof(value), value.text_bytes, json)) {
    return false;
  }
  TraceEvent event{.header = value.header,
                   .tid = value.tid,
                   .pid = value.pid,
                   .comm = {},
                   .json = std::string(json)};
  event.header.end_ns = std::max(event.header.end_ns, event.header.start_ns);
  std::memcpy(event.comm, value.comm, sizeof(event.comm));
  evicted_ += trace_events_.push(event);
  return true;
}

bool Timeline::read_gap(std::span<const std::byte> record, GapRecord& gap) {
  ev_gap value;
  if (!read_record(record, value) || value.gap_kind > EV_GAP_STALLED) {
    return false;
  }
  ThreadTimeline& thread = thread_at(value.tid, value.header.end_ns);
  gap = GapRecord{value, thread.stacks.claim(value.header.start_ns)};
  return true;
}

bool Timeline::accept(std::span<const std::byte> record) {
  uint16_t kind = 0;
  if (record.size() < sizeof(ev_header)) {
    return false;
  }
  std::memcpy(&kind, record.data() + offsetof(ev_header, kind), sizeof(kind));
  switch (kind) {
    case EV_RUN:
      return keep_on_cpu(record, &CpuTimeline::runs);
    case EV_IRQ:
      return keep_on_cpu(record, &CpuTimeline::irqs);
    case EV_SOFTIRQ:
      return keep_on_cpu(record, &CpuTimeline::softirqs);
    case EV_WORK:
      return keep_on_cpu(record, &CpuTimeline::works);
    case EV_STEAL:
      return keep_steal(record);
    case EV_SMI:
      return keep_on_cpu(record, &CpuTimeline::smis);
    case EV_STANDSTILL:
      return keep(record, standstills_);
    case EV_OFF_CPU:
      return keep_with_stacks<ev_off_cpu>(record, &ThreadTimeline::off_cpu);
    case EV_SELF:
      return keep_with_stacks<ev_self>(record, &ThreadTimeline::self);
    case EV_SAMPLE:
      return keep_with_stacks<ev_sample>(record, &ThreadTimeline::samples);
    case EV_VERB:
      return keep_of_thread(record, &ThreadTimeline::verbs);
    case EV_MIGRATE:
      return keep_of_thread(record, &ThreadTimeline::migrations);
    case EV_WC_ERROR:
      return keep_of_thread(record, &ThreadTimeline::wc_errors);
    case EV_STAMP:
      return keep_of_thread(record, &ThreadTimeline::stamps);
    case EV_STACK:
      return keep_stack(record);
    case EV_SIGNAL:
      return keep(record, signals_);
    case EV_AGENT:
      return keep(record, agent_windows_);
    case EV_LOST:
      return keep(record, losses_);
    case EV_TRACE_EVENT:
      return keep_trace_event(record);
    default:
      return false;
  }
}

const CpuTimeline* Timeline::cpu(uint32_t cpu) const {
  const auto found = cpus_.find(cpu);
  return found == cpus_.end() ? nullptr : &found->second;
}

const ThreadTimeline* Timeline::thread(uint32_t tid) const {
  const auto found = threads_.find(tid);
  return found == threads_.end() ? nullptr : &found->second;
}

}  // namespace pollgap
