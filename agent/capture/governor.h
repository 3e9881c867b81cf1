// SPDX-License-Identifier: Apache-2.0
// Decides between the two ways to time polls by what they cost. Pure: knows no clock.
//
// Of the polled core. A probed poll has a price. What may be spent on probes flows into a purse at
// half the budget; the purse holds as much as the other half amounts to in a minute, so that no
// minute costs more than the budget. Probes stay as long as the purse can also pay for taking them
// off at the present rate of polls. They are placed when polls are so few that half the budget pays
// for them, and the purse could bear their rate going up right then.
//
// Of the housekeeping core. All CPU time of the agent comes out of another such purse, filled at
// three fifths of the budget. What the agent does beside looking (at CQs, and for silences) is not
// held back: it looks as often as is left for it, and less often still while the purse is not half
// full.
#pragma once

#include <cstdint>

namespace pollgap {

class Governor {
 public:
  // `budget`: a share of one core. `probe_ns`: the price of a probed poll; 0 not known: none is
  // cheap enough.
  // `leaving_ns`: how long probes may go on to cost after their rate has gone up: until that is
  // noticed, and until they are off.
  Governor(double budget, double housekeeping_budget, uint64_t probe_ns, uint64_t leaving_ns);

  void set_probe_ns(uint64_t ns) { probe_ns_ = static_cast<double>(ns); }

  // So many polls were probed in the last `length_ns`, on the core that had most.
  void spend(uint64_t length_ns, uint64_t polls);
  // The share of a core that such a rate of probed polls takes.
  double share(uint64_t length_ns, uint64_t polls) const;

  // While polls are probed: whether that has to end, at the rate of the last spend().
  bool must_leave() const;
  // Whether the purse pays for a burst of probes of `length_ns`, with nothing else on the core.
  bool may_probe(uint64_t length_ns) const;
  // Whether polls at this share may be probed from now on.
  bool may_time(double share) const;

  // In the last `length_ns` the agent has used so much CPU time, of it for looking.
  struct AgentTime {
    uint64_t length_ns = 0;
    uint64_t cpu_ns = 0;
    uint64_t looks_ns = 0;
  };
  // It looked `hz` times a second meanwhile, and is to look `wanted` times at most, and `least`
  // times at least. Returns how often to look from now on.
  uint32_t look_rate(const AgentTime& time, uint32_t hz, uint32_t wanted, uint32_t least);

 private:
  double budget_;
  double probe_ns_;
  double leaving_ns_;
  double most_ns_;
  double purse_ns_;
  double share_ = 0;      // of the last spend()
  double agent_income_;   // a share of its core
  double agent_most_ns_;  // in its purse
  double agent_purse_ns_;
  uint64_t frugal_ns_ = 0;  // for so long looking has taken less than half of what it may
};

}  // namespace pollgap
