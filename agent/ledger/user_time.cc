// SPDX-License-Identifier: Apache-2.0
// Rule 7: the thread was on the CPU and no kernel evidence says what it did.
//
// Such time is user code if something proves it: a sample that found it there, or being so short
// between two entries into the kernel that only user code can lie between. Without proof it may
// as well have been stolen from the machine (hypervisor, SMI): the steal clock and the count of
// SMIs decide, and where they cannot, the time stays unexplained. That the core stopped, as when it
// did not answer the sampler, is not enough: of the kernel's ways to run with interrupts off not
// all can be seen (exceptions, NMIs), and a core also waits for a load from a device that is stuck.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "agent/ledger/rules.h"
#include "agent/ledger/sightings.h"
#include "agent/ledger/standstill.h"
#include "agent/ledger/verdict.h"

namespace pollgap {
namespace {

// Between two entries into the kernel the thread ran user code, for less than this without doubt.
constexpr uint64_t kShortNs = 400'000;
// A core answers the sampler's interrupt within this if it runs at all.
constexpr uint64_t kLateAnswerNs = 200'000;
// From the last poll in vain to the return of the one that found something, if the thread polls.
constexpr uint64_t kPollIntervalNs = 100'000;
// Below this the steal clock's advance is the noise of its reading.
constexpr uint64_t kStealNoiseNs = 20'000;
// A CQE is in memory some microseconds after the adapter has made it.
constexpr uint64_t kLateWriteNs = 100'000;

enum class Proof {
  proven,        // user code
  unproven,      // nothing says so
  stopped,       // the core did not run: it did not answer the sampler, or all stood still
  contradicted,  // it was seen not to be user code
};

// A free part of a stretch.
struct Piece {
  Claim part;  // origin: what it is unless it was stolen
  Proof proof = Proof::unproven;
};

uint64_t stolen_budget_ns(const Account& account) {
  const StealEvidence& steal = account.steal();
  return steal.known && steal.ns >= kStealNoiseNs ? steal.ns : 0;
}

// Until when the thread polled in vain, in a late completion: it may have come any time after that,
// while the thread did something else. The start of other gaps.
uint64_t vain_until_ns(const Account& account) {
  const ev_gap& gap = account.gap();
  if (!account.surely_late()) {
    return account.start_ns();
  }
  if ((gap.flags & EV_GAP_OBSERVED) != 0) {
    return account.end_ns();
  }
  const uint64_t until_ns = std::max<uint64_t>(gap.vain_until_ns, account.start_ns());
  return until_ns + kPollIntervalNs >= account.end_ns() ? account.end_ns() : until_ns;
}

// In a late completion: from when on the adapter had made it, and had not yet written it. The gap's
// end: it is not known to have been late in writing it.
uint64_t unwritten_from_ns(const Account& account) {
  const ev_stamp* stamp = account.stamp();
  if (!account.surely_late() || stamp == nullptr ||
      stamp->written_after_ns < stamp->made_until_ns ||
      stamp->written_after_ns - stamp->made_until_ns < kLateWriteNs) {
    return account.end_ns();
  }
  return std::clamp<uint64_t>(stamp->made_until_ns, account.start_ns(), account.end_ns());
}

// Whether the stamp of a late completion shows that it was written soon after it was made; empty:
// not.
std::string made_late(const Account& account) {
  const ev_stamp* stamp = account.stamp();
  if (stamp == nullptr || stamp->written_until_ns < stamp->made_after_ns) {
    return {};
  }
  const uint64_t apart_ns = stamp->written_until_ns - stamp->made_after_ns;
  return apart_ns >= account.duration_ns() / 2
             ? std::string()
             : fmt::format(
                   "by its timestamp the adapter made it no more than {} before it lay in "
                   "memory",
                   format_duration(apart_ns));
}

// What lies between the thread's kernel events (off the CPU, verbs, system calls, faults).
std::vector<Stretch> find_stretches(const Account& account) {
  std::vector<Claim> events = account.kernel_events();
  for (const Stint& stint : account.activity()) {
    if (stint.activity != Activity::on_cpu) {
      events.push_back({stint.start_ns, stint.end_ns, 0});
    }
  }
  for (const uint64_t change_ns : {vain_until_ns(account), unwritten_from_ns(account)})
    events.push_back({change_ns, change_ns, 0});
  std::sort(events.begin(), events.end(), [](const Claim& left, const Claim& right) {
    return left.start_ns != right.start_ns ? left.start_ns < right.start_ns
                                           : left.end_ns < right.end_ns;
  });
  std::vector<Stretch> stretches;
  uint64_t cursor_ns = account.start_ns();
  for (const Claim& event : events) {
    const uint64_t until_ns = std::min(event.start_ns, account.end_ns());
    if (until_ns > cursor_ns) {
      stretches.push_back({cursor_ns, until_ns});
    }
    cursor_ns = std::max(cursor_ns, event.end_ns);
  }
  if (cursor_ns < account.end_ns()) {
    stretches.push_back({cursor_ns, account.end_ns()});
  }
  return stretches;
}

uint64_t free_ns(const Account& account, uint64_t start_ns, uint64_t end_ns) {
  uint64_t sum_ns = 0;
  for_each_part(account.free_intervals(), start_ns, end_ns,
                [&](const Claim& part) { sum_ns += part.length_ns(); });
  return sum_ns;
}

// A run of short system calls or faults, on average less than kShortNs apart, covers the stretch:
// its user time is what lies between them.
bool lies_in_dense_run(const Account& account, const Stretch& stretch) {
  bool found = false;
  account.thread()->self.for_each_overlapping(
      stretch.start_ns, stretch.end_ns, [&](const SelfKernel& self) {
        const uint64_t length_ns = self.header.end_ns - self.header.start_ns;
        const uint64_t between_ns = length_ns > self.sum_ns ? length_ns - self.sum_ns : 0;
        found = found ||
                (self.count > 1 && self.header.start_ns <= stretch.start_ns &&
                 self.header.end_ns >= stretch.end_ns && between_ns / (self.count - 1) < kShortNs);
      });
  return found;
}

class UserTime {
 public:
  explicit UserTime(Account& account) : account_(account) {
    if (standstill_matters(account)) {
      standstills_ = standstills_in(account);
    }
  }

