// SPDX-License-Identifier: Apache-2.0
#include "agent/ledger/account.h"

#include <algorithm>
#include <set>

namespace pollgap {
namespace {

// Where there were none for so long before a gap, it would be a rare chance ...
constexpr uint64_t kLatelyNs = 1'000'000'000;
// ... that one came in this time right before it.
constexpr uint64_t kShortlyBeforeNs = 20'000'000;

}  // namespace

Account::Account(const Timeline& timeline, const Dictionary& names, const Session& session,
                 const GapRecord& gap)
    : timeline_(timeline),
      names_(names),
      session_(session),
      gap_(gap),
      thread_(timeline.thread(gap.tid)),
      activity_(thread_activity(thread_, gap.header.start_ns, gap.header.end_ns, gap.start_cpu)),
      free_(gap.header.start_ns, gap.header.end_ns) {
  find_losses();
  find_steal();
  find_smis();
  find_verbs();
  find_stamp();
}

void Account::find_losses() {
  timeline_.losses().for_each_overlapping(
      start_ns(), end_ns(), [this](const ev_lost& loss) { lost_records_ += loss.records; });
  const auto cut = [this](const auto& history) {
    history_cut_ = history_cut_ || history.evicted_until_ns() > start_ns();
  };
  if (thread_ != nullptr) {
    cut(thread_->off_cpu);
    cut(thread_->self);
    cut(thread_->verbs);
    cut(thread_->samples);
  }
  std::set<uint32_t> seen;
  for (const Stint& stint : activity_) {
    const CpuTimeline* cpu = timeline_.cpu(stint.cpu);
    if (cpu != nullptr && seen.insert(stint.cpu).second) {
      cut(cpu->runs);
      cut(cpu->irqs);
      cut(cpu->softirqs);
    }
  }
}

void Account::find_stamp() {
  if (thread_ == nullptr || end_ns() == UINT64_MAX) {
    return;
  }
  thread_->stamps.for_each_overlapping(end_ns(), end_ns() + 1, [this](const ev_stamp& stamp) {
    if (stamp.cq == gap_.cq && stamp.header.end_ns == end_ns()) {
      stamp_ = &stamp;
    }
  });
}

bool Account::stayed() const {
  return std::none_of(activity_.begin(), activity_.end(),
                      [this](const Stint& stint) { return stint.cpu != gap_.header.cpu; });
}

// The clock was read at both edges, or by the scheduler, at times around them. A thread that moved
// in between had two clocks.
void Account::find_steal() {
  if (!session_.nothing_steals && !stayed()) {
    return;
  }
  if ((gap_.flags & EV_GAP_STEAL_VALID) != 0) {
    steal_ = {.known = true, .ns = gap_.steal_ns};
    return;
  }
  const CpuTimeline* cpu = timeline_.cpu(gap_.header.cpu);
  if (!session_.steal_at_ticks || cpu == nullptr) {
    return;
  }
  uint64_t covered_ns = start_ns();
  cpu->steals.for_each_overlapping(start_ns(), end_ns(), [&](const Steal& reading) {
    const Claim inside =
        clipped({reading.header.start_ns, reading.header.end_ns, 0}, start_ns(), end_ns());
    covered_ns = std::max<uint64_t>(covered_ns, reading.header.end_ns);
    steal_.ns += std::min<uint64_t>(reading.steal_ns - reading.told_ns, inside.length_ns());
    if (reading.steal_ns > reading.told_ns) {
      steal_.beside_ns += reading.header.end_ns - reading.header.start_ns - inside.length_ns();
    }
  });
  steal_.known = covered_ns >= end_ns();
}

void Account::find_smis() {
  const CpuTimeline* cpu = timeline_.cpu(gap_.header.cpu);
  if (cpu == nullptr || !stayed()) {
    return;
  }
  uint64_t from_ns = UINT64_MAX;
  uint64_t until_ns = 0;
  uint64_t first_ns = UINT64_MAX;
  cpu->smis.for_each_overlapping(start_ns(), end_ns(), [&](const ev_smi& reading) {
    from_ns = std::min<uint64_t>(from_ns, reading.header.start_ns);
    until_ns = std::max<uint64_t>(until_ns, reading.header.end_ns);
    if (reading.count > 0 && reading.header.end_ns > start_ns()) {
      smis_.count += reading.count;
      first_ns = std::min<uint64_t>(first_ns, reading.header.start_ns);
    }
  });
  smis_.known = from_ns <= start_ns() && until_ns >= end_ns();
  smis_.before_ns = first_ns < start_ns() ? start_ns() - first_ns : 0;
  smis_.tell =
      smis_.count > 0 && smis_.before_ns <= std::max<uint64_t>(duration_ns(), kShortlyBeforeNs);
  const uint64_t lately_ns = start_ns() > kLatelyNs ? start_ns() - kLatelyNs : 0;
  cpu->smis.for_each_overlapping(lately_ns, start_ns(), [&](const ev_smi& reading) {
    smis_.frequent = smis_.frequent || (reading.count > 0 && reading.header.end_ns <= start_ns());
  });
}

uint32_t Account::stolen_by_smis() {
  if (!stolen_by_smis_) {
    // Otherwise one that came before the gap, and was short, may have been counted.
    const bool surely =
        smis_.before_ns == 0 || (smis_.before_ns <= kShortlyBeforeNs && !smis_.frequent);
    stolen_by_smis_ = add_origin({.key = {Cause::stolen, static_cast<uint64_t>(Thief::firmware)},
                                  .source = {},
                                  .grade = surely ? Grade::exact : Grade::indirect,
                                  .count = smis_.count});
  }
  return *stolen_by_smis_;
}

void Account::find_verbs() {
  if (thread_ == nullptr) {
    return;
  }
  thread_->verbs.for_each_overlapping(start_ns(), end_ns(), [this](const ev_verb& verb) {
    const uint32_t origin = add_origin(
        {.key = {Cause::control_verb, verb.verb}, .source = &verb, .grade = Grade::exact});
    verbs_.push_back(
        clipped({verb.header.start_ns, verb.header.end_ns, origin}, start_ns(), end_ns()));
  });
  verbs_ = outermost(std::move(verbs_));
}

const CpuOccupation& Account::occupation(uint32_t cpu) {
  const auto [place, is_new] = occupations_.try_emplace(cpu);
  CpuOccupation& occupation = place->second;
  const CpuTimeline* timeline = timeline_.cpu(cpu);
  if (!is_new || timeline == nullptr) {
    return occupation;
  }
  timeline->runs.for_each_overlapping(start_ns(), end_ns(), [&](const ev_run& run) {
    if (run.task.tid != gap_.tid || run.task.tid == 0) {
      const auto index = static_cast<uint32_t>(occupation.runs.size());
      occupation.runs.push_back(&run);
      occupation.run_stretches.push_back({run.header.start_ns, run.header.end_ns, index});
    }
  });
  timeline->works.for_each_overlapping(start_ns(), end_ns(), [&](const ev_work& work) {
    const auto index = static_cast<uint32_t>(occupation.works.size());
    occupation.works.push_back(&work);
    occupation.work_stretches.push_back({work.header.start_ns, work.header.end_ns, index});
  });
  occupation.run_stretches = innermost(std::move(occupation.run_stretches));
  occupation.work_stretches = innermost(std::move(occupation.work_stretches));
  return occupation;
}

uint32_t Account::add_origin(const Origin& origin) {
  origins_.push_back(origin);
  return static_cast<uint32_t>(origins_.size() - 1);
}

uint32_t Account::unexplained(const std::string& note) {
  const uint32_t id = text_id(note);
  return add_origin(
      {.key = {Cause::unexplained, id}, .source = {}, .grade = Grade::weak, .note = id});
}

uint32_t Account::text_id(const std::string& text) {
  const auto [place, is_new] = text_ids_.try_emplace(text, static_cast<uint32_t>(texts_.size()));
  if (is_new) {
    texts_.push_back(text);
  }
  return place->second;
}

}  // namespace pollgap
