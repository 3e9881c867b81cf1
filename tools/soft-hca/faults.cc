// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/faults.h"

#include <algorithm>

namespace pollgap::soft_hca {
namespace {

uint32_t bit(FaultKind kind) { return 1u << static_cast<uint32_t>(kind); }

// Those whose log line tells of the whole time; the others log each happening.
bool logged_at_end(FaultKind kind) {
  return kind == FaultKind::hold || kind == FaultKind::rnr || kind == FaultKind::pause ||
         kind == FaultKind::slow;
}

}  // namespace

const char* name_of(FaultKind kind) {
  switch (kind) {
    case FaultKind::hold:
      return "hold";
    case FaultKind::delay:
      return "delay";
    case FaultKind::drop_request:
      return "drop-request";
    case FaultKind::drop_response:
      return "drop-response";
    case FaultKind::rnr:
      return "rnr";
    case FaultKind::pause:
      return "pause";
    case FaultKind::slow:
      return "slow";
    case FaultKind::fail:
      return "fail";
    case FaultKind::fatal:
      return "fatal";
    case FaultKind::overrun:
      return "overrun";
  }
  return "?";
}

void FaultLog::add(const FaultEvent& event) {
  const uint64_t written = written_.load(std::memory_order_relaxed);
  if (written - taken_.load(std::memory_order_acquire) == events_.size()) {
    lost_.fetch_add(1);
    return;
  }
  events_[written % events_.size()] = event;
  written_.store(written + 1, std::memory_order_release);
}

bool FaultLog::take(FaultEvent* event) {
  const uint64_t taken = taken_.load(std::memory_order_relaxed);
  if (taken == written_.load(std::memory_order_acquire)) return false;
  *event = events_[taken % events_.size()];
  taken_.store(taken + 1, std::memory_order_release);
  return true;
}

uint32_t Faults::add(Fault fault) {
  for (Fault& place : faults_) {
    if (place.id != 0) continue;
    fault.id = next_id_++;
    place = fault;
    update();
    return fault.id;
  }
  return 0;
}

void Faults::update() {
  active_ = 0;
  next_end_ns_ = kForEver;
  for (const Fault& fault : faults_) {
    if (fault.id == 0) continue;
    active_ |= bit(fault.kind);
    next_end_ns_ = std::min(next_end_ns_, fault.end_ns);
  }
}

void Faults::end(Fault* fault, uint64_t now_ns) {
  if (logged_at_end(fault->kind)) {
    log_.add({fault->kind, fault->id, fault->queue_pair, fault->cq, fault->start_ns,
              std::min(fault->end_ns, now_ns), fault->happened});
  }
  fault->id = 0;
}

bool Faults::remove(uint32_t id, uint64_t now_ns) {
  for (Fault& fault : faults_) {
    if (id == 0 || fault.id != id) continue;
    end(&fault, now_ns);
    update();
    return true;
  }
  return false;
}

void Faults::remove_all(uint64_t now_ns) {
  for (Fault& fault : faults_) {
    if (fault.id != 0) end(&fault, now_ns);
  }
  update();
}

void Faults::expire(uint64_t now_ns) {
  if (now_ns < next_end_ns_) return;
  for (Fault& fault : faults_) {
    if (fault.id != 0 && fault.end_ns <= now_ns) end(&fault, now_ns);
  }
  update();
}

// Counts one that the fault could happen to.
bool Faults::due(Fault* fault) {
  if (fault->left == 0 || ++fault->seen % fault->every != 0) return false;
  if (fault->left != kForEver) --fault->left;
  ++fault->happened;
  return true;
}

uint64_t Faults::held_until_ns(uint32_t queue_pair, uint32_t cq) const {
  if ((active_ & bit(FaultKind::hold)) == 0) return 0;
  uint64_t until = 0;
  for (const Fault& fault : faults_) {
    if (fault.id != 0 && fault.kind == FaultKind::hold && concerns(fault, queue_pair, cq)) {
      until = std::max(until, fault.end_ns);
    }
  }
  return until;
}

uint64_t Faults::release_ns(uint32_t queue_pair, uint32_t cq, uint64_t now_ns, uint32_t* id) {
  *id = 0;
  if ((active_ & (bit(FaultKind::hold) | bit(FaultKind::delay))) == 0) return 0;
  uint64_t release = 0;
  for (Fault& fault : faults_) {
    if (fault.id == 0 || !concerns(fault, queue_pair, cq)) continue;
    if (fault.kind == FaultKind::hold) {
      ++fault.happened;
      release = std::max(release, fault.end_ns);
    } else if (fault.kind == FaultKind::delay && due(&fault)) {
      release = std::max(release, now_ns + fault.delay_ns);
      *id = fault.id;
    }
  }
  return release;
}

uint32_t Faults::strikes(FaultKind kind, uint32_t queue_pair) {
  if ((active_ & bit(kind)) == 0) return 0;
  for (Fault& fault : faults_) {
    if (fault.id != 0 && fault.kind == kind && concerns(fault, queue_pair, fault.cq) &&
        due(&fault)) {
      return fault.id;
    }
  }
  return 0;
}

bool Faults::paused(uint64_t now_ns) const {
  if ((active_ & bit(FaultKind::pause)) == 0) return false;
  return std::any_of(faults_.begin(), faults_.end(), [&](const Fault& fault) {
    return fault.id != 0 && fault.kind == FaultKind::pause && now_ns < fault.end_ns;
  });
}

uint64_t Faults::doorbell_delay_ns() const {
  if ((active_ & bit(FaultKind::slow)) == 0) return 0;
  uint64_t delay = 0;
  for (const Fault& fault : faults_) {
    if (fault.id != 0 && fault.kind == FaultKind::slow) delay = std::max(delay, fault.delay_ns);
  }
  return delay;
}

}  // namespace pollgap::soft_hca
