// SPDX-License-Identifier: Apache-2.0
// What was seen of a thread at instants of a stretch in which it is thought to be in user code: by
// samples, and by timer interrupts that should have brought one.
#pragma once

#include <cstdint>
#include <vector>

#include "agent/ledger/account.h"

namespace pollgap {

// A part of the gap between two of the thread's kernel events.
struct Stretch {
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
};

enum class Found {
  user,    // executing user code
  uprobe,  // in the probe on a poll
  untold,  // on the CPU, in user or kernel code
  kernel,  // in the kernel, with no evidence that explains it
  absent,  // a timer interrupt on its CPU did not find it
};

struct Sighting {
  uint64_t at_ns = 0;
  Found found = Found::untold;
  const Sample* sample = nullptr;  // nullptr: absent
};

// Sorted by time. Samples in the kernel that are explained are left out.
std::vector<Sighting> sightings_in(const Account& account, const Stretch& stretch);

// The parts around sightings that contradict user code, each up to the next one that found it.
// Their origins are set: they are unexplained. Sorted, disjoint.
std::vector<Claim> doubtful_parts(Account& account, const Stretch& stretch,
                                  const std::vector<Sighting>& sightings);

}  // namespace pollgap
