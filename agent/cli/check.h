// SPDX-License-Identifier: Apache-2.0
// What pollgap doctor looks at.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "probes/result.h"

namespace pollgap {

enum class Grade {
  ok,
  warn,  // pollgap works; evidence is missing, or the setting makes gaps
  fail,  // pollgap does not work
};

struct Check {
  Grade grade = Grade::ok;
  std::string name;
  std::string found;               // what is the case
  std::string advice;              // what to do, unless ok
  ExitCode code = ExitCode::done;  // with which attaching would end, when it fails
};

// Kernel, privileges and settings of this machine. Needs no privilege to look.
std::vector<Check> check_machine();

// One process: can it be attached to, and what of its placement makes gaps.
std::vector<Check> check_target(pid_t pid);

}  // namespace pollgap
