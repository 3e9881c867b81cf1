// SPDX-License-Identifier: Apache-2.0
// Which CQs of a process can be looked at in its memory, and why the others cannot.
#pragma once

#include <optional>
#include <span>

#include "probes/memory_map.h"
#include "probes/memory_reader.h"
#include "probes/provider_queues.h"
#include "probes/sites.h"

namespace pollgap {

ReadableQueues find_readable_queues(MemoryReader& memory, const MemoryMap& map,
                                    std::span<const ContextInfo> contexts);

// The CQ as it is now, if it is still one of the same context and layout: its ring may be another
// (ibv_resize_cq). nullopt: it has been destroyed, or is being resized.
std::optional<ReadableCq> find_again(MemoryReader& memory, const MemoryMap& map,
                                     const ReadableCq& cq);

}  // namespace pollgap
