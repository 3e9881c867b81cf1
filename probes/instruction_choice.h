// SPDX-License-Identifier: Apache-2.0
// On which instruction of a function to put an entry probe.
#pragma once

#include <cstdint>
#include <span>

#include "probes/instruction_set.h"
#include "probes/result.h"
#include "probes/sites.h"

namespace pollgap {

struct EntryChoice {
  uint64_t offset = 0;  // from the function's first instruction
  ProbeExecution execution = ProbeExecution::single_stepped;
  ProbeExecution first_execution = ProbeExecution::single_stepped;  // what a return probe meets
  bool arguments_intact = true;
};

// Chooses the first instruction that the kernel emulates rather than single-steps (a factor of 30
// in price) among those that every call passes exactly once, before any argument register is
// overwritten; where there is none, the function's first instruction.
//
// `code` holds the function from its first instruction on, as far as is known, at `address`.
// Without `arguments_needed` an emulated instruction after an argument register was overwritten
// will do. Error: other, where the first bytes are no instruction that a probe can sit on.
Result<EntryChoice> choose_entry(const InstructionSet& set, std::span<const uint8_t> code,
                                 uint64_t address, bool arguments_needed = true);

// Whether an instruction starts at `at`, decoding from the function's first instruction on.
bool starts_instruction(const InstructionSet& set, std::span<const uint8_t> code, uint64_t address,
                        uint64_t at);

}  // namespace pollgap
