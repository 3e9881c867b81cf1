// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "probes/instruction_set.h"

namespace pollgap {

std::unique_ptr<InstructionSet> make_x86_64(KernelVersion kernel);

}  // namespace pollgap
