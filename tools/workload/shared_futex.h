// SPDX-License-Identifier: Apache-2.0
// Waiting on a word of memory that processes share (std::atomic::wait works in one process only).
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace pollgap::workload {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

// Returns when the word no longer holds that value.
inline void futex_wait(std::atomic<uint32_t>& word, uint32_t value) {
  while (word.load(std::memory_order_acquire) == value) {
    syscall(SYS_futex, &word, FUTEX_WAIT, value, nullptr, nullptr, 0);
  }
}

// Stores the value and wakes all who wait.
inline void futex_store(std::atomic<uint32_t>& word, uint32_t value) {
  word.store(value, std::memory_order_release);
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace pollgap::workload
