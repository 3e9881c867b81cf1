// SPDX-License-Identifier: Apache-2.0
// Looking at rxe's CQs and send queues (soft RoCE): rings that the kernel shares with the process,
// whose header and entries are its ABI (<rdma/rdma_user_rxe.h>). Where the provider keeps the
// pointer to a ring is none; it is found by the mapping that it points to.
//
// The indices in a ring wrap at its end. That the consumer index is what it was does not say, by
// itself, that nothing was consumed: a whole round may have been, and a ring may have two entries
// only. What says so, see RxeLooks.
#pragma once

#include "probes/memory_map.h"
#include "probes/memory_reader.h"
#include "probes/provider_queues.h"

namespace pollgap {

void find_rxe_queues(MemoryReader& memory, const MemoryMap& map, const ProviderObjects& objects,
                     ReadableQueues& found);

}  // namespace pollgap
