// SPDX-License-Identifier: Apache-2.0
// What a session is about, as its EV_SESSION record tells: the tool, the host, the target and the
// options. The agent writes that record; a capture brings it back, perhaps damaged, so everything
// here may be missing.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "agent/report/wall_clock.h"

namespace pollgap {

// What advice needs to know of the machine to name an exact command.
struct HostFacts {
  std::string online_cpus;  // CPU list, "0-7"; empty: not known
  int cgroup_version = 0;   // of the cpu controller: 1, 2; 0: not known
};

struct SessionInfo {
  nlohmann::ordered_json tool, host, target, options;  // objects, perhaps empty
  std::optional<ClockAnchor> clock;                    // host.clock {mono_ns, realtime_ns}
  HostFacts host_facts;
  bool present = false;  // the JSON was there and was an object
};

// Never fails: what is missing or of the wrong type is left empty.
SessionInfo parse_session_info(const std::string& session_json);
// Likewise, from an object with these members, such as a report.
SessionInfo session_info_of(const nlohmann::ordered_json& root);

}  // namespace pollgap
