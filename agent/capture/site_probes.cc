// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/site_probes.h"

#include <span>
#include <string_view>

#include "pollgap_bpf.skel.h"

namespace pollgap {
namespace {

// <infiniband/verbs.h>: the position (1-based) of a registration's length argument, 0 none.
uint32_t length_argument(std::string_view verb) {
  const bool registers = verb == "ibv_reg_mr" || verb == "ibv_reg_mr_iova" ||
                         verb == "ibv_reg_mr_iova2" || verb == "ibv_reg_dmabuf_mr";
  return registers ? 3 : 0;
}

UprobePlace first_instruction(const Site& site, uint64_t cookie) {
  return {site.open_path, site.function_offset, cookie};
}

struct Step {
  const bpf_program* program;
  bool at_return;
  const std::vector<UprobePlace>& places;
};

Status attach_all(UprobeLinks& links, std::span<const Step> plan) {
  for (const Step& step : plan)
    if (!step.places.empty())
      if (Status failed = links.attach(step.program, step.at_return, step.places)) return failed;
  return std::nullopt;
}

template <typename T>
void append(std::vector<T>& to, const std::vector<T>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

}  // namespace

SiteProbes::SiteProbes(KernelPrograms& programs, pid_t pid, PollProbing polls)
    : programs_(programs),
      polls_(polls),
      links_(pid, programs.multi_uprobes()),
      timing_links_(pid, programs.multi_uprobes()),
      burst_links_(pid, programs.multi_uprobes()) {}

void SiteProbes::detach() {
  shed();
  links_.detach();
}

void SiteProbes::shed() {
  end_burst();
  leave_polls();
}

Status SiteProbes::time_polls() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(timing_, true)) return std::nullopt;
  return attach_timed(timed_places_);
}

void SiteProbes::leave_polls() {
  const std::lock_guard lock(mutex_);
  timing_ = false;
  timing_links_.detach();
}

Status SiteProbes::begin_burst() {
  if (burst_places_.empty()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return burst_links_.attach(programs_.object().progs.on_poll_seen, false, burst_places_);
}

void SiteProbes::end_burst() {
  const std::lock_guard lock(mutex_);
  burst_links_.detach();
}

void SiteProbes::place_poll(const Site& site, uint32_t role, Places& polls) {
  uint64_t cookie = PG_COOKIE(role, poll_sites_.size());
  poll_sites_.push_back(site);
  if (polls_.bursts && role != PG_USER_POLL && site.arguments_intact)
    burst_places_.push_back({site.open_path, site.entry_offset, cookie});
  if (!polls_.times) return;
  if (!polls_.returns && site.cq_layout != nullptr && poll_sites_.size() <= PG_MAX_POLL_SITES) {
    programs_.set_cq_layout(static_cast<uint32_t>(poll_sites_.size() - 1), *site.cq_layout);
  } else if (site.first_execution == ProbeExecution::emulated) {
    cookie |= PG_COOKIE_HAS_RETURN;
    polls.at_return.push_back(first_instruction(site, cookie));
  } else {
    without_return_.push_back(site.name);
  }
  polls.entry.push_back({site.open_path, site.entry_offset, cookie});
}

void SiteProbes::place_post(const Site& site, Places& posts) {
  uint64_t cookie = 0;
  if (site.first_execution == ProbeExecution::emulated) {
    cookie = PG_COOKIE_HAS_RETURN;
    posts.at_return.push_back(first_instruction(site, cookie));
  }
  posts.entry.push_back({site.open_path, site.entry_offset, cookie});
}

// The entry probe sits where the return probe must: one trap, and its stamp is before whatever the
// return probe costs there.
void SiteProbes::place_verb(const Site& site, Places& verbs) {
  const uint64_t cookie = PG_VERB_COOKIE(verbs_.size(), length_argument(site.name));
  verbs_.push_back(site.name);
  verbs.entry.push_back(first_instruction(site, cookie));
  verbs.at_return.push_back(first_instruction(site, cookie));
}

Status SiteProbes::attach(const std::vector<Site>& sites) {
  Places verbs, events, hooks;
  TimedPlaces timed;
  for (const Site& site : sites) {
    if (!placed_.emplace(site.open_path, site.function_offset).second) continue;
    switch (site.role) {
      case SiteRole::poll_cq:
        place_poll(site, PG_POLL_CQ, timed.polls);
        break;
      case SiteRole::start_poll:
        place_poll(site, PG_START_POLL, timed.polls);
        break;
      case SiteRole::next_poll:
        place_poll(site, PG_NEXT_POLL, timed.polls);
        break;
      case SiteRole::user:
        place_poll(site, PG_USER_POLL, timed.polls);
        break;
      case SiteRole::post_send:
        place_post(site, timed.posts);
        break;
      case SiteRole::verb:
        place_verb(site, verbs);
        // A QP that is new, or new again, is one whose sends are to be observed.
        if (polls_.bursts && site.name == "ibv_modify_qp")
          hooks.at_return.push_back(first_instruction(site, 0));
        break;
      case SiteRole::get_cq_event:
        events.entry.push_back(first_instruction(site, 0));
        events.at_return.push_back(first_instruction(site, 0));
        break;
      case SiteRole::open_hook:
        hooks.at_return.push_back(first_instruction(site, 0));
        break;
      case SiteRole::end_poll:
        break;  // the next poll's entry bounds the time after it
    }
  }
  const auto& programs = programs_.object().progs;
  const Step plan[] = {
      // Entries after returns: what the first call seen does is then seen whole.
      {programs.on_verb_return, true, verbs.at_return},
      {programs.on_verb_enter, false, verbs.entry},
      {programs.on_event_return, true, events.at_return},
      {programs.on_event_enter, false, events.entry},
      {programs.on_context_opened, true, hooks.at_return},
  };
  const std::lock_guard lock(mutex_);
  if (Status failed = attach_all(links_, plan)) return failed;
  for (const auto& [to, more] : {std::pair{&timed_places_.polls, &timed.polls},
                                 std::pair{&timed_places_.posts, &timed.posts}}) {
    append(to->entry, more->entry);
    append(to->at_return, more->at_return);
  }
  return timing_ ? attach_timed(timed) : std::nullopt;
}

// Posts after polls: no send is counted as outstanding whose completion might go unseen.
Status SiteProbes::attach_timed(const TimedPlaces& places) {
  const auto& programs = programs_.object().progs;
  const bool steal = programs_.steal() == StealReading::at_polls;
  const Step plan[] = {
      {steal ? programs.on_poll_return_steal : programs.on_poll_return, true,
       places.polls.at_return},
      {steal ? programs.on_poll_enter_steal : programs.on_poll_enter, false, places.polls.entry},
      {programs.on_post_return, true, places.posts.at_return},
      {programs.on_post_enter, false, places.posts.entry},
  };
  return attach_all(timing_links_, plan);
}

}  // namespace pollgap
