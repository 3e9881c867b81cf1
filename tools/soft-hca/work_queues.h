// SPDX-License-Identifier: Apache-2.0
// The send and the receive queue of a queue pair, as rings of work queue entries (WQEs) in the
// program's memory. Layouts: infiniband/mlx5dv.h; how libmlx5 fills them: providers/mlx5/qp.c.
#pragma once

#include <infiniband/mlx5dv.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "tools/soft-hca/program_memory.h"

namespace pollgap::soft_hca {

// A piece of local memory named by a WQE, or bytes inside the WQE itself.
struct Segment {
  uint64_t address = 0;  // inline data: where it is in the SendRequest
  uint32_t length = 0;
  uint32_t key = 0;
  bool is_inline = false;
};

struct SegmentList {
  std::array<Segment, 64> items{};
  uint32_t count = 0;
  uint64_t bytes = 0;

  void clear() { count = 0, bytes = 0; }
  void add(const Segment& segment) {
    items[count++] = segment;
    bytes += segment.length;
  }
};

// The low half of a doorbell record's word. libmlx5 writes the WQEs, then a barrier, then the word.
uint16_t load_counter(uint64_t word_address);

// The scatter list of a receive, in `bytes` bytes at `list`. libmlx5 ends a list that is shorter
// with an invalid key (mlx5_post_recv).
void decode_receive(const std::byte* list, size_t bytes, SegmentList* segments);

inline bool is_atomic(uint8_t opcode) {
  return opcode == MLX5_OPCODE_ATOMIC_CS || opcode == MLX5_OPCODE_ATOMIC_FA;
}

// A send WQE, decoded. Its inline segments point into `wqe`.
struct SendRequest {
  alignas(16) std::array<std::byte, 1024> wqe{};
  uint8_t opcode = 0;
  bool signaled = false;
  bool solicited = false;
  bool valid = false;    // false: the WQE makes no sense
  uint16_t counter = 0;  // its first 64-byte block, which its CQE names
  uint32_t blocks = 1;
  uint32_t immediate = 0;  // big-endian, as in the WQE and the CQE
  uint8_t fence = 0;       // the fence bits of the control segment
  uint64_t remote_address = 0;
  uint32_t remote_key = 0;
  uint64_t swap_or_add = 0;  // of an atomic operation
  uint64_t compare = 0;
  uint32_t datagram_qp = 0;  // of a datagram: where it goes
  uint32_t datagram_key = 0;
  uint16_t datagram_lid = 0;
  uint8_t service_level = 0;
  bool global = false;
  SegmentList segments;
};

class SendQueue {
 public:
  // `blocks`: the ring's size in 64-byte blocks, a power of two, or 0 for no queue. `doorbell`: the
  // queue pair's doorbell record, whose second word is the send producer counter.
  SendQueue(uint64_t buffer, uint32_t blocks, uint64_t doorbell)
      : buffer_(buffer), blocks_(blocks), doorbell_(doorbell) {}

  uint32_t capacity() const { return blocks_; }
  // In blocks, modulo 2^16 (post_send_db).
  uint16_t producer() const;
  uint16_t consumer() const { return consumer_; }
  bool empty() const { return blocks_ == 0 || consumer_ == producer(); }

  // Decodes the WQE at `counter`, which may take up to `available` blocks. `datagram`: it begins
  // with an address vector.
  void decode(uint16_t counter, uint16_t available, bool datagram, SendRequest* request) const;
  // The opcode and size in blocks only.
  uint32_t blocks_at(uint16_t counter, uint16_t available, uint8_t* opcode) const;

  void advance(uint32_t blocks) { consumer_ = static_cast<uint16_t>(consumer_ + blocks); }
  void reset() { consumer_ = 0; }

 private:
  const std::byte* block(uint16_t counter) const {
    return at_address<const std::byte>(buffer_) +
           size_t{counter & (blocks_ - 1)} * MLX5_SEND_WQE_BB;
  }

  uint64_t buffer_;
  uint32_t blocks_;
  uint64_t doorbell_;
  uint16_t consumer_ = 0;
};

class ReceiveQueue {
 public:
  // The first word of the doorbell record is the receive producer counter.
  ReceiveQueue(uint64_t buffer, uint32_t entries, uint32_t shift, uint64_t doorbell)
      : buffer_(buffer), entries_(entries), shift_(shift), doorbell_(doorbell) {}

  uint16_t producer() const;
  uint16_t consumer() const { return consumer_; }
  bool empty() const { return entries_ == 0 || consumer_ == producer(); }

  // The scatter list of the oldest posted receive. The queue must not be empty.
  void decode(SegmentList* segments) const;

  void advance() { ++consumer_; }
  void reset() { consumer_ = 0; }

 private:
  uint64_t buffer_;
  uint32_t entries_;
  uint32_t shift_;
  uint64_t doorbell_;
  uint16_t consumer_ = 0;
};

}  // namespace pollgap::soft_hca