  void claim() {
    for (const Stretch& stretch : find_stretches(account_)) {
      examine(stretch);
    }
    uint64_t budget_ns = stolen_budget_ns(account_);
    take_stolen(Proof::stopped, budget_ns);
    give_to_smis();
    take_stolen(Proof::unproven, budget_ns);
    accept_rest();
    budget_ns = certainly_in_user_time(budget_ns);
    take_stolen(Proof::proven, budget_ns);
    std::vector<Claim> wanted = std::move(stolen_);
    for (const Piece& piece : pieces_) {
      wanted.push_back(piece.part);
    }
    account_.claim(innermost(std::move(wanted)));
  }

 private:
  void examine(const Stretch& stretch);
  void add(const Stretch& part, Proof proof, uint32_t origin);
  void examine_piece(const Stretch& piece);
  void take_stolen(Proof proof, uint64_t& budget_ns);
  void give_to_smis();
  void accept_rest();
  uint64_t certainly_in_user_time(uint64_t budget_ns) const;

  std::vector<Claim> unanswered_in(const Stretch& stretch);
  std::vector<Claim> stops_in(const Stretch& stretch);
  bool proven_without_sample(const Stretch& stretch) const;
  bool absence_is_evidence() const;
  uint32_t user_origin(const Stretch& stretch, const std::vector<Sighting>& sightings, Grade grade);
  uint32_t unproven_origin(const Stretch& stretch, const std::vector<Sighting>& sightings);

  // The function that a stretch's samples found.
  struct Sampled {
    const Sample* sample = nullptr;  // one that found it; nullptr: there is no sample
    std::string function;
    uint64_t samples = 0;
  };
  // Where returns are not timed, user code after a poll's entry may still be that poll.
  enum class Place { outside_poll_function, poll_function, unknown };
  Sampled most_sampled(const std::vector<Sighting>& sightings) const;
  Place place_of(const Sampled& sampled) const;
  uint64_t innermost_ip(const Sample& sample) const;
  std::string function_of(const Sample& sample) const;

