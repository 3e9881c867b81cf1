// SPDX-License-Identifier: Apache-2.0
// What the ledger needs of the session's JSON (EV_SESSION). Absent or odd members are left at
// their defaults: a capture is input, and a missing fact only makes the ledger more careful.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bpf/evidence.h"

namespace pollgap {

struct PollSite {
  std::string name;
  std::string module;             // path of the ELF file, as the target sees it
  uint64_t function_address = 0;  // in the target; 0 unknown
  uint64_t function_bytes = 0;    // 0 unknown

  bool contains(uint64_t user_ip) const {
    return function_address != 0 && user_ip >= function_address &&
           user_ip - function_address < function_bytes;
  }
};

struct Session {
  uint32_t agent_pid = 0;                 // tool.pid; 0 unknown
  bool throttles_by_fair_server = false;  // host.kernel is 6.12 or later
  uint64_t interrupt_cost_ns = 0;         // host.interrupt_cost_ns; 0 unknown
  bool steal_at_ticks = false;            // host.steal_read is at_ticks: EV_STEAL records come
  bool nothing_steals = false;            // host.steal_clock is none_needed: no hypervisor
  std::vector<PollSite> sites;            // target.sites, by index
  std::vector<std::string> rdma_devices;  // target.contexts: "mlx5_0", those it has open
};

Session parse_session(std::string_view json);

// Whether the agent caused the interrupt: it ran the agent's sampler, or the agent sent it.
bool caused_by_agent(const ev_irq& irq, const Session& session);

}  // namespace pollgap
