// SPDX-License-Identifier: Apache-2.0
// Finds a provider's poll function in its file alone, stripped or not: the provider hands its table
// of functions (struct verbs_context_ops) to libibverbs' verbs_set_ops(), and the loader fills that
// table from relocations, which stripping leaves in place.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "probes/elf_image.h"
#include "probes/instruction_set.h"
#include "probes/result.h"

namespace pollgap {

// Which layout of verbs_context_ops to expect.
struct VerbsVersion {
  int private_abi = 0;  // IBVERBS_PABI_VERSION, the NN of IBVERBS_PRIVATE_NN; 0 unknown
  int release = 0;      // rdma-core's major version; 0 unknown
};

// From a file name as rdma-core's build writes it: "libibverbs.so.1.14.44.0" is release 44,
// "libmlx5-rdmav34.so" private ABI 34.
VerbsVersion verbs_version_of(std::string_view path);

// Addresses of the file; 0: the table has no such function.
struct StaticOps {
  uint64_t table = 0;
  uint64_t poll_cq = 0;
  uint64_t post_recv = 0;
  uint64_t post_send = 0;
};

// The tables with a poll function, in the order of their calls. The provider's own evidence of its
// private ABI goes before `version`. Error: other, saying what was not found.
Result<std::vector<StaticOps>> find_static_ops(const ElfImage& provider, const InstructionSet& set,
                                               VerbsVersion version);

}  // namespace pollgap
