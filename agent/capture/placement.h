// SPDX-License-Identifier: Apache-2.0
// Where the agent runs: never on a core that a target thread polls on, if there is another.
#pragma once

#include <set>

namespace pollgap {

// Keeps every thread of this process off `cpus`. Returns false where none would be left (a machine,
// or a cpuset, with no other CPU): then nothing is changed.
bool keep_off(const std::set<int>& cpus);

}  // namespace pollgap
