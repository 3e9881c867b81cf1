// SPDX-License-Identifier: Apache-2.0
// The libc calls through which libibverbs and libmlx5 find and drive a device. The program's own
// definitions of them win over libc's for every library that it uses, as long as they are in its
// dynamic symbol table.
#pragma once

#include <string>

namespace pollgap::soft_hca {

class SysfsTree;
class Uverbs;

// From now on the calls that concern the device are answered by `uverbs`, which must live for ever;
// null: none. All others, and before the first call of this function all, go to the kernel.
void answer_device_calls(Uverbs* uverbs);

// The device is there, but `start` is called, once, when it is first opened, and returns who
// answers from then on, or null when the device cannot be had; `start` says why.
void answer_device_calls_from_first_open(Uverbs* (*start)());

// From now on paths in kUnmountedPath are those of `tree`, which must live for ever; null: none.
void answer_sysfs_calls(const SysfsTree* tree);

// Returns an empty string, or why libraries do not reach the functions here.
std::string interposition_problem();

}  // namespace pollgap::soft_hca
