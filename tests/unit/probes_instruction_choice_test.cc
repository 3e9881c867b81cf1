// SPDX-License-Identifier: Apache-2.0
#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "probes/elf_image.h"
#include "probes/instruction_choice.h"

namespace pollgap {
namespace {

constexpr uint64_t base = 0x1000;
constexpr KernelVersion old_kernel{5, 10}, new_kernel{6, 18};

Result<EntryChoice> choose(std::initializer_list<int> bytes, KernelVersion kernel = old_kernel,
                           bool arguments_needed = true) {
  const std::vector<uint8_t> code(bytes.begin(), bytes.end());
  return choose_entry(*instruction_set_for(EM_X86_64, kernel), code, base, arguments_needed);
}

TEST(InstructionChoice, FirstInstructionWhenItIsAPush) {
  const auto choice = choose({0x41, 0x57, 0x41, 0x56, 0xc3});  // push %r15; push %r14; ret
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->offset, 0u);
  EXPECT_EQ(choice->execution, ProbeExecution::emulated);
  EXPECT_EQ(choice->first_execution, ProbeExecution::emulated);
  EXPECT_TRUE(choice->arguments_intact);
}

TEST(InstructionChoice, SkipsTheLandingPad) {
  const auto choice = choose({0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0xc3});  // endbr64; push %rbp; ret
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->offset, 4u);
  EXPECT_EQ(choice->execution, ProbeExecution::emulated);
  EXPECT_EQ(choice->first_execution, ProbeExecution::single_stepped);
}

TEST(InstructionChoice, StopsBeforeAnArgumentIsOverwritten) {
  // mov %rdi,%rax; mov %esi,%edi; push %rbx; ret
  const auto choice = choose({0x48, 0x89, 0xf8, 0x89, 0xf7, 0x53, 0xc3});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->offset, 0u);
  EXPECT_EQ(choice->execution, ProbeExecution::single_stepped);
  EXPECT_TRUE(choice->arguments_intact);
}

TEST(InstructionChoice, TakesLaterOneWhereArgumentsDoNotMatter) {
  const auto choice =
      choose({0x48, 0x89, 0xf8, 0x89, 0xf7, 0x53, 0xc3}, old_kernel, /*arguments_needed=*/false);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->offset, 5u);
  EXPECT_EQ(choice->execution, ProbeExecution::emulated);
  EXPECT_FALSE(choice->arguments_intact);
}

TEST(InstructionChoice, ByteRegistersArePartsOfArguments) {
  // xor %al,%al; mov $1,%dl; push %rbx; ret
  const auto choice = choose({0x30, 0xc0, 0xb2, 0x01, 0x53, 0xc3});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->offset, 0u);
}

TEST(InstructionChoice, ABranchIsReachedOnceButNothingAfterIt) {
  // test %rdi,%rdi; je +1; push %rbx; ret
  const auto choice = choose({0x48, 0x85, 0xff, 0x74, 0x01, 0x53, 0xc3});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->offset, 3u);
  EXPECT_EQ(choice->execution, ProbeExecution::emulated);
  // test; jrcxz (not emulated) +1; push; ret
  const auto stopped = choose({0x48, 0x85, 0xff, 0xe3, 0x01, 0x53, 0xc3});
  ASSERT_TRUE(stopped);
  EXPECT_EQ(stopped->offset, 0u);
}

TEST(InstructionChoice, NothingAfterACall) {
  // call *%rax; push %rbx; ret
  const auto choice = choose({0xff, 0xd0, 0x53, 0xc3});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->offset, 0u);
  EXPECT_EQ(choice->execution, ProbeExecution::single_stepped);
}

TEST(InstructionChoice, NothingThatALoopComesBackTo) {
  // sub $8,%rsp; nop; mov (%rdi),%eax; test %eax,%eax; je nop; ret
  const auto choice =
      choose({0x48, 0x83, 0xec, 0x08, 0x90, 0x8b, 0x07, 0x85, 0xc0, 0x74, 0xf9, 0xc3});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->offset, 0u);
  EXPECT_EQ(choice->execution, ProbeExecution::single_stepped);
  // The same loop one instruction later leaves the nop to be passed once.
  const auto before =
      choose({0x48, 0x83, 0xec, 0x08, 0x90, 0x8b, 0x07, 0x85, 0xc0, 0x74, 0xfa, 0xc3});
  ASSERT_TRUE(before);
  EXPECT_EQ(before->offset, 4u);
}

TEST(InstructionChoice, NopsByKernel) {
  const std::initializer_list<int> nop5 = {0x0f, 0x1f, 0x44, 0x00, 0x00, 0xc3};
  EXPECT_EQ(choose(nop5, old_kernel)->execution, ProbeExecution::single_stepped);
  EXPECT_EQ(choose(nop5, new_kernel)->execution, ProbeExecution::emulated);
  const std::initializer_list<int> other_nop5 = {0x66, 0x0f, 0x1f, 0x40, 0x00, 0xc3};
  EXPECT_EQ(choose(other_nop5, new_kernel)->execution, ProbeExecution::single_stepped);
  const std::initializer_list<int> nop2 = {0x66, 0x90, 0xc3};
  EXPECT_EQ(choose(nop2, {6, 1})->execution, ProbeExecution::single_stepped);
  EXPECT_EQ(choose(nop2, {6, 2})->execution, ProbeExecution::emulated);
  EXPECT_EQ(choose({0x90, 0xc3})->execution, ProbeExecution::emulated);
  EXPECT_EQ(choose({0xf3, 0x90, 0xc3})->execution, ProbeExecution::single_stepped);  // pause
  EXPECT_EQ(choose({0x49, 0x90, 0xc3})->execution, ProbeExecution::single_stepped);  // xchg
}

