// SPDX-License-Identifier: Apache-2.0
// How many records a second one core can correlate, and that memory stays flat while it does.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <cstring>
#include <vector>

#include "agent/ledger/correlator.h"

namespace pollgap {
namespace {

constexpr uint32_t kTid = 801;
constexpr uint32_t kCpus = 4;

template <typename T>
T record_of(ev_kind kind, uint32_t cpu, uint64_t start_ns, uint64_t end_ns) {
  T record;
  std::memset(&record, 0, sizeof(record));
  record.header = {static_cast<uint16_t>(kind), static_cast<uint16_t>(sizeof(T)), cpu, start_ns,
                   end_ns};
  return record;
}

// A polling thread on each of four busy CPUs: ticks, softirqs, preemptions, system calls, and a gap
// in every 100 turns. Times go on from turn to turn.
class BusyMachine {
 public:
  size_t turn(Correlator& correlator, std::vector<Gap>& gaps) {
    records_ = 0;
    const uint32_t cpu = static_cast<uint32_t>(turn_ % kCpus);
    const uint32_t tid = kTid + cpu;
    now_ns_ += 100'000;
    auto irq = record_of<ev_irq>(EV_IRQ, cpu, now_ns_ - 90'000, now_ns_ - 85'000);
    irq.vector = EV_VECTOR_LOCAL_TIMER;
    give(correlator, gaps, irq);
    give(correlator, gaps,
         record_of<ev_softirq>(EV_SOFTIRQ, cpu, now_ns_ - 84'000, now_ns_ - 80'000));
    auto run = record_of<ev_run>(EV_RUN, cpu, now_ns_ - 70'000, now_ns_ - 50'000);
    run.task.tid = 17 + static_cast<uint32_t>(turn_ % 5);
    run.task.priority = 120;
    give(correlator, gaps, run);
    auto off = record_of<ev_off_cpu>(EV_OFF_CPU, cpu, now_ns_ - 70'000, now_ns_ - 50'000);
    off.tid = tid;
    off.out_cpu = cpu;
    off.flags = EV_OFF_PREEMPTED;
    give(correlator, gaps, off);
    auto self = record_of<ev_self>(EV_SELF, cpu, now_ns_ - 40'000, now_ns_ - 30'000);
    self.tid = tid;
    self.count = 1;
    self.sum_ns = 10'000;
    give(correlator, gaps, self);
    auto sample = record_of<ev_sample>(EV_SAMPLE, cpu, now_ns_ - 20'000, now_ns_ - 20'000);
    sample.tid = tid;
    sample.mode = 1;
    sample.on_cpu = 1;
    give(correlator, gaps, sample);
    if (++turn_ % 100 == 0) {
      auto gap = record_of<ev_gap>(EV_GAP, cpu, now_ns_ - 2'000'000, now_ns_);
      gap.tid = tid;
      gap.start_cpu = cpu;
      gap.gap_kind = EV_GAP_BETWEEN_POLLS;
      give(correlator, gaps, gap);
      gaps.clear();
    }
    return records_;
  }

 private:
  template <typename T>
  void give(Correlator& correlator, std::vector<Gap>& gaps, const T& record) {
    correlator.accept(std::as_bytes(std::span(&record, 1)), gaps);
    ++records_;
  }

  uint64_t now_ns_ = 1'000'000'000;
  uint64_t turn_ = 0;
  size_t records_ = 0;
};

void BM_Correlate(benchmark::State& state) {
  Correlator correlator({});
  BusyMachine machine;
  std::vector<Gap> gaps;
  int64_t records = 0;
  for (auto _ : state) {  // NOLINT(clang-analyzer-deadcode.DeadStores)
    records += static_cast<int64_t>(machine.turn(correlator, gaps));
  }
  state.SetItemsProcessed(records);
}
BENCHMARK(BM_Correlate);

// A gap with as many events in it as its histories can hold.
void BM_LargestGap(benchmark::State& state) {
  const auto events = static_cast<uint64_t>(state.range(0));
  Correlator correlator({});
  std::vector<Gap> gaps;
  for (uint64_t i = 0; i < events; ++i) {
    auto irq = record_of<ev_irq>(EV_IRQ, 0, i * 10'000, i * 10'000 + 5'000);
    correlator.accept(std::as_bytes(std::span(&irq, 1)), gaps);
    auto run = record_of<ev_run>(EV_RUN, 0, i * 10'000, i * 10'000 + 10'000);
    run.task.tid = 17 + static_cast<uint32_t>(i % 50);
    correlator.accept(std::as_bytes(std::span(&run, 1)), gaps);
  }
  auto off = record_of<ev_off_cpu>(EV_OFF_CPU, 0, 1, events * 10'000);
  off.tid = kTid;
  off.flags = EV_OFF_PREEMPTED;
  correlator.accept(std::as_bytes(std::span(&off, 1)), gaps);
  auto gap = record_of<ev_gap>(EV_GAP, 0, 1, events * 10'000);
  gap.tid = kTid;
  for (auto _ : state) {  // NOLINT(clang-analyzer-deadcode.DeadStores)
    correlator.accept(std::as_bytes(std::span(&gap, 1)), gaps);
    benchmark::DoNotOptimize(gaps.data());
    gaps.clear();
  }
}
BENCHMARK(BM_LargestGap)->Arg(200)->Arg(30'000)->Unit(benchmark::kMillisecond);

// Heap in use after 5 and after 50 million records must be the same.
void BM_MemoryIsFlat(benchmark::State& state) {
  for (auto _ : state) {  // NOLINT(clang-analyzer-deadcode.DeadStores)
    Correlator correlator({});
    BusyMachine machine;
    std::vector<Gap> gaps;
    size_t early_bytes = 0;
    size_t records = 0;
    while (records < 50'000'000) {
      records += machine.turn(correlator, gaps);
      if (early_bytes == 0 && records > 5'000'000) {
        early_bytes = mallinfo2().uordblks + mallinfo2().hblkhd;
      }
    }
    const size_t late_bytes = mallinfo2().uordblks + mallinfo2().hblkhd;
    state.counters["early_MiB"] = static_cast<double>(early_bytes) / (1 << 20);
    state.counters["late_MiB"] = static_cast<double>(late_bytes) / (1 << 20);
    if (late_bytes > early_bytes + (1 << 20)) {
      state.SkipWithError("memory grows with the length of the capture");
    }
  }
}
BENCHMARK(BM_MemoryIsFlat)->Iterations(1)->Unit(benchmark::kSecond);

}  // namespace
}  // namespace pollgap

BENCHMARK_MAIN();
