// SPDX-License-Identifier: Apache-2.0
// Which BPF program goes on which site: from discovery's result to uprobes in place.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/capture/kernel_programs.h"
#include "agent/capture/uprobe_links.h"
#include "probes/sites.h"

namespace pollgap {

// What is probed of polls.
struct PollProbing {
  bool returns = false;  // also where the site's CQs can be read, which tells the same
  bool bursts = false;   // for some milliseconds: who polls what
  bool times = false;    // time_polls() may be called
};

class SiteProbes {
 public:
  // `programs` must outlive it.
  SiteProbes(KernelPrograms& programs, pid_t pid, PollProbing polls);

  // Attaches to every site of the list that has no probe yet. Polls and posts: while they are
  // timed.
  Status attach(const std::vector<Site>& sites);
  void detach();

  // From now on polls and posts are probed; and no more. Polls should not be judged meanwhile.
  Status time_polls();
  void leave_polls();
  // Takes the probes of polls and posts off, those of a burst, too. By any thread, at any time.
  void shed();

  // A burst begins, and ends. Between the two each poll of a target thread pays for an entry probe.
  Status begin_burst();
  void end_burst();

  // Poll functions with probes; the index is the site that EV_GAP and EV_POLLS records carry.
  const std::vector<Site>& poll_sites() const { return poll_sites_; }
  // Poll sites whose returns are not probed, because a breakpoint on their first instruction would
  // cost a single step at every call.
  const std::vector<std::string>& without_return() const { return without_return_; }
  // Verb names; the index is the id that EV_VERB records carry.
  const std::vector<std::string>& verbs() const { return verbs_; }
  size_t count() const { return links_.count() + timing_links_.count(); }

 private:
  struct Places {
    std::vector<UprobePlace> entry, at_return;
  };
  struct TimedPlaces {
    Places polls, posts;
  };
  void place_poll(const Site& site, uint32_t role, Places& polls);
  void place_post(const Site& site, Places& posts);
  void place_verb(const Site& site, Places& verbs);
  Status attach_timed(const TimedPlaces& places);

  KernelPrograms& programs_;
  PollProbing polls_;
  std::mutex mutex_;  // of the links, and of this
  bool timing_ = false;
  UprobeLinks links_, timing_links_, burst_links_;
  TimedPlaces timed_places_;
  std::vector<UprobePlace> burst_places_;
  std::set<std::pair<std::string, uint64_t>> placed_;
  std::vector<Site> poll_sites_;
  std::vector<std::string> without_return_;
  std::vector<std::string> verbs_;
};

}  // namespace pollgap
