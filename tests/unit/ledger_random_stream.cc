// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/ledger_random_stream.h"

#include <random>

namespace pollgap::test {
namespace {

class RandomStream {
 public:
  RandomStream(uint64_t seed, size_t records) : random_(seed), records_(records) {}

  EvidenceStream make() {
    if (chance(0.8)) {
      stream_.session(chance(0.5) ? "6.1.0" : "6.18.0", chance(0.5) ? "at_ticks" : "none",
                      chance(0.5) ? "none_needed" : "counts");
    }
    while (stream_.records().size() < records_) {
      now_ += below(400'000);
      add_one();
    }
    if (chance(0.5)) {
      stream_.text(EV_COVERAGE, "{}");
    }
    return std::move(stream_);
  }

 private:
  uint64_t below(uint64_t limit) { return random_() % limit; }
  bool chance(double probability) {
    return static_cast<double>(random_() >> 11) / static_cast<double>(1ULL << 53) < probability;
  }
  uint32_t some_cpu() { return static_cast<uint32_t>(below(3)); }
  uint32_t some_tid() { return kTid + static_cast<uint32_t>(below(2)); }
  uint32_t some_u32() {
    return chance(0.9) ? static_cast<uint32_t>(below(12)) : static_cast<uint32_t>(random_());
  }
  uint64_t some_length() { return chance(0.7) ? below(100'000) : below(6'000'000); }

  // A record of the kind that ended about now.
  template <typename T>
  T interval(ev_kind kind) {
    const uint64_t end = now_ + (chance(0.9) ? 0 : below(50'000));
    const uint64_t length = some_length();
    const uint64_t start = chance(0.01) ? end + below(1000) : end > length ? end - length : 0;
    return make_record<T>(kind, some_cpu(), chance(0.001) ? random_() : start,
                          chance(0.001) ? random_() : end);
  }

  ev_task some_task() {
    ev_task task{};
    task.tid = static_cast<uint32_t>(below(6));
    task.pid = chance(0.05) ? kAgentPid : task.tid;
    task.priority = static_cast<int>(below(140)) - 1;
    task.policy = some_u32();
    task.flags = some_u32();
    task.cgroup_id = below(3);
    set_text(task.comm, "task");
    return task;
  }

  ev_waker some_waker() {
    ev_waker waker{};
    waker.tid = some_u32();
    waker.at_ns = chance(0.5) ? now_ : 0;
    waker.context = some_u32();
    return waker;
  }

  void add_off_cpu() {
    auto off = interval<ev_off_cpu>(EV_OFF_CPU);
    off.tid = some_tid();
    off.out_cpu = some_cpu();
    off.state = chance(0.5) ? 0 : some_u32();
    off.flags =
        chance(0.7) ? static_cast<uint32_t>(1u << below(9)) : static_cast<uint32_t>(below(512));
    off.syscall_nr = static_cast<int>(below(5)) - 1;
    off.policy = some_u32();
    off.wakeup_ns = chance(0.6) ? off.header.start_ns + below(1'000'000) : 0;
    off.waker = some_waker();
    off.throttle_cgroup_id = below(3);
    maybe_stacks(off.tid, off.header.start_ns);
    stream_.add(off);
  }

  void add_run() {
    auto run = interval<ev_run>(EV_RUN);
    run.task = some_task();
    run.waker = some_waker();
    run.work_function = below(3);
    run.fair_server = below(2);
    stream_.add(run);
  }

  void add_irq() {
    auto irq = interval<ev_irq>(EV_IRQ);
    irq.vector = some_u32();
    irq.irq = static_cast<int>(below(4)) - 1;
    irq.flags = below(2);
    irq.sender_tid = some_u32();
    irq.sender_pid = chance(0.1) ? kAgentPid : some_u32();
    irq.callback = below(3);
    set_text(irq.action, chance(0.5) ? "nic" : "disk");
    stream_.add(irq);
  }

  void add_softirq() {
    auto softirq = interval<ev_softirq>(EV_SOFTIRQ);
    softirq.vector = some_u32();
    softirq.in_ksoftirqd = below(2);
    softirq.after_irq = static_cast<int>(below(4)) - 1;
    softirq.after_vector = some_u32();
    stream_.add(softirq);
  }

  void add_self() {
    auto self = interval<ev_self>(EV_SELF);
    self.tid = some_tid();
    self.type = some_u32();
    self.syscall_nr = static_cast<int>(below(4)) - 1;
    self.count = chance(0.5) ? 1 : some_u32();
    self.sum_ns = chance(0.9) ? below(2'000'000) : random_();
    self.flags = below(2);
    maybe_stacks(self.tid, self.header.start_ns);
    stream_.add(self);
  }

  void add_verb() {
    auto verb = interval<ev_verb>(EV_VERB);
    verb.tid = some_tid();
    verb.verb = some_u32();
    verb.depth = below(2);
    stream_.add(verb);
  }

  void add_work() {
    auto work = interval<ev_work>(EV_WORK);
    work.tid = static_cast<uint32_t>(below(6));
    work.function = below(3);
    stream_.add(work);
  }

  void add_sample() {
    auto sample = make_record<ev_sample>(EV_SAMPLE, some_cpu(), now_, now_);
    sample.tid = some_tid();
    sample.reason = static_cast<uint32_t>(below(2));
    sample.mode = static_cast<uint32_t>(below(4));
    sample.on_cpu = chance(0.9);
    sample.user_ip = 0x1000 + below(0x300);
    sample.asked_ns = chance(0.9) ? now_ - below(2'000'000) : random_();
    sample.flags = static_cast<uint32_t>(below(2));
    maybe_stacks(sample.tid, now_);
    stream_.add(sample);
  }

  void maybe_stacks(uint32_t tid, uint64_t start_ns) {
    if (!chance(0.2)) {
      return;
    }
    auto stack = make_record<ev_stack>(EV_STACK, 0, start_ns, now_);
    stack.tid = tid;
    stack.role = static_cast<uint16_t>(below(2));
    stack.frames = static_cast<uint16_t>(below(4));
    for (uint16_t i = 0; i < stack.frames; ++i) {
      stack.ip[i] = below(5);
    }
    stream_.add(stack);
  }

  void add_small() {
    switch (below(6)) {
      case 0: {
        ev_signal signal = signal_of(static_cast<int>(below(24)), 0);
        signal.header.start_ns = signal.header.end_ns = now_;
        stream_.add(signal);
        break;
      }
      case 1: {
        auto move = make_record<ev_migrate>(EV_MIGRATE, 0, now_ - below(300'000), 0);
        move.header.end_ns = move.header.start_ns;
        move.tid = some_tid();
        move.to_cpu = some_cpu();
        stream_.add(move);
        break;
      }
      case 2: {
        auto error = make_record<ev_wc_error>(EV_WC_ERROR, some_cpu(), now_, now_);
        error.tid = some_tid();
        error.cq = kCq;
        error.status = some_u32();
        error.errors = some_u32();
        stream_.add(error);
        auto stamp = make_record<ev_stamp>(EV_STAMP, some_cpu(), now_, now_);
        stamp.tid = some_tid();
        stamp.cq = kCq;
        stamp.made_after_ns = now_ - below(9'000'000);
        stamp.made_until_ns = stamp.made_after_ns + below(1'000'000);
        stamp.written_after_ns = now_ - below(1'000'000);
        stamp.written_until_ns = now_;
        stream_.add(stamp);
        break;
      }
      case 3: {
        if (chance(0.2)) {
          auto lost = interval<ev_lost>(EV_LOST);
          lost.records = below(9);
          stream_.add(lost);
        }
        break;
      }
      case 4:
        stream_.add_bytes(trace_event_of(
            chance(0.5) ? "no object" : R"({"event":"g:e","text":"t","fields":{"a":"1"}})",
            now_ - kStart, some_cpu()));
        break;
      default:
        stream_.name(static_cast<ev_name_kind>(below(7)), below(5),
                     chance(0.5) ? "name" : R"({"function":"f","device":"d","line":3})");
        break;
    }
  }

  void add_gap() {
    auto gap = interval<ev_gap>(EV_GAP);
    gap.header.start_ns = now_ - std::min<uint64_t>(now_, 1'000'000 + below(9'000'000));
    gap.tid = some_tid();
    gap.pid = kPid;
    gap.gap_kind = static_cast<uint32_t>(below(5));
    gap.flags = static_cast<uint32_t>(below(16));
    gap.cq = kCq;
    gap.site = static_cast<uint32_t>(below(2));
    gap.start_cpu = some_cpu();
    gap.polls = below(100);
    gap.steal_ns = chance(0.5) ? 0 : below(8'000'000);
    gap.vain_until_ns = chance(0.5) ? 0 : now_ - below(12'000'000);
    gap.error_completions = static_cast<uint32_t>(below(3));
    maybe_stacks(gap.tid, gap.header.start_ns);
    stream_.add(gap);
  }

  void add_steal() {
    auto reading = interval<ev_steal>(EV_STEAL);
    reading.steal_ns = chance(0.5) ? 0 : below(8'000'000);
    stream_.add(reading);
  }

  void add_smi() {
    auto reading = interval<ev_smi>(EV_SMI);
    reading.count = chance(0.5) ? 0 : some_u32();
    stream_.add(reading);
  }

  void add_standstill() { stream_.add(interval<ev_standstill>(EV_STANDSTILL)); }

  void add_one() {
    switch (below(23)) {
      case 0:
        return add_gap();
      case 1:
      case 2:
      case 3:
        return add_off_cpu();
      case 4:
      case 5:
      case 6:
        return add_run();
      case 7:
      case 8:
      case 9:
        return add_irq();
      case 10:
      case 11:
        return add_softirq();
      case 12:
      case 13:
        return add_self();
      case 18:
        return add_steal();
      case 21:
        return add_smi();
      case 22:
        return add_standstill();
      case 14:
        return add_verb();
      case 15:
        return add_work();
      case 16:
      case 17:
        return add_sample();
      default:
        return add_small();
    }
  }

  std::mt19937_64 random_;
  size_t records_;
  EvidenceStream stream_;
  uint64_t now_ = kStart;
};

}  // namespace

EvidenceStream random_stream(uint64_t seed, size_t records) {
  return RandomStream(seed, records).make();
}

}  // namespace pollgap::test
