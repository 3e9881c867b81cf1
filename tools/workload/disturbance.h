// SPDX-License-Identifier: Apache-2.0
// What all disturbances have in common. Each has a known cause and a schedule, and logs when it
// really happened.
//
// Life: the constructor checks the settings; spawn() forks helper processes, while the program has
// one thread; prepare() gets everything else ready, or refuses; begin() starts the schedule; end()
// stops it and undoes what prepare() and begin() changed on the machine (destructors call it too);
// report() writes the occurrences to the log.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "probes/result.h"
#include "tools/workload/disturbance_spec.h"
#include "tools/workload/options.h"
#include "tools/workload/poller.h"
#include "tools/workload/truth_log.h"
#include "tools/workload/tsc_clock.h"
#include "tools/workload/verbs_device.h"

namespace pollgap::workload {

struct Environment {
  const Options& options;
  const TscClock& clock;
  const VerbsDevice& device;
  std::vector<std::unique_ptr<Poller>>& pollers;
};

class Disturbance {
 public:
  Disturbance(DisturbanceSpec spec, unsigned index) : spec_(std::move(spec)), index_(index) {}
  virtual ~Disturbance() = default;
  Disturbance(const Disturbance&) = delete;
  Disturbance& operator=(const Disturbance&) = delete;

  // Errors of these have the exit code that tells why: usage, no_privilege, kernel_lacks.
  virtual Status spawn(const Options&) { return std::nullopt; }
  virtual Status prepare(Environment& environment) = 0;
  virtual Status begin(uint64_t first_ns) = 0;
  virtual void end() = 0;
  virtual void report(const Environment& environment, TruthLog& log) = 0;

  // More that polls must be able to return at once, and the CQ must hold.
  virtual int extra_completions() const { return 0; }

  const DisturbanceSpec& spec() const { return spec_; }
  unsigned index() const { return index_; }

 protected:
  Schedule schedule(uint64_t first_ns) const { return {first_ns, spec_.period_ns, spec_.count}; }
  Poller& victim(const Environment& environment) const {
    return *environment.pollers[spec_.thread];
  }
  int victim_cpu(const Options& options) const {
    return options.cpus[spec_.thread % options.cpus.size()];
  }
  std::string setting(const std::string& key, const std::string& fallback) const;
  void log_occurrence(const Environment& environment, TruthLog& log, const std::string& cause,
                      const Occurrence& occurrence, const nlohmann::ordered_json& culprit,
                      const nlohmann::ordered_json& facts = nullptr) const;
  Error refusal(const std::string& why, ExitCode code = ExitCode::kernel_lacks) const;

 private:
  DisturbanceSpec spec_;
  unsigned index_;
};

// The disturbance of that name. Unknown names, settings and values are usage errors.
Result<std::unique_ptr<Disturbance>> make_disturbance(const DisturbanceSpec& spec, unsigned index);

// One line for each, for --help.
std::string disturbance_help();

}  // namespace pollgap::workload
