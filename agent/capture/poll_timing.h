// SPDX-License-Identifier: Apache-2.0
// How polls are timed, and by what: by probes, or by looking at the CQs. With timing auto, one
// after the other, by what probes cost at the present rate of polls.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "agent/capture/attach_options.h"
#include "agent/capture/governor.h"
#include "agent/capture/observation.h"
#include "agent/capture/poll_burst.h"
#include "agent/capture/probe_counter.h"
#include "agent/capture/probe_price.h"
#include "agent/capture/record_queue.h"
#include "agent/capture/site_probes.h"
#include "probes/process.h"
#include "probes/result.h"
#include "probes/sites.h"

namespace pollgap {

class PollTiming {
 public:
  using Sink = std::function<void(std::span<const std::byte>)>;

  // All of them must outlive it.
  PollTiming(const AttachOptions& options, const pg_config& config, KernelPrograms& programs,
             RecordQueue& records, const Process& process);

  // Places the probes and begins. `kernel_entry_ns`: what an interrupt takes. Errors: what the
  // options ask for cannot be had.
  Status begin(const Sites& found, uint64_t kernel_entry_ns);
  // With timing observe: whether there is something to look at, from a core of the agent's own.
  Status check_observed(bool shares_core) const;
  // After another discovery.
  Status update(const Sites& found);
  // To be called some times a second. `sampler_cpu_ns`: what looking for silences has taken so far.
  Status maintain(uint64_t sampler_cpu_ns);
  // The agent has no core that no target thread polls on.
  void pause(bool paused);
  // The end: what goes on is told as open, and the sums of all polls. No poll is judged any more.
  void finish(const Sink& sink);
  void detach() { probes_.detach(); }
  // The agent is stuck: the target is not to pay for that. By any thread, at any time; what has
  // been taken off is placed again, or not, by the next maintain().
  void shed();

  // Around each drain of the kernel's records: before it, for each of them in order, and after all
  // there were: gaps that were found by looking.
  void prepare();
  void accept(std::span<const std::byte> record);
  void tell(const Sink& sink);

  const SiteProbes& probes() const { return probes_; }
  bool observing() const { return observation_ && observation_->active(); }
  // So far apart looks at the target are to be, at the CQs and for silences; 0: as far as you like.
  uint64_t look_period_ns() const;
  // Lines for the user, since the last call: timing has changed.
  std::vector<std::string> take_announcements() { return std::exchange(announcements_, {}); }
  void tell_coverage(nlohmann::ordered_json& coverage, std::vector<std::string>& notes) const;

 private:
  struct Phase {
    bool observed = false;
    uint64_t start_ns = 0;
  };
  // What is spent in a minute, and the most that was spent in one.
  struct Minute {
    uint64_t length_ns = 0;
    double probes_ns = 0;
    uint64_t agent_ns = 0;
    double most_probes = 0, most_agent = 0;  // shares

    void add(uint64_t ns, double probes, uint64_t agent);
    void end();
  };

  void begin_governing(const ProbePrices& prices);
  uint64_t probe_ns() const;
  Status govern(uint64_t sampler_cpu_ns);
  Status come_back();
  void decide();
  void govern_looks(uint64_t sampler_cpu_ns);
  Status observe_polls();
  Status time_polls();
  void announce(double share);
  void add_sums(const ev_polls& record);

  const AttachOptions& options_;
  const pg_config& config_;
  KernelPrograms& programs_;
  RecordQueue& records_;
  const Process& process_;
  SiteProbes probes_;
  PollBurst burst_;
  ProbeCounter counter_;
  std::vector<ContextInfo> contexts_;
  std::optional<Observation> observation_;
  std::optional<Governor> governor_;  // with timing auto
  ProbePrices prices_;
  std::vector<Phase> phases_;
  Minute minute_;
  uint64_t accounted_ns_ = 0;  // until then the governor knows what was spent
  uint64_t agent_ns_ = 0;      // the agent's CPU time then
  uint64_t burst_pause_ns_ = 0;
  uint64_t next_burst_ns_ = 0;
  uint32_t look_hz_;
  uint64_t looks_governed_ns_ = 0;
  uint64_t governed_agent_ns_ = 0;  // CPU time of the agent, and of its looks, then
  uint64_t governed_looks_ns_ = 0;
  std::map<std::pair<uint32_t, uint64_t>, ev_polls> sums_;  // by thread and CQ
  std::vector<std::string> announcements_;
  std::atomic<uint64_t> shed_ns_ = 0;  // when shed() was called; 0: not since the last maintain()
  uint64_t stuck_ns_ = 0;              // in all
};

}  // namespace pollgap
