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
  Observation(KernelPrograms& programs, SiteProbes& probes, const Process& process,
              const ObservedGapOptions& options);

  // The process has these contexts now. CQs that were not known are searched for their pollers, in
  // a burst. Error: the burst's probes cannot be placed, or the process is gone.
  Status update(const std::vector<ContextInfo>& contexts);
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
  void tell(const Sink& sink);

  // The end, in place of the last prepare(): no look any more, and what goes on is told as open.
  void finish();
  // EV_POLLS: what was seen of each CQ and its pollers. After finish().
  void write_sums(const Sink& sink) const;

  // CQs that are looked at, and those of them whose pollers are known.
  size_t observed() const { return observer_.cqs().size(); }
  size_t owned() const;
  const std::vector<UnreadableCq>& refused() const { return refused_; }
  nlohmann::ordered_json coverage() const;
  std::vector<std::string> notes() const;

 private:
  Status search_pollers(std::vector<ObservedCq>& cqs);
  void follow_threads();
  bool verify_changed(std::vector<ObservedCq>& cqs);
  bool forget_exited(std::vector<ObservedCq>& cqs);
  void observe(std::vector<ObservedCq> cqs);

  KernelPrograms& programs_;
  const Process& process_;
  ObservedGapOptions options_;
  PollBurst burst_;
  Observer observer_;
  ObservedGaps gaps_;
  std::vector<ObservedCq> paused_cqs_;
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