TEST(InstructionChoice, PushFormsThatAreNotEmulated) {
  EXPECT_EQ(choose({0x6a, 0x01, 0xc3})->execution, ProbeExecution::single_stepped);  // push $1
  EXPECT_EQ(choose({0xff, 0x37, 0xc3})->execution,
            ProbeExecution::single_stepped);  // push (%rdi)
  EXPECT_EQ(choose({0x48, 0x55, 0xc3})->execution,
            ProbeExecution::single_stepped);  // push with REX.W
  EXPECT_EQ(choose({0x66, 0x50, 0xc3})->execution, ProbeExecution::single_stepped);  // push %ax
}

TEST(InstructionChoice, RefusesWhatTheKernelRefuses) {
  EXPECT_FALSE(choose({}));
  EXPECT_FALSE(choose({0x0f}));              // half an instruction
  EXPECT_FALSE(choose({0x06}));              // none in 64-bit code
  EXPECT_FALSE(choose({0xf0, 0xff, 0x07}));  // lock incl (%rdi)
  EXPECT_FALSE(choose({0xcc}));              // int3
  EXPECT_FALSE(choose({0xf4}));              // hlt
  EXPECT_FALSE(choose({0x0f, 0x05}));        // syscall
}

TEST(InstructionChoice, UnknownArchitectureHasNoInstructionSet) {
  EXPECT_EQ(instruction_set_for(EM_S390), nullptr);
}

TEST(StartsInstruction, OnlyOnBoundaries) {
  const InstructionSet& set = *instruction_set_for(EM_X86_64);
  const std::vector<uint8_t> code = {0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0x57, 0xc3};
  const std::vector<uint64_t> starts = {base, base + 4, base + 6};
  for (uint64_t at = base - 1; at < base + 9; ++at) {
    const bool expected = std::find(starts.begin(), starts.end(), at) != starts.end();
    EXPECT_EQ(starts_instruction(set, code, base, at), expected) << at - base;
  }
}

// ---- functions that a compiler made ----

struct Compiled {
  EntryChoice choice;
  std::vector<uint8_t> code;
  uint8_t at(uint64_t offset) const { return code.at(offset); }
  bool is_push(uint64_t offset) const {
    const uint64_t opcode = at(offset) == 0x41 ? offset + 1 : offset;
    return at(opcode) >= 0x50 && at(opcode) <= 0x57;
  }
};

class CompiledPrologues : public testing::TestWithParam<bool> {
 protected:
  bool with_landing_pads() const { return GetParam(); }
  uint64_t first() const { return with_landing_pads() ? 4 : 0; }

  Compiled choose(const char* name) {
    const char* path = with_landing_pads() ? POLLGAP_PROLOGUES_CET : POLLGAP_PROLOGUES_PLAIN;
    const auto image = ElfImage::open(FileDescriptor(::open(path, O_RDONLY)), path);
    if (!image) throw std::runtime_error(image.error().message);
    const ElfSymbol* symbol = image->function(name);
    if (symbol == nullptr) throw std::runtime_error(std::string("no function ") + name);
    Compiled compiled;
    compiled.code = image->read(symbol->address, symbol->size);
    const auto choice =
        choose_entry(*instruction_set_for(EM_X86_64, old_kernel), compiled.code, symbol->address);
    if (!choice) throw std::runtime_error(choice.error().message);
    compiled.choice = *choice;
    return compiled;
  }
};

TEST_P(CompiledPrologues, PushAfterTheLandingPad) {
  const Compiled function = choose("saves_registers");
  EXPECT_EQ(function.choice.execution, ProbeExecution::emulated);
  EXPECT_TRUE(function.choice.arguments_intact);
  const uint64_t offset = function.choice.offset;
  EXPECT_GE(offset, first());
  EXPECT_TRUE(function.is_push(offset) || (function.at(offset) & 0xf0) == 0x70 ||
              (function.at(offset) == 0x0f && (function.at(offset + 1) & 0xf0) == 0x80));
  EXPECT_EQ(function.choice.first_execution == ProbeExecution::emulated,
            !with_landing_pads() && function.is_push(0));
}

TEST_P(CompiledPrologues, TheEarlyBranchItself) {
  const Compiled function = choose("returns_early");
  EXPECT_EQ(function.choice.execution, ProbeExecution::emulated);
  EXPECT_TRUE(function.choice.arguments_intact);
}

TEST_P(CompiledPrologues, LeafIsSingleStepped) {
  const Compiled function = choose("leaf");
  EXPECT_EQ(function.choice.execution, ProbeExecution::single_stepped);
  EXPECT_EQ(function.choice.offset, 0u);
}

TEST_P(CompiledPrologues, LoopHeadIsNotTaken) {
  const Compiled function = choose("spins");
  EXPECT_EQ(function.choice.execution, ProbeExecution::single_stepped);
  EXPECT_EQ(function.choice.offset, 0u);
}

INSTANTIATE_TEST_SUITE_P(CfProtection, CompiledPrologues, testing::Bool());

}  // namespace
}  // namespace pollgap
