// SPDX-License-Identifier: Apache-2.0
// Hand-built evidence streams for the tests of the ledger.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/ledger/correlator.h"
#include "agent/ledger/gap.h"
#include "bpf/evidence.h"

namespace pollgap::test {

constexpr uint64_t operator""_us(unsigned long long value) { return value * 1000; }
constexpr uint64_t operator""_ms(unsigned long long value) { return value * 1'000'000; }

// The thread under test, where it runs, and when its gap starts.
constexpr uint32_t kPid = 800;
constexpr uint32_t kTid = 801;
constexpr uint32_t kCpu = 1;
constexpr uint64_t kStart = 1'000'000'000;
constexpr uint64_t kCq = 0x7f0000001000;
constexpr uint32_t kAgentPid = 4242;

template <typename T>
T make_record(ev_kind kind, uint32_t cpu, uint64_t start_ns, uint64_t end_ns) {
  T record;
  std::memset(&record, 0, sizeof(record));
  record.header = {static_cast<uint16_t>(kind), static_cast<uint16_t>(sizeof(T)), cpu, start_ns,
                   end_ns};
  return record;
}

template <size_t N>
void set_text(char (&to)[N], std::string_view text) {
  std::memset(to, 0, N);
  std::memcpy(to, text.data(), text.size() < N ? text.size() : N - 1);
}

// Records of the thread under test and its CPU. Times are offsets from kStart.
ev_gap gap_of(ev_gap_kind kind, uint64_t duration_ns);
ev_run run_of(std::string_view comm, uint32_t tid, uint64_t from, uint64_t to, uint32_t cpu = kCpu);
ev_run idle_run(uint64_t from, uint64_t to);
ev_off_cpu preempted(uint64_t from, uint64_t to);
ev_off_cpu asleep(uint64_t from, uint64_t wakeup, uint64_t to);
ev_irq device_irq(int irq, std::string_view action, uint64_t from, uint64_t to);
ev_irq vector_irq(ev_vector vector, uint64_t from, uint64_t to);
ev_softirq softirq_of(uint32_t vector, uint64_t from, uint64_t to);
ev_work work_of(uint32_t tid, uint64_t function, uint64_t from, uint64_t to);
ev_self syscall_of(int number, uint64_t from, uint64_t to);
ev_self fault_of(ev_self_type type, uint64_t from, uint64_t to);
ev_verb verb_of(uint32_t verb, uint64_t from, uint64_t to, uint64_t depth = 0);
ev_sample sample_of(uint32_t mode, uint64_t at);
ev_stack stack_of(ev_stack_role role, uint64_t record_start, std::initializer_list<uint64_t> ips);
ev_signal signal_of(int signal, uint64_t at);
// By kworker/0:1, tid 77 of pid 70.
std::vector<std::byte> trace_event_of(std::string_view json, uint64_t at, uint32_t cpu = 0);
ev_migrate migrate_of(uint32_t from_cpu, uint32_t to_cpu, uint64_t at);

class EvidenceStream {
 public:
  template <typename T>
  EvidenceStream& add(const T& record) {
    const auto bytes = std::as_bytes(std::span(&record, 1));
    records_.emplace_back(bytes.begin(), bytes.end());
    return *this;
  }
  EvidenceStream& add_bytes(std::vector<std::byte> record);
  EvidenceStream& name(ev_name_kind kind, uint64_t key, std::string_view text);
  EvidenceStream& text(ev_kind kind, std::string_view json);
  // A session whose agent is kAgentPid on the given kernel, with one poll site at 0x1000..0x1100.
  EvidenceStream& session(std::string_view kernel = "6.1.0", std::string_view steal_read = "none",
                          std::string_view steal_clock = "silent");

  const std::vector<std::vector<std::byte>>& records() const { return records_; }

 private:
  std::vector<std::vector<std::byte>> records_;
};

std::vector<Gap> correlate(const EvidenceStream& stream, SessionFacts* facts = nullptr);

// The stream's only gap, checked by expect_exact().
Gap only_gap(const EvidenceStream& stream);

// Fails the test unless the segments are sorted, disjoint, without holes, and sum to the duration.
void expect_exact(const Gap& gap);

uint64_t ns_of(const Gap& gap, Cause cause);
// The first segment of the cause; fails the test and returns an empty one if there is none.
Segment first_of(const Gap& gap, Cause cause);
bool same(const Gap& left, const Gap& right);

}  // namespace pollgap::test
