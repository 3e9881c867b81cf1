// SPDX-License-Identifier: Apache-2.0
// One gap under examination: its evidence, the time not yet accounted for, and the claims made so
// far. The rules (rules.h) fill it in a fixed order; assemble_gap() turns it into a Gap.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/ledger/claim.h"
#include "agent/ledger/dictionary.h"
#include "agent/ledger/session.h"
#include "agent/timeline/thread_activity.h"
#include "agent/timeline/timeline.h"

namespace pollgap {

// Which tasks and work items ran on a CPU in the gap's window.
struct CpuOccupation {
  std::vector<const ev_run*> runs;
  std::vector<Claim> run_stretches;  // sorted, disjoint; origin: index into runs
  std::vector<const ev_work*> works;
  std::vector<Claim> work_stretches;  // likewise, into works
};

// What the hypervisor's steal clock says of a gap.
struct StealEvidence {
  bool known = false;
  uint64_t ns = 0;         // what it advanced by; told to earlier gaps left out
  uint64_t beside_ns = 0;  // between the readings, but outside the gap: it may have advanced there
};

// The system management interrupts that the gap's CPU has counted.
struct SmiEvidence {
  bool known = false;      // it was read before and after the gap
  uint64_t count = 0;      // between the readings around the gap
  uint64_t before_ns = 0;  // so long before the gap the first of them may have come
  bool frequent = false;   // others came lately
  bool tell = false;       // it came in the gap, or not much before it
};

class Account {
 public:
  Account(const Timeline& timeline, const Dictionary& names, const Session& session,
          const GapRecord& gap);

  const Timeline& timeline() const { return timeline_; }
  const Dictionary& names() const { return names_; }
  const Session& session() const { return session_; }
  const GapRecord& gap() const { return gap_; }
  const ThreadTimeline* thread() const { return thread_; }
  uint64_t start_ns() const { return gap_.header.start_ns; }
  uint64_t end_ns() const { return gap_.header.end_ns; }
  uint64_t duration_ns() const { return end_ns() - start_ns(); }
  const std::vector<Stint>& activity() const { return activity_; }

  // Records lost in the window, and whether histories had to drop what it would have needed.
  uint64_t lost_records() const { return lost_records_; }
  bool evidence_complete() const { return lost_records_ == 0 && !history_cut_; }

  const StealEvidence& steal() const { return steal_; }
  const SmiEvidence& smis() const { return smis_; }
  // When the adapter made the completion that ended the gap; nullptr: not known.
  const ev_stamp* stamp() const { return stamp_; }
  // Stolen by SMIs: one and the same origin for all that they took of the gap.
  uint32_t stolen_by_smis();
  // It was on one CPU all the while, the gap's.
  bool stayed() const;

  // A late completion that cannot have been the thread's doing: it polled all the while, or the
  // completion is known not to have come.
  bool surely_late() const {
    return gap_.gap_kind == EV_GAP_LATE_COMPLETION &&
           (gap_.polls > 0 || (gap_.flags & EV_GAP_OBSERVED) != 0);
  }

  // What ran on the CPU; computed once.
  const CpuOccupation& occupation(uint32_t cpu);

  uint32_t add_origin(const Origin& origin);
  const Origin& origin(uint32_t index) const { return origins_[index]; }
  // An origin of cause `unexplained` that says why nothing better can be said.
  uint32_t unexplained(const std::string& note);
  void annotate(uint32_t origin, const std::string& note) { origins_[origin].note = text_id(note); }
  // Texts are numbered, so that equal ones compare as numbers. 0 is the empty text.
  uint32_t text_id(const std::string& text);
  const std::string& text(uint32_t id) const { return texts_[id]; }

  // Takes what is still free of `wanted` (sorted, disjoint).
  void claim(const std::vector<Claim>& wanted) { free_.claim(wanted, claims_); }
  const std::vector<Claim>& free_intervals() const { return free_.intervals(); }
  const std::vector<Claim>& claims() const { return claims_; }

  // Intervals in which the thread was known not to be in its own user code, whoever took the time;
  // one of no length marks an instant at which it entered the kernel. Unsorted.
  void add_kernel_event(uint64_t start_ns, uint64_t end_ns) {
    kernel_events_.push_back({start_ns, end_ns, 0});
  }
  const std::vector<Claim>& kernel_events() const { return kernel_events_; }

  // Control verbs of the thread in the window, the outermost of nested ones; origins are set.
  const std::vector<Claim>& verbs() const { return verbs_; }

 private:
  void find_losses();
  void find_steal();
  void find_smis();
  void find_verbs();
  void find_stamp();

  const Timeline& timeline_;
  const Dictionary& names_;
  const Session& session_;
  const GapRecord& gap_;
  const ThreadTimeline* thread_;
  std::vector<Stint> activity_;
  FreeTime free_;
  std::vector<Claim> claims_;
  std::vector<Claim> verbs_;
  std::vector<Claim> kernel_events_;
  std::vector<Origin> origins_;
  std::vector<std::string> texts_{std::string()};
  std::map<std::string, uint32_t> text_ids_{{std::string(), 0}};
  std::map<uint32_t, CpuOccupation> occupations_;
  StealEvidence steal_;
  SmiEvidence smis_;
  const ev_stamp* stamp_ = nullptr;
  std::optional<uint32_t> stolen_by_smis_;
  uint64_t lost_records_ = 0;
  bool history_cut_ = false;
};

}  // namespace pollgap