  Account& account_;
  std::vector<Piece> pieces_;  // sorted within a stretch's proof
  std::vector<Claim> stolen_;  // disjoint from pieces_
  std::vector<Claim> standstills_;
  uint64_t user_ns_ = 0;  // sum of all pieces that may be user code
};

// The agent had asked for the sample, and the core did not answer for long. Where it is not known
// when exactly the agent asked, it may have been the agent that was late: all the same the sample
// says nothing of the time before it.
bool answered_late(const Sample& sample) {
  return sample.reason == EV_SAMPLE_SILENCE && sample.on_cpu == 1 && sample.asked_ns != 0 &&
         sample.header.start_ns > sample.asked_ns &&
         sample.header.start_ns - sample.asked_ns > kLateAnswerNs;
}

// Parts in which the agent had asked for a sample and the core did not answer, though user code
// runs with interrupts enabled.
std::vector<Claim> UserTime::unanswered_in(const Stretch& stretch) {
  std::vector<Claim> found;
  if (account_.thread() == nullptr) {
    return found;
  }
  std::optional<uint32_t> unanswered, perhaps;  // made where there is one: most gaps have none
  account_.thread()->samples.for_each_overlapping(
      stretch.start_ns, account_.end_ns(), [&](const Sample& sample) {
        if (!answered_late(sample)) {
          return;
        }
        const bool surely = (sample.flags & EV_SAMPLE_ASKED_LATER) == 0;
        const uint64_t from_ns =
            surely ? stretch.start_ns : std::max(stretch.start_ns, vain_until_ns(account_));
        const Claim part =
            clipped({sample.asked_ns, sample.header.start_ns, 0}, from_ns, stretch.end_ns);
        if (part.start_ns < part.end_ns &&
            free_ns(account_, part.start_ns, part.end_ns) > kLateAnswerNs) {
          std::optional<uint32_t>& origin = surely ? unanswered : perhaps;
          if (!origin) {
            origin = account_.unexplained(
                surely ? "the core did not answer the sampler's interrupt: it was not running this "
                         "system, or ran with interrupts off"
                       : "the core answered the sampler's interrupt late: it was not running this "
                         "system, or ran with interrupts off, if not the sampler itself was late");
          }
          found.push_back({part.start_ns, part.end_ns, *origin});
        }
      });
  return found;
}

// Parts in which the core did not run, be they claimed already or not.
std::vector<Claim> UserTime::stops_in(const Stretch& stretch) {
  std::vector<Claim> stops = unanswered_in(stretch);
  if (!standstills_.empty()) {
    const uint32_t origin = account_.unexplained(
        "neither this core nor the agent's own gave a sign: the machine may have stood still");
    for_each_part(standstills_, stretch.start_ns, stretch.end_ns, [&](const Claim& part) {
      stops.push_back({part.start_ns, part.end_ns, origin});
    });
  }
  for (const Claim& claim : account_.claims()) {
    const Claim part = clipped(claim, stretch.start_ns, stretch.end_ns);
    if (part.start_ns < part.end_ns && account_.origin(claim.origin).key.cause == Cause::stolen) {
      stops.push_back(part);
    }
  }
  return outermost(std::move(stops));
}

bool UserTime::proven_without_sample(const Stretch& stretch) const {
  const ev_gap& gap = account_.gap();
  if (stretch.start_ns < vain_until_ns(account_)) {
    return true;  // it polled all the while
  }
  if (gap.gap_kind == EV_GAP_IN_POLL && gap.error_completions > 0) {
    return true;  // the poll function had errors to handle, and returned them
  }
  if (free_ns(account_, stretch.start_ns, stretch.end_ns) < kShortNs) {
    return true;
  }
  return account_.thread() != nullptr && lies_in_dense_run(account_, stretch);
}

// Every entry into the kernel was watched and none was seen, and nothing was stolen: what is left
// is user code. Not so where records were lost or the end of the gap was never seen.
bool UserTime::absence_is_evidence() const {
  return account_.steal().known && account_.steal().ns < kStealNoiseNs &&
         account_.smis().count == 0 && standstills_.empty() && account_.evidence_complete() &&
         (account_.gap().flags & EV_GAP_OPEN) == 0;
}

uint64_t UserTime::innermost_ip(const Sample& sample) const {
  const ev_stack* stack = account_.thread()->stacks.find(sample.stacks.user);
  return stack != nullptr && stack->frames > 0 ? stack->ip[0] : sample.user_ip;
}

std::string UserTime::function_of(const Sample& sample) const {
  const uint64_t ip = innermost_ip(sample);
  const Frame frame = account_.names().user_frame(ip);
  return !frame.function.empty() || ip == 0 ? frame.function : hex(ip);
}

UserTime::Place UserTime::place_of(const Sampled& sampled) const {
  const std::vector<PollSite>& sites = account_.session().sites;
  if ((account_.gap().flags & EV_GAP_NO_RETURN) == 0 || account_.gap().site >= sites.size()) {
    return Place::outside_poll_function;
  }
  const PollSite& site = sites[account_.gap().site];
  const uint64_t ip = innermost_ip(*sampled.sample);
  const ev_stack* stack = account_.thread()->stacks.find(sampled.sample->stacks.user);
  bool called_by_it = false;
  for (size_t i = 0; stack != nullptr && i < stack->frames && i < EV_STACK_FRAMES; ++i) {
    called_by_it = called_by_it || site.contains(stack->ip[i]);
  }
  if (site.contains(ip) || called_by_it ||
      (!sampled.function.empty() && sampled.function == site.name)) {
    return Place::poll_function;
  }
  const bool size_known = site.function_bytes != 0;
  const bool in_its_file =
      !site.module.empty() && account_.names().user_frame(ip).module == site.module;
  return !size_known && in_its_file ? Place::unknown : Place::outside_poll_function;
}

// The function that most samples found, the first of several. A stripped poll function's samples
// have no common name, but they are all in it.
UserTime::Sampled UserTime::most_sampled(const std::vector<Sighting>& sightings) const {
  std::map<std::string, uint64_t> votes;
  uint64_t poll_function_votes = 0;
  Sampled most;
  uint64_t most_votes = 0;
  for (const Sighting& sighting : sightings) {
    if (sighting.found != Found::user && sighting.found != Found::untold) {
      continue;
    }
    ++most.samples;
    const std::string function = function_of(*sighting.sample);
    const bool polls = place_of({sighting.sample, function, 1}) == Place::poll_function;
    uint64_t& count = polls ? poll_function_votes : votes[function];
    if (++count > most_votes) {
      most_votes = count;
      most.sample = sighting.sample;
      most.function = function;
    }
  }
  return most;
}

// What the user code of a stretch was, named by its samples.
uint32_t UserTime::user_origin(const Stretch& stretch, const std::vector<Sighting>& sightings,
                               Grade grade) {
  Origin origin{.key = {Cause::application}, .source = {}, .grade = grade};
  if (stretch.start_ns < vain_until_ns(account_)) {
    origin.key.cause = Cause::late_completion;
    if (stretch.start_ns >= unwritten_from_ns(account_)) {
      origin.key.a = static_cast<uint64_t>(Lateness::cqe_write);
      origin.grade = std::max(grade, Grade::indirect);
    } else {
      origin.note = account_.text_id(made_late(account_));
    }
    return account_.add_origin(origin);
  }
  if (account_.gap().gap_kind == EV_GAP_IN_POLL) {
    origin.key.cause = Cause::poll_function;
  }
  const Sampled sampled = most_sampled(sightings);
  if (sampled.sample != nullptr) {
    origin.source = sampled.sample;
    origin.samples = sampled.samples;
    origin.key.b = account_.text_id(sampled.function);
    const Place place = place_of(sampled);
    if (place == Place::poll_function) {
      origin.key.cause = Cause::poll_function;
    } else if (place == Place::unknown) {
      origin.grade = std::max(grade, Grade::indirect);
      origin.note = account_.text_id(
          "in the file of the poll function; whether in that function is not known");
    }
  }
  return account_.add_origin(origin);
}

uint32_t UserTime::unproven_origin(const Stretch& stretch, const std::vector<Sighting>& sightings) {
  if (absence_is_evidence()) {
    const uint32_t index = user_origin(stretch, sightings, Grade::weak);
    account_.annotate(index, sightings.empty()
                                 ? "no sample fell into it; it did not enter the kernel, and the "
                                   "steal clock did not advance"
                                 : "the samples do not tell user from kernel code; it did not "
                                   "enter the kernel, and the steal clock did not advance");
    return index;
  }
  const char* why = !account_.evidence_complete() ? "records were lost"
                    : account_.smis().count > 0
                        ? "SMIs were counted, of which nothing says how long they took"
                    : !standstills_.empty()          ? "the machine may have stood still"
                    : !account_.steal().known        ? "the steal clock could not be read"
                    : stolen_budget_ns(account_) > 0 ? "time was stolen from the core"
                                                     : "the end of the gap was not seen";
  return account_.unexplained(
      fmt::format("no record shows the thread in the kernel or off the CPU, no sample shows it in "
                  "user code, and {}",
                  why));
}

void UserTime::add(const Stretch& part, Proof proof, uint32_t origin) {
  for_each_part(account_.free_intervals(), part.start_ns, part.end_ns, [&](Claim free_part) {
    free_part.origin = origin;
    user_ns_ += proof == Proof::contradicted ? 0 : free_part.length_ns();
    pieces_.push_back({free_part, proof});
  });
}

void UserTime::examine(const Stretch& stretch) {
  uint64_t from_ns = stretch.start_ns;
  for (const Claim& stop : stops_in(stretch)) {
    // Nothing tells when it began: after the last that was seen of the thread, and before this.
    uint64_t seen_ns = std::max(from_ns, vain_until_ns(account_));
    for (const Sighting& sighting : sightings_in(account_, {from_ns, stop.start_ns})) {
      if (sighting.found == Found::user) {
        seen_ns = std::max(seen_ns, sighting.at_ns + 1);
      }
    }
    seen_ns = std::min(seen_ns, stop.start_ns);
    examine_piece({from_ns, seen_ns});
    add({seen_ns, stop.start_ns}, Proof::unproven,
        account_.unexplained("in it the core stopped, at an instant that is not known"));
    add({stop.start_ns, stop.end_ns}, Proof::stopped, stop.origin);
    from_ns = stop.end_ns;
  }
  examine_piece({from_ns, stretch.end_ns});
}

void UserTime::examine_piece(const Stretch& stretch) {
  if (stretch.start_ns >= stretch.end_ns) {
    return;
  }
  const std::vector<Sighting> sightings = sightings_in(account_, stretch);
  FreeTime rest(stretch.start_ns, stretch.end_ns);
  std::vector<Claim> doubtful;
  rest.claim(doubtful_parts(account_, stretch, sightings), doubtful);
  for (const Claim& part : doubtful) {
    add({part.start_ns, part.end_ns}, Proof::contradicted, part.origin);
  }
  if (rest.intervals().empty()) {
    return;
  }
  const bool seen = std::any_of(sightings.begin(), sightings.end(), [](const Sighting& sighting) {
    return sighting.found == Found::user;
  });
  const bool proven = seen || proven_without_sample(stretch);
  // A sample proves that user code ran, the steal clock that it ran all the time.
  const Grade grade = !seen || absence_is_evidence() ? Grade::exact : Grade::indirect;
  const uint32_t origin =
      proven ? user_origin(stretch, sightings, grade) : unproven_origin(stretch, sightings);
  for (const Claim& part : rest.intervals()) {
    add({part.start_ns, part.end_ns}, proven ? Proof::proven : Proof::unproven, origin);
  }
}

// Turns up to budget_ns of the pieces with this proof into stolen time.
void UserTime::take_stolen(Proof proof, uint64_t& budget_ns) {
  if (budget_ns == 0) {
    return;
  }
  const uint32_t origin =
      account_.add_origin({.key = {Cause::stolen, static_cast<uint64_t>(Thief::hypervisor)},
                           .source = {},
                           .grade = proof == Proof::stopped ? Grade::exact : Grade::indirect});
  for (Piece& piece : pieces_) {
    const uint64_t taken_ns = std::min(budget_ns, piece.part.length_ns());
    if (piece.proof == proof && taken_ns > 0) {
      stolen_.push_back({piece.part.start_ns, piece.part.start_ns + taken_ns, origin});
      piece.part.start_ns += taken_ns;
      budget_ns -= taken_ns;
    }
  }
}

// The core stopped, and its SMIs are counted: they had it.
void UserTime::give_to_smis() {
  if (!account_.smis().tell) {
    return;
  }
  for (Piece& piece : pieces_) {
    if (piece.proof == Proof::stopped && piece.part.length_ns() > 0) {
      piece.part.origin = account_.stolen_by_smis();
    }
  }
}

// What the steal clock left of the unproven pieces is user code if they are together so short that
// nothing else can lie there.
void UserTime::accept_rest() {
  uint64_t rest_ns = 0;
  Stretch rest{account_.end_ns(), account_.start_ns()};
  for (const Piece& piece : pieces_) {
    if (piece.proof == Proof::unproven) {
      rest_ns += piece.part.length_ns();
      rest = {std::min(rest.start_ns, piece.part.start_ns),
              std::max(rest.end_ns, piece.part.end_ns)};
    }
  }
  if (stolen_.empty() || rest_ns == 0 || rest_ns >= kShortNs || !account_.evidence_complete()) {
    return;
  }
  const uint32_t origin = user_origin(rest, {}, Grade::weak);
  account_.annotate(origin, "what the steal clock left of a stretch without a sample");
  for (Piece& piece : pieces_) {
    if (piece.proof == Proof::unproven) {
      piece.part.origin = origin;
    }
  }
}

// Stolen time beyond what can have fallen into the rest of the gap must have fallen into user code,
// samples or not.
uint64_t UserTime::certainly_in_user_time(uint64_t budget_ns) const {
  const uint64_t elsewhere_ns = account_.duration_ns() - user_ns_ + account_.steal().beside_ns;
  const uint64_t certain_ns = budget_ns > elsewhere_ns ? budget_ns - elsewhere_ns : 0;
  return certain_ns >= kStealNoiseNs ? certain_ns : 0;
}

}  // namespace

void claim_user_time(Account& account) { UserTime(account).claim(); }

}  // namespace pollgap
