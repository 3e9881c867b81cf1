// SPDX-License-Identifier: Apache-2.0
// What discovery asks of machine code, whatever the architecture. Each architecture has a file of
// its own; nothing else assumes one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace pollgap {

enum class Flow {
  next,    // goes on with the next instruction
  branch,  // may go on with the next instruction or elsewhere
  call,    // goes on with the next instruction after a call
  leave,   // never goes on with the next instruction: jump, return, trap
};

struct Instruction {
  uint8_t length = 0;
  Flow flow = Flow::next;
  // The kernel runs it by emulation when a uprobe sits on it, and need not single-step a copy.
  bool emulated = false;
  // The kernel accepts a uprobe on it.
  bool probeable = false;
  // It changes one of the registers that hold the first three arguments of a function.
  bool writes_arguments = false;
  bool writes_second_argument = false;
  // It puts this constant (an address of the file) into the second argument's register.
  std::optional<uint64_t> second_argument;
  // Where a direct jump or call goes.
  std::optional<uint64_t> target;
  // The memory word, at an address known from the code alone, that holds where an indirect jump or
  // call goes: an entry of the global offset table.
  std::optional<uint64_t> target_slot;
};

// How the loader computes the word at a relocation's address (psABI of the architecture).
enum class RelocationKind {
  other,
  relative,  // bias + addend
  symbol,    // symbol's address + addend
};

struct KernelVersion {
  int major = 0;
  int minor = 0;
  bool at_least(int wanted_major, int wanted_minor) const {
    return major != wanted_major ? major > wanted_major : minor >= wanted_minor;
  }
};
// Of the running kernel; 0.0 where it cannot be told.
KernelVersion running_kernel();

class InstructionSet {
 public:
  InstructionSet() = default;
  virtual ~InstructionSet() = default;
  InstructionSet(const InstructionSet&) = delete;
  InstructionSet& operator=(const InstructionSet&) = delete;

  // The instruction at the front of `code`, which stands at `address`; nothing where the bytes are
  // not an instruction, or end within one.
  virtual std::optional<Instruction> decode(std::span<const uint8_t> code,
                                            uint64_t address) const = 0;
  virtual RelocationKind relocation_kind(uint32_t type) const = 0;
  // How far to move on where decode() gave nothing.
  virtual uint64_t alignment() const = 0;
};

// For an ELF machine (EM_*), as that kernel treats uprobes; null for one that is not supported.
// Lives as long as the program.
const InstructionSet* instruction_set_for(uint16_t elf_machine,
                                          KernelVersion kernel = running_kernel());

}  // namespace pollgap
