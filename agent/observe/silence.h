// SPDX-License-Identifier: Apache-2.0
// A stretch in which nothing was consumed of a CQ, as far as looking at it from time to time tells.
#pragma once

#include <cstdint>
#include <optional>

#include "probes/provider_queues.h"

namespace pollgap {

// When something happened: after the one look at which it had not, until the one at which it had.
struct Window {
  uint64_t after_ns = 0;
  uint64_t until_ns = 0;

  uint64_t width_ns() const { return until_ns - after_ns; }
  bool operator==(const Window&) const = default;
};

// All times are CLOCK_MONOTONIC.
struct Silence {
  uint64_t cq = 0;  // address of the ibv_cq
  Window begin;     // the last completion before it was consumed
  Window end;       // the one that ended it was consumed; where it is open: the last look
  // The completion that ended it came to lie ready. One that no look found ready came and was
  // consumed between two looks. nullopt: none has come.
  std::optional<Window> ready;
  // Since when signaled sends have been outstanding until `ready`, or until the end; nullopt: not
  // known, or none was.
  std::optional<Window> outstanding;
  uint32_t signaled = 0;  // of them, when they were counted
  // Of which the completion that ended it tells.
  std::optional<CompletionError> error = std::nullopt;
  // When the adapter made that completion, by its own clock, and, where that is known, on the
  // host's.
  std::optional<uint64_t> stamp = std::nullopt;
  std::optional<Window> made = std::nullopt;
  bool open = false;  // it goes on
};

}  // namespace pollgap
