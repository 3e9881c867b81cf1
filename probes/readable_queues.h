// SPDX-License-Identifier: Apache-2.0
// Which CQs of a process can be looked at in its memory, and why the others cannot.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "probes/cq_layout.h"
#include "probes/memory_map.h"
#include "probes/memory_reader.h"
#include "probes/send_queue.h"
#include "probes/sites.h"

namespace pollgap {

struct ReadableCq {
  CqRing ring;
  const CqLayout* layout = nullptr;
  std::vector<SendQueue> sends;  // whose completions come to it
  size_t unreadable_sends = 0;   // other QPs whose completions do
};

struct UnreadableCq {
  uint64_t cq = 0;
  std::string reason;
};

struct ReadableQueues {
  std::vector<ReadableCq> cqs;
  std::vector<UnreadableCq> refused;
};

// Of each provider's layouts the one that most of its objects have is taken; an object that lacks
// an invariant of it is refused.
ReadableQueues find_readable_queues(MemoryReader& memory, const MemoryMap& map,
                                    std::span<const ContextInfo> contexts);

// The CQ as it is now, if it is still one of the same context and layout: its ring may be another
// (ibv_resize_cq). nullopt: it has been destroyed, or is being resized.
std::optional<CqRing> find_again(MemoryReader& memory, const MemoryMap& map, const ReadableCq& cq);

}  // namespace pollgap
