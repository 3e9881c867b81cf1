// SPDX-License-Identifier: Apache-2.0
// Timing `observe`: what a session does where polls are not timed. Finds which CQs can be looked at
// and who polls them, keeps that up to date, and turns what the looks and the kernel tell into
// gaps.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "agent/capture/kernel_programs.h"
#include "agent/capture/observer.h"
#include "agent/capture/poll_burst.h"
#include "agent/capture/site_probes.h"
#include "agent/observe/observed_gaps.h"
#include "probes/process.h"
#include "probes/result.h"

namespace pollgap {

class Observation {
 public:
  using Sink = std::function<void(std::span<const std::byte>)>;

  // All of them must outlive it.
  Observation(KernelPrograms& programs, PollBurst& burst, const Process& process,
              const ObservedGapOptions& options);

  // From that time on polls are not timed; these are known to have polled. The process has these
  // contexts. Error: it is gone.
  Status begin(uint64_t ns, const std::vector<ContextInfo>& contexts,
               const std::vector<CqPoller>& pollers);
  // Polls are timed from that time on: no look any more, and what goes on is told as open. Stalls
  // that have begun before are told all the same.
  void leave(uint64_t ns);
  bool active() const { return active_; }

  // The process has these contexts now. CQs that were not known are searched for their pollers, in
  // a burst. Error: the burst's probes cannot be placed, or the process is gone.
  Status update(const std::vector<ContextInfo>& contexts);
  // Whether bursts of probes are paid for.
  void allow_bursts(bool allowed) { may_burst_ = allowed; }
  // What looking has taken of the agent's core.
  uint64_t looks_cpu_ns() const { return observer_.cpu_ns(); }
  // So many looks a second from now on.
  void set_look_rate(uint32_t hz);
  // Nothing is looked at while that is so: the agent has no core that no target thread polls on.
  void pause(bool paused);
  // To be called some times a second: CQs that were resized or destroyed, CQs whose pollers are not
  // known.
  Status maintain();

  // Before the kernel's records are drained: what has been found until now can be told after it.
  void prepare();
  // Each record drained, in order.
  void accept(std::span<const std::byte> record);
  // After all there were have been drained: EV_GAP records.
  void tell(const Sink& sink, bool last = false);

  // EV_POLLS: what was seen of each CQ and its pollers, each time since begin() until leave().
  void write_sums(const Sink& sink) const;

  // CQs that are looked at, and those of them whose pollers are known.
  size_t observed() const { return observer_.cqs().size(); }
  const std::vector<UnreadableCq>& refused() const { return refused_; }
  nlohmann::ordered_json coverage() const;
  std::vector<std::string> notes() const;

 private:
  bool may_search() const;
  Status search_pollers(std::vector<ObservedCq>& cqs);
  void add_sums();
  void follow_threads();
  bool verify_changed(std::vector<ObservedCq>& cqs);
  bool forget_exited(std::vector<ObservedCq>& cqs);
  void observe(std::vector<ObservedCq> cqs);

  KernelPrograms& programs_;
  const Process& process_;
  ObservedGapOptions options_;
  PollBurst& burst_;
  Observer observer_;
  ObservedGaps gaps_;
  std::vector<ObservedCq> paused_cqs_;
  std::vector<CqPoller> polled_;      // as begin() was told
  std::vector<ObservedCq> left_cqs_;  // that were looked at when it was left
  std::vector<ev_polls> sums_;
  uint64_t longest_period_ns_;
  bool active_ = false;
  bool may_burst_ = true;
  bool paused_ = false;
  bool was_paused_ = false;
  std::vector<UnreadableCq> refused_;
  std::map<uint64_t, int> changed_;  // CQs to verify, and how often that has failed
  std::set<uint64_t> ownerless_;
  std::set<uint32_t> exited_;  // threads, until they own no CQ
  uint64_t next_search_ns_ = 0;
  uint64_t searches_in_vain_ = 0;
  // As of the last prepare(): until then the stream is complete once it has been drained, and the
  // threads were served.
  uint64_t complete_ns_ = 0;
  std::map<uint32_t, uint64_t> served_;
};

}  // namespace pollgap
