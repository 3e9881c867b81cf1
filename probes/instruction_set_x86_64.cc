// SPDX-License-Identifier: Apache-2.0
// x86-64: decoding by Zydis; which instructions the kernel accepts for a uprobe, and which of these
// it emulates, after arch/x86/kernel/uprobes.c of Linux.
#include "probes/instruction_set_x86_64.h"

#include <Zydis/Zydis.h>
#include <elf.h>

#include <algorithm>
#include <array>

namespace pollgap {
namespace {

struct Decoded {
  ZydisDecodedInstruction instruction;
  std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT> operands;
  std::span<const uint8_t> bytes;

  std::span<const ZydisDecodedOperand> all_operands() const {
    return {operands.data(), instruction.operand_count};
  }
  bool has_prefix(uint8_t value) const {
    const auto prefixes = std::span(instruction.raw.prefixes, instruction.raw.prefix_count);
    return std::any_of(prefixes.begin(), prefixes.end(),
                       [&](const auto& prefix) { return prefix.value == value; });
  }
  bool has_rex() const { return (instruction.attributes & ZYDIS_ATTRIB_HAS_REX) != 0; }
};

ZydisRegister enclosing(ZydisRegister part) {
  return ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, part);
}

bool writes(const Decoded& decoded, ZydisRegister whole) {
  const auto operands = decoded.all_operands();
  return std::any_of(operands.begin(), operands.end(), [&](const ZydisDecodedOperand& operand) {
    return operand.type == ZYDIS_OPERAND_TYPE_REGISTER &&
           (operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0 &&
           enclosing(operand.reg.value) == whole;
  });
}

// uprobe_init_insn() and is_prefix_bad() refuse these prefixes; good_insns_64 and good_2byte_insns
// leave out what a user program has no business with.
bool is_probeable(const Decoded& decoded) {
  constexpr std::array<uint8_t, 5> refused_prefixes = {0x26, 0x2e, 0x36, 0x3e, 0xf0};
  for (const uint8_t prefix : refused_prefixes) {
    if (decoded.has_prefix(prefix)) return false;
  }
  if ((decoded.instruction.attributes & ZYDIS_ATTRIB_IS_PRIVILEGED) != 0) return false;
  switch (decoded.instruction.meta.category) {
    case ZYDIS_CATEGORY_INTERRUPT:
    case ZYDIS_CATEGORY_IO:
    case ZYDIS_CATEGORY_IOSTRINGOP:
    case ZYDIS_CATEGORY_SYSCALL:
    case ZYDIS_CATEGORY_SYSRET:
    case ZYDIS_CATEGORY_SYSTEM:
      return false;
    default:
      return decoded.instruction.mnemonic != ZYDIS_MNEMONIC_UD2;
  }
}

// is_cond_jmp_opcode()
bool is_short_conditional(uint8_t opcode) { return opcode >= 0x70 && opcode <= 0x7f; }

// branch_setup_xol_ops() and push_setup_xol_ops().
bool is_emulated(const Decoded& decoded, KernelVersion kernel) {
  const ZydisDecodedInstruction& instruction = decoded.instruction;
  const bool operand_size = decoded.has_prefix(0x66);
  const uint8_t opcode = instruction.opcode;
  if (instruction.opcode_map == ZYDIS_OPCODE_MAP_0F) {
    if (opcode >= 0x80 && opcode <= 0x8f) return !operand_size;  // jcc rel32
    // is_nop5_insn(), since 6.18: exactly this one of the 5-byte forms.
    constexpr std::array<uint8_t, 5> nop5 = {0x0f, 0x1f, 0x44, 0x00, 0x00};
    return kernel.at_least(6, 18) && std::ranges::equal(decoded.bytes, nop5);
  }
  if (instruction.opcode_map != ZYDIS_OPCODE_MAP_DEFAULT) return false;
  if (opcode >= 0x50 && opcode <= 0x57) {  // push: alone, or after the prefix 0x41
    return instruction.length == 1 || (instruction.length == 2 && decoded.bytes[0] == 0x41);
  }
  // nop: "pause" (0xf3) and "xchg %r8,%rax" share the opcode but do something. One with the prefix
  // 0x66 was refused altogether before 6.2.
  if (opcode == 0x90) {
    if (decoded.has_rex() || decoded.has_prefix(0xf3)) return false;
    return !operand_size || kernel.at_least(6, 2);
  }
  if (opcode == 0xe8 || opcode == 0xe9 || opcode == 0xeb || is_short_conditional(opcode)) {
    return !operand_size;
  }
  return false;
}

Flow flow_of(const ZydisDecodedInstruction& instruction) {
  switch (instruction.meta.category) {
    case ZYDIS_CATEGORY_COND_BR:
      return Flow::branch;
    case ZYDIS_CATEGORY_CALL:
      return Flow::call;
    case ZYDIS_CATEGORY_UNCOND_BR:
    case ZYDIS_CATEGORY_RET:
      return Flow::leave;
    default:
      break;
  }
  switch (instruction.mnemonic) {
    case ZYDIS_MNEMONIC_HLT:
    case ZYDIS_MNEMONIC_UD0:
    case ZYDIS_MNEMONIC_UD1:
    case ZYDIS_MNEMONIC_UD2:
    case ZYDIS_MNEMONIC_INT3:
      return Flow::leave;
    case ZYDIS_MNEMONIC_XBEGIN:
      return Flow::branch;
    default:
      return Flow::next;
  }
}

// Where a jump or call goes, from its first operand.
void set_target(const Decoded& decoded, uint64_t address, Instruction& out) {
  const ZydisDecodedOperand& operand = decoded.operands[0];
  ZyanU64 target = 0;
  if (ZYAN_FAILED(ZydisCalcAbsoluteAddress(&decoded.instruction, &operand, address, &target))) {
    return;
  }
  if (operand.type == ZYDIS_OPERAND_TYPE_IMMEDIATE) {
    out.target = target;
  } else if (operand.type == ZYDIS_OPERAND_TYPE_MEMORY && operand.mem.base == ZYDIS_REGISTER_RIP) {
    out.target_slot = target;
  }
}

// lea constant(%rip),%rsi, or mov $constant,%esi in a program that is not position-independent.
std::optional<uint64_t> second_argument(const Decoded& decoded, uint64_t address) {
  const auto& operands = decoded.operands;
  if (decoded.instruction.operand_count < 2 || operands[0].type != ZYDIS_OPERAND_TYPE_REGISTER ||
      enclosing(operands[0].reg.value) != ZYDIS_REGISTER_RSI) {
    return std::nullopt;
  }
  if (decoded.instruction.mnemonic == ZYDIS_MNEMONIC_LEA &&
      operands[1].mem.base == ZYDIS_REGISTER_RIP) {
    ZyanU64 target = 0;
    if (ZYAN_SUCCESS(
            ZydisCalcAbsoluteAddress(&decoded.instruction, &operands[1], address, &target))) {
      return target;
    }
  }
  if (decoded.instruction.mnemonic == ZYDIS_MNEMONIC_MOV &&
      operands[1].type == ZYDIS_OPERAND_TYPE_IMMEDIATE && operands[0].size >= 32) {
    return operands[1].imm.value.u;
  }
  return std::nullopt;
}

class X86_64 : public InstructionSet {
 public:
  explicit X86_64(KernelVersion kernel) : kernel_(kernel) {
    ZydisDecoderInit(&decoder_, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  }

  std::optional<Instruction> decode(std::span<const uint8_t> code,
                                    uint64_t address) const override {
    Decoded decoded;
    if (ZYAN_FAILED(ZydisDecoderDecodeFull(&decoder_, code.data(), code.size(),
                                           &decoded.instruction, decoded.operands.data()))) {
      return std::nullopt;
    }
    decoded.bytes = code.first(decoded.instruction.length);
    Instruction out;
    out.length = decoded.instruction.length;
    out.flow = flow_of(decoded.instruction);
    out.probeable = is_probeable(decoded);
    out.emulated = out.probeable && is_emulated(decoded, kernel_);
    out.writes_second_argument = writes(decoded, ZYDIS_REGISTER_RSI);
    out.writes_arguments = out.writes_second_argument || writes(decoded, ZYDIS_REGISTER_RDI) ||
                           writes(decoded, ZYDIS_REGISTER_RDX);
    out.second_argument = second_argument(decoded, address);
    if (out.flow != Flow::next && decoded.instruction.operand_count > 0) {
      set_target(decoded, address, out);
    }
    return out;
  }

  RelocationKind relocation_kind(uint32_t type) const override {
    switch (type) {
      case R_X86_64_RELATIVE:
        return RelocationKind::relative;
      case R_X86_64_64:
      case R_X86_64_GLOB_DAT:
      case R_X86_64_JUMP_SLOT:
        return RelocationKind::symbol;
      default:
        return RelocationKind::other;
    }
  }

  uint64_t alignment() const override { return 1; }

 private:
  KernelVersion kernel_;
  ZydisDecoder decoder_{};
};

}  // namespace

std::unique_ptr<InstructionSet> make_x86_64(KernelVersion kernel) {
  return std::make_unique<X86_64>(kernel);
}

}  // namespace pollgap
