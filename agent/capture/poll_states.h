// SPDX-License-Identifier: Apache-2.0
// What the kernel's programs know of the polls of each thread and CQ.
#pragma once

#include <bpf/bpf.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "agent/capture/kernel_programs.h"
#include "agent/capture/map_entries.h"
#include "bpf/map_types.h"
#include "pollgap_bpf.skel.h"

namespace pollgap {

// The polls of each thread and CQ, those included that only the CPU they were made on knows of.
// Calls visit(key, state, now): the state is as of `now` or later.
template <typename Visit>
void for_each_poll_state(KernelPrograms& programs, const Visit& visit) {
  const auto& maps = programs.object().maps;
  std::vector<quick_polls> quick(static_cast<size_t>(libbpf_num_possible_cpus()));
  for_each_entry<poll_key, poll_state>(
      maps.polls, [&](const poll_key& key, poll_state poll, uint64_t now) {
        // In this order: what is added to the state in between is then seen twice, not never.
        const uint32_t zero = 0;
        if (bpf_map_lookup_elem(bpf_map__fd(maps.quick), &zero, quick.data()) != 0) return;
        if (bpf_map_lookup_elem(bpf_map__fd(maps.polls), &key, &poll) != 0) return;
        for (size_t cpu = 0; cpu < quick.size(); ++cpu) {
          const quick_polls& more = quick[cpu];
          if (static_cast<uint32_t>(more.thread) != key.tid || more.cq != key.cq ||
              more.last_ns <= poll.exit_ns) {
            continue;
          }
          poll.polls += more.polls;
          poll.empty_polls += more.polls;
          poll.exit_ns = more.last_ns;
          poll.last_ns = std::max(poll.last_ns, more.last_ns);
          poll.exit_cpu = static_cast<uint32_t>(cpu);
        }
        visit(key, poll, now);
      });
}

}  // namespace pollgap
