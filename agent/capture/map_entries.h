// SPDX-License-Identifier: Apache-2.0
// Walks through a BPF hash map while the kernel changes it.
#pragma once

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <cstdint>

#include "probes/monotonic_clock.h"

namespace pollgap {

// Calls visit(key, value, now): the value was read at or after `now`.
template <typename Key, typename Value, typename Visit>
void for_each_entry(const bpf_map* map, const Visit& visit) {
  const int fd = bpf_map__fd(map);
  Key key{};
  Key next{};
  void* previous = nullptr;
  while (bpf_map_get_next_key(fd, previous, &next) == 0) {
    Value value{};
    key = next;
    previous = &key;
    const uint64_t now = monotonic_ns();
    if (bpf_map_lookup_elem(fd, &key, &value) == 0) visit(key, value, now);
  }
}

}  // namespace pollgap
