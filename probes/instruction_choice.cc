// SPDX-License-Identifier: Apache-2.0
#include "probes/instruction_choice.h"

#include <algorithm>

namespace pollgap {
namespace {

ProbeExecution execution_of(const Instruction& instruction) {
  return instruction.emulated ? ProbeExecution::emulated : ProbeExecution::single_stepped;
}

// The lowest address of the function that one of its own jumps goes to: from there on an
// instruction may run more than once in a call. Calls do not count: each is a call of its own.
uint64_t first_jump_target(const InstructionSet& set, std::span<const uint8_t> code,
                           uint64_t address) {
  uint64_t lowest = UINT64_MAX;
  for (uint64_t at = 0; at < code.size();) {
    const auto instruction = set.decode(code.subspan(at), address + at);
    if (!instruction) {  // data within code, or bytes after the function's end
      at += set.alignment();
      continue;
    }
    const bool jumps = instruction->flow == Flow::branch || instruction->flow == Flow::leave;
    if (jumps && instruction->target && *instruction->target >= address &&
        *instruction->target - address < code.size()) {
      lowest = std::min(lowest, *instruction->target);
    }
    at += instruction->length;
  }
  return lowest;
}

}  // namespace

Result<EntryChoice> choose_entry(const InstructionSet& set, std::span<const uint8_t> code,
                                 uint64_t address, bool arguments_needed) {
  const auto first = set.decode(code, address);
  if (!first || !first->probeable) {
    return Error{ExitCode::other, "its first bytes are no instruction that a probe can sit on"};
  }
  EntryChoice choice;
  choice.execution = choice.first_execution = execution_of(*first);
  if (first->emulated) return choice;

  const uint64_t repeated_from = first_jump_target(set, code, address);
  bool intact = true;
  for (uint64_t at = 0; at < code.size() && address + at < repeated_from;) {
    const auto instruction = set.decode(code.subspan(at), address + at);
    if (!instruction) break;
    if (instruction->emulated) {
      choice.offset = at;
      choice.execution = ProbeExecution::emulated;
      choice.arguments_intact = intact;
      return choice;
    }
    // After anything else than straight-line code an instruction may not be reached, or arguments
    // may have changed in a callee.
    if (instruction->flow != Flow::next) break;
    intact = intact && !instruction->writes_arguments;
    if (!intact && arguments_needed) break;
    at += instruction->length;
  }
  return choice;
}

bool starts_instruction(const InstructionSet& set, std::span<const uint8_t> code, uint64_t address,
                        uint64_t at) {
  if (at < address || at - address >= code.size()) return false;
  uint64_t here = 0;
  while (here < at - address) {
    const auto instruction = set.decode(code.subspan(here), address + here);
    if (!instruction) return false;
    here += instruction->length;
  }
  return here == at - address && set.decode(code.subspan(here), at).has_value();
}

}  // namespace pollgap
