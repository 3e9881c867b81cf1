// SPDX-License-Identifier: Apache-2.0
// The faults that are in force, and the record of what they did.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace pollgap::soft_hca {

inline constexpr uint64_t kForEver = std::numeric_limits<uint64_t>::max();

enum class FaultKind : uint8_t {
  hold,           // no CQE is written before the fault ends
  delay,          // a CQE is written `delay_ns` late
  drop_request,   // a request is lost on the wire
  drop_response,  // an acknowledgement or other response is lost on the wire
  rnr,            // the responder finds no receive posted
  pause,          // the port neither sends nor takes anything
  slow,           // work begins `delay_ns` after its doorbell
  fail,           // a queue pair goes to the error state
  fatal,          // and tells of a catastrophic error
  overrun,        // a completion queue fails
};
const char* name_of(FaultKind kind);

// What is to happen to whom.
struct Fault {
  FaultKind kind = FaultKind::hold;
  uint32_t id = 0;           // 0: an unused place
  uint32_t queue_pair = 0;   // only this one; 0: any
  uint32_t cq = 0;           // only this one; 0: any
  uint32_t every = 1;        // only every n-th that it could happen to
  uint64_t left = kForEver;  // how often it may still happen
  uint64_t delay_ns = 0;
  uint64_t start_ns = 0;  // CLOCK_MONOTONIC
  uint64_t end_ns = kForEver;
  uint64_t seen = 0;      // how many it could have happened to
  uint64_t happened = 0;  // and how often it has
};

// One line of ground truth: a fault did this from `start_ns` to `end_ns`.
struct FaultEvent {
  FaultKind kind = FaultKind::hold;
  uint32_t fault = 0;
  uint32_t queue_pair = 0;
  uint32_t cq = 0;
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  uint64_t count = 0;  // CQEs, packets, refusals
};

// From the device thread to whoever writes the log; full, it counts what it had to leave out.
class FaultLog {
 public:
  void add(const FaultEvent& event);
  bool take(FaultEvent* event);
  bool empty() const { return taken_.load() == written_.load(); }
  uint64_t lost() const { return lost_.load(); }

 private:
  std::array<FaultEvent, 4096> events_{};
  std::atomic<uint64_t> written_{0};
  std::atomic<uint64_t> taken_{0};
  std::atomic<uint64_t> lost_{0};
};

// For the device thread, but log().
class Faults {
 public:
  // Returns the fault's number, or 0 when there are too many.
  uint32_t add(Fault fault);
  // False: no such fault.
  bool remove(uint32_t id, uint64_t now_ns);
  void remove_all(uint64_t now_ns);
  template <typename Visit>
  void each(Visit visit) const {
    for (const Fault& fault : faults_) {
      if (fault.id != 0) visit(fault);
    }
  }

  // Takes out the faults that have ended; next_end_ns() is when to call it again.
  void expire(uint64_t now_ns);
  uint64_t next_end_ns() const { return next_end_ns_; }

  // When a CQE that is ready now may be written; not after now_ns: at once.
  uint64_t release_ns(uint32_t queue_pair, uint32_t cq, uint64_t now_ns, uint32_t* fault);
  // Until when every CQE of the queue pair is held.
  uint64_t held_until_ns(uint32_t queue_pair, uint32_t cq) const;

  // Whether one of `kind` happens to this packet, or this message; 0 or the fault's number.
  uint32_t strikes(FaultKind kind, uint32_t queue_pair);

  bool paused(uint64_t now_ns) const;
  uint64_t doorbell_delay_ns() const;

  FaultLog& log() { return log_; }

 private:
  static bool concerns(const Fault& fault, uint32_t queue_pair, uint32_t cq) {
    return (fault.queue_pair == 0 || fault.queue_pair == queue_pair) &&
           (fault.cq == 0 || fault.cq == cq);
  }
  static bool due(Fault* fault);
  void end(Fault* fault, uint64_t now_ns);
  void update();

  std::array<Fault, 64> faults_{};
  uint32_t active_ = 0;  // a bit for each kind
  uint32_t next_id_ = 1;
  uint64_t next_end_ns_ = kForEver;
  FaultLog log_;
};

}  // namespace pollgap::soft_hca
