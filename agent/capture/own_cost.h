// SPDX-License-Identifier: Apache-2.0
// What a kernel entry costs on this machine, measured in this process.
#pragma once

#include <cstdint>

namespace pollgap {

// Whole cost, entry and exit included: the part of it that lies outside the kernel's tracepoints
// (2/3 of a fault in a virtual machine with software page tables) shows in no event.
struct KernelEntryCost {
  uint64_t minor_fault_ns = 0;
  uint64_t system_call_ns = 0;
};

// Takes well under a millisecond; the best of several rounds.
KernelEntryCost measure_kernel_entry_cost();

// What a timer interrupt takes from a thread that does nothing but look at the clock: the lower
// quartile of 21, entry and exit included. Spins for 10 ms. 0: not known; they took too long to be
// nothing else.
uint64_t measure_interrupt_cost_ns();

}  // namespace pollgap
