// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/open_gaps.h"

#include <bpf/bpf.h>

#include <set>

#include "agent/capture/map_entries.h"
#include "agent/capture/poll_states.h"
#include "agent/capture/silence_sampler.h"
#include "pollgap_bpf.skel.h"

// The maps' types, as the BPF object describes them to its skeleton's user.
#include "bpf/map_types.h"

namespace pollgap {
namespace {

template <typename T>
std::span<const std::byte> bytes_of(const T& record) {
  return std::as_bytes(std::span<const T, 1>(&record, 1));
}

template <typename T>
ev_header header_of(ev_kind kind, uint32_t cpu, uint64_t start_ns, uint64_t end_ns) {
  return {static_cast<uint16_t>(kind), static_cast<uint16_t>(sizeof(T)), cpu, start_ns, end_ns};
}

void write_off_cpu(const thread_state& thread, uint64_t now, const RecordSink& sink) {
  ev_off_cpu record{};
  record.header = header_of<ev_off_cpu>(EV_OFF_CPU, thread.cpu, thread.out_ns, now);
  record.tid = thread.tid;
  record.out_cpu = thread.out_cpu;
  record.state = thread.out_state;
  record.flags = thread.out_flags | EV_OFF_OPEN;
  record.syscall_nr = thread.syscall_ns != 0 ? thread.syscall_nr : -1;
  record.priority = thread.out_priority;
  record.policy = thread.out_policy;
  record.fault_address = thread.fault_ns != 0 ? thread.fault_address : 0;
  record.user_ip = thread.out_user_ip;
  record.wakeup_ns = thread.wakeup_ns;
  record.waker = thread.waker;
  record.throttle_cgroup_id = thread.throttle_cgroup_id;
  record.quota_ns = thread.quota_ns;
  record.period_ns = thread.period_ns;
  sink(bytes_of(record));
}

void write_system_call(const thread_state& thread, uint64_t now, const RecordSink& sink) {
  ev_self record{};
  record.header = header_of<ev_self>(EV_SELF, thread.cpu, thread.syscall_ns, now);
  record.tid = thread.tid;
  record.type = EV_SELF_SYSCALL;
  record.syscall_nr = thread.syscall_nr;
  record.count = 1;
  record.sum_ns = now - thread.syscall_ns;
  record.user_ip = thread.syscall_ip;
  record.flags = EV_SELF_BOUND;
  sink(bytes_of(record));
}

// What the thread is in since when, if that has not ended.
void write_open_entries(KernelPrograms& programs, RecordQueue& records, const thread_state& thread,
                        uint64_t now, const RecordSink& sink) {
  if (thread.out_ns != 0) {
    sample_cpu(programs, thread.cpu, true);
    records.drain(sink);
    write_off_cpu(thread, now, sink);
  }
  if (thread.syscall_ns != 0) write_system_call(thread, now, sink);
}

void write_gap(const thread_state& thread, const poll_key& key, const poll_state& poll,
               uint64_t now, const RecordSink& sink) {
  ev_gap record{};
  const bool in_poll = thread.poll_enter_ns > poll.exit_ns && thread.poll_cq == key.cq;
  record.header =
      header_of<ev_gap>(EV_GAP, thread.cpu, in_poll ? thread.poll_enter_ns : poll.exit_ns, now);
  record.tid = thread.tid;
  record.gap_kind = in_poll ? EV_GAP_IN_POLL : EV_GAP_BETWEEN_POLLS;
  record.flags = EV_GAP_OPEN;
  record.cq = key.cq;
  record.site = poll.site;
  record.start_cpu = poll.exit_cpu;
  sink(bytes_of(record));
}

}  // namespace

void write_poll_sums(KernelPrograms& programs, const RecordSink& sink) {
  const auto& maps = programs.object().maps;
  for_each_poll_state(programs, [&](const poll_key& key, const poll_state& poll, uint64_t) {
    ev_polls record{};
    cq_state cq{};
    bpf_map_lookup_elem(bpf_map__fd(maps.cqs), &key.cq, &cq);
    record.header = header_of<ev_polls>(EV_POLLS, poll.exit_cpu, poll.first_ns, poll.last_ns);
    record.tid = key.tid;
    record.site = poll.site;
    record.cq = key.cq;
    record.polls = poll.polls;
    record.empty_polls = poll.empty_polls;
    record.completions = poll.completions;
    record.error_completions = poll.error_completions;
    record.idle_ns = poll.idle_ns;
    record.posted_sends = cq.posted_sends;
    record.posted_signaled = cq.posted_signaled;
    record.interrupt_to_wakeup = poll.interrupt_to_wakeup;
    record.wakeup_to_run = poll.wakeup_to_run;
    record.run_to_poll = poll.run_to_poll;
    sink(bytes_of(record));
  });
}

void write_open_gaps(KernelPrograms& programs, RecordQueue& records, const pg_config& config,
                     const RecordSink& sink) {
  const auto& maps = programs.object().maps;
  std::set<uint32_t> told;
  for_each_poll_state(programs, [&](const poll_key& key, const poll_state& poll, uint64_t now) {
    thread_state thread{};
    if (bpf_map_lookup_elem(bpf_map__fd(maps.threads), &key.tid, &thread) != 0) return;
    cq_state cq{};
    bpf_map_lookup_elem(bpf_map__fd(maps.cqs), &key.cq, &cq);
    // With nothing outstanding on this CQ the silence is that of the one polled last.
    if (thread.last_poll_cq != key.cq && cq.outstanding <= 0) return;
    const bool waits_for_event = thread.event_enter_ns > poll.exit_ns;
    const uint64_t silent_since =
        thread.poll_enter_ns > poll.exit_ns ? thread.poll_enter_ns : poll.exit_ns;
    if (waits_for_event || poll.exit_ns == 0 || now < silent_since + config.threshold_ns) return;
    if (told.insert(key.tid).second) write_open_entries(programs, records, thread, now, sink);
    write_gap(thread, key, poll, now, sink);
  });
}

void write_open_entries(KernelPrograms& programs, RecordQueue& records, const RecordSink& sink) {
  for_each_entry<uint32_t, thread_state>(programs.object().maps.threads,
                                         [&](uint32_t, const thread_state& thread, uint64_t now) {
                                           write_open_entries(programs, records, thread, now, sink);
                                         });
}

}  // namespace pollgap
