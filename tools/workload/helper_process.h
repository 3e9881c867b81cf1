// SPDX-License-Identifier: Apache-2.0
// A helper process: forked before the program has threads, it sleeps until the schedule begins, and
// records what it did in memory that it shares with the program.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "probes/result.h"
#include "tools/workload/disturbance_spec.h"
#include "tools/workload/options.h"
#include "tools/workload/shared_memory.h"
#include "tools/workload/truth_log.h"

namespace pollgap::workload {

class HelperProcess {
 public:
  struct Setup {
    std::string comm;
    int cpu = 0;
    Policy policy = Policy::other;
    int priority = 0;
    // The process occurs on the schedule; with this, which must be shared memory, each time that
    // the word changes.
    std::atomic<uint32_t>* on_change_of = nullptr;
    // end() waits for an occurrence that is under way.
    bool finish_occurrence = false;
  };
  // Runs in the process at each occurrence; returns when it happened.
  using Body = std::function<Occurrence()>;

  HelperProcess() = default;
  ~HelperProcess();
  HelperProcess(const HelperProcess&) = delete;
  HelperProcess& operator=(const HelperProcess&) = delete;

  // Forks. Returns when the process is set up, or says why it cannot be. Call while the program has
  // one thread.
  Status spawn(const Setup& setup, const Body& body);
  void begin(const Schedule& schedule);
  // Kills it and waits for its end.
  void end();

  pid_t pid() const { return pid_; }
  std::span<const Occurrence> occurrences() const;

 private:
  static constexpr size_t capacity = 1U << 14;
  struct Shared {
    std::atomic<uint32_t> set_up{0};  // 1: ready, 2: failed, see error
    std::atomic<uint32_t> begun{0};
    // With finish_occurrence the process must not be killed in the middle of a body: once ending is
    // set no body starts any more.
    std::atomic<uint32_t> ending{0};
    std::atomic<uint32_t> in_body{0};
    Schedule schedule;
    ExitCode error_code = ExitCode::other;
    char error[256] = {};
    std::atomic<uint64_t> count{0};
    Occurrence occurrences[capacity];
  };
  static bool wait_for_occurrence(Shared& shared, const Setup& setup, uint32_t& seen);
  [[noreturn]] static void child_main(Shared& shared, const Setup& setup, const Body& body,
                                      pid_t parent);

  Setup setup_;
  pid_t pid_ = -1;
  pid_t killed_ = -1;
  SharedMemory<Shared> shared_;
};

}  // namespace pollgap::workload
