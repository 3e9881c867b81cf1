// SPDX-License-Identifier: Apache-2.0
// Finds the ibv_context, ibv_cq and ibv_qp objects in a process's memory, by the invariants that
// every such object has. The memory is the target's, so its content is hostile: no pointer in it is
// followed except through the reader, and nothing is believed that one word alone says.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "probes/memory_map.h"
#include "probes/memory_reader.h"
#include "probes/sites.h"

namespace pollgap {

struct LiveScanOptions {
  // Memory to look through, at most, in each of the two passes (contexts, then what is in them).
  uint64_t max_bytes = uint64_t{4} << 30;
  // Address space to look for resident memory in, at most: reservations can be of any size.
  uint64_t max_span_bytes = uint64_t{64} << 30;
  size_t max_contexts = 64;
  size_t max_objects = 65536;  // CQs and QPs
};

// The functions of an extended CQ (ibv_cq_ex), addresses in the target.
struct ExtendedPoll {
  uint64_t cq = 0;
  uint64_t start_poll = 0;
  uint64_t next_poll = 0;
  uint64_t end_poll = 0;
};

struct LiveContext {
  ContextInfo info;
  std::vector<ExtendedPoll> extended;
};

struct LiveScan {
  std::vector<LiveContext> contexts;
  uint64_t scanned_bytes = 0;
  std::vector<std::string> notes;
};

// `open_fds` are the target's descriptors: the command descriptor of a context in use is one.
LiveScan scan_live_contexts(MemoryReader& memory, const MemoryMap& map,
                            const std::set<int>& open_fds, const LiveScanOptions& options = {});

}  // namespace pollgap
