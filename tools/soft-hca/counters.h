// SPDX-License-Identifier: Apache-2.0
// What the adapter counts, under the names of mlx5's files in ports/1/hw_counters and
// ports/1/counters (the kernel's drivers/infiniband/hw/mlx5/counters.c and
// drivers/infiniband/core/sysfs.c).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pollgap::soft_hca {

enum class Counter : uint8_t {
  // hw_counters
  duplicate_request,
  implied_nak_seq_err,
  local_ack_timeout_err,
  out_of_buffer,
  out_of_sequence,
  packet_seq_err,
  req_cqe_error,
  req_cqe_flush_error,
  req_remote_access_errors,
  req_remote_invalid_request,
  resp_cqe_error,
  resp_cqe_flush_error,
  resp_local_length_error,
  resp_remote_access_errors,
  rnr_nak_retry_err,
  rx_atomic_requests,
  rx_read_requests,
  rx_write_requests,
  // counters
  port_rcv_data,
  port_rcv_packets,
  port_xmit_data,
  port_xmit_discards,
  port_xmit_packets,
  port_xmit_wait,
};

struct CounterFile {
  const char* path;  // under ports/1
  uint32_t divisor;  // the file's unit: data is in words of four bytes
};

// In the order of Counter.
inline constexpr CounterFile kCounterFiles[] = {
    {"hw_counters/duplicate_request", 1},
    {"hw_counters/implied_nak_seq_err", 1},
    {"hw_counters/local_ack_timeout_err", 1},
    {"hw_counters/out_of_buffer", 1},
    {"hw_counters/out_of_sequence", 1},
    {"hw_counters/packet_seq_err", 1},
    {"hw_counters/req_cqe_error", 1},
    {"hw_counters/req_cqe_flush_error", 1},
    {"hw_counters/req_remote_access_errors", 1},
    {"hw_counters/req_remote_invalid_request", 1},
    {"hw_counters/resp_cqe_error", 1},
    {"hw_counters/resp_cqe_flush_error", 1},
    {"hw_counters/resp_local_length_error", 1},
    {"hw_counters/resp_remote_access_errors", 1},
    {"hw_counters/rnr_nak_retry_err", 1},
    {"hw_counters/rx_atomic_requests", 1},
    {"hw_counters/rx_read_requests", 1},
    {"hw_counters/rx_write_requests", 1},
    {"counters/port_rcv_data", 4},
    {"counters/port_rcv_packets", 1},
    {"counters/port_xmit_data", 4},
    {"counters/port_xmit_discards", 1},
    {"counters/port_xmit_packets", 1},
    {"counters/port_xmit_wait", 1},
};
inline constexpr size_t kCounters = std::size(kCounterFiles);
static_assert(kCounters == static_cast<size_t>(Counter::port_xmit_wait) + 1);

// Moved by the device thread, read by any.
class Counters {
 public:
  void add(Counter counter, uint64_t amount = 1) {
    std::atomic<uint64_t>& value = values_[static_cast<size_t>(counter)];
    value.store(value.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
    if (counter < Counter::rx_atomic_requests) {
      events_.store(events_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
  }
  uint64_t get(Counter counter) const {
    return values_[static_cast<size_t>(counter)].load(std::memory_order_relaxed);
  }
  // Moves whenever something other than mere traffic was counted.
  uint64_t events() const { return events_.load(std::memory_order_acquire); }

 private:
  std::array<std::atomic<uint64_t>, kCounters> values_{};
  std::atomic<uint64_t> events_{0};
};

}  // namespace pollgap::soft_hca
