// SPDX-License-Identifier: Apache-2.0
// The BPF object in the kernel: loaded, its tracepoint programs attached, its maps at hand. Owns
// all of it; what it attached is gone when it is destroyed, or when the agent dies.
#pragma once

#include <bpf/libbpf.h>
#include <sys/mman.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/capture/smi_counters.h"
#include "bpf/config.h"
#include "probes/result.h"

struct pollgap_bpf;

namespace pollgap {

struct CqLayout;

// Memory shared with an array map, for reading.
template <typename T>
class MappedArray {
 public:
  MappedArray() = default;
  MappedArray(void* memory, size_t count)
      : memory_(static_cast<const volatile T*>(memory), Unmap{count * sizeof(T)}), count_(count) {}
  const volatile T& operator[](size_t index) const { return memory_.get()[index]; }
  size_t size() const { return count_; }

 private:
  struct Unmap {
    size_t bytes = 0;
    void operator()(const volatile T* memory) const { munmap(const_cast<T*>(memory), bytes); }
  };
  std::unique_ptr<const volatile T, Unmap> memory_;
  size_t count_ = 0;
};

struct ObjectCloser {
  void operator()(pollgap_bpf* object) const;
};

// How the programs read the hypervisor's steal clock: at each poll, where the kernel lists its
// per-CPU variable; else from the runqueue, where the scheduler keeps a copy; else not at all.
enum class StealReading { none, at_ticks, at_polls };
const char* to_string(StealReading reading);

// What the programs are loaded for.
struct ProgramUse {
  bool times_polls = false;
  bool observes = false;  // with both, the steal clock is not read at polls
  bool hypervisor_reports_steal = false;
  std::vector<pid_t> tids;  // only these threads; empty: all that poll
};

class KernelPrograms {
 public:
  // Loads the object and attaches every tracepoint program that this kernel has a tracepoint for;
  // `missing()` names the others. Reads the steal clock at polls where the hypervisor reports steal
  // and the kernel lists the clock's symbol. Errors: no_privilege (names the capability),
  // kernel_lacks.
  static Result<KernelPrograms> load(const pg_config& config, const ProgramUse& use);

  pollgap_bpf& object() { return *object_; }
  // From now on what polls of that site have consumed is read from the CQs, which are laid out so.
  void set_cq_layout(uint32_t site, const CqLayout& layout);
  const std::vector<std::string>& missing() const { return missing_; }
  // The kernel can attach many uprobes by one link (and take them off as fast).
  bool multi_uprobes() const { return multi_uprobes_; }

  StealReading steal() const { return steal_; }
  // Why SMIs are not counted; empty: they are, on all CPUs.
  const std::string& smis_not_counted() const { return smis_not_counted_; }

  // Since loading.
  uint64_t lost_records() const;
  uint64_t trace_dropped() const;
  uint32_t threads_refused() const;
  uint32_t contexts_opened() const;
  uint64_t others_probed() const;  // entries and returns, of threads that are not followed
  // Until then no completion has waited for the thread whose clock that is: by the agent, where it
  // observes. Any thread may call it.
  void tell_served(size_t slot, uint64_t until_ns) const;
  // Writes the records of a thread's own kernel work that are held back in the kernel.
  void tell_pending(uint32_t tid);
  // Polls are judged from that time on: UINT64_MAX while their probes come or go.
  void judge_polls_from(uint64_t ns);
  // Whether the agent tells what the threads were served, instead of probes of their polls.
  void set_observing(bool observing);
  // No thread counts as silent until then, or until something more is known of it.
  void hold_silences(uint64_t until_ns) const;

  const MappedArray<pg_thread_clock>& clocks() const { return clocks_; }
  const MappedArray<pg_cpu>& cpus() const { return cpus_; }

 private:
  KernelPrograms() = default;
  Status attach_tracepoints();

  std::unique_ptr<pollgap_bpf, ObjectCloser> object_;
  std::vector<std::unique_ptr<bpf_link, int (*)(bpf_link*)>> links_;
  std::vector<std::string> missing_;
  MappedArray<pg_thread_clock> clocks_;
  MappedArray<pg_cpu> cpus_;
  bool multi_uprobes_ = false;
  StealReading steal_ = StealReading::none;
  SmiCounters smi_counters_;
  std::string smis_not_counted_;
};

}  // namespace pollgap
