// SPDX-License-Identifier: Apache-2.0
// mlx5's CQs and send queues in a made-up process memory, for tests and fuzzers of what reads them.
#pragma once

#include <endian.h>

#include "probes/cq_layout.h"
#include "probes/mlx5_queues.h"
#include "tests/unit/probes_synthetic_memory.h"

namespace pollgap {

struct SyntheticMlx5 {
  using Memory = SyntheticMemory;
  static constexpr uint64_t context = Memory::heap + 0x1000, cq = Memory::heap + 0x2000,
                            qp = Memory::heap + 0x3000, buffer = Memory::heap + 0x4000,
                            doorbells = Memory::heap + 0x4800, heads = Memory::heap + 0x5000,
                            send_ring = Memory::heap + 0x6000, ring = Memory::heap + 0x8000;
  static constexpr uint32_t cq_entries = 256, send_blocks = 64, qp_num = 77;

  Memory& memory;
  const CqLayout& cq_layout;
  const SendQueueLayout& send_layout;
  uint32_t entry_bytes = 64;

  void put_all(uint32_t consumed) {
    memory.put_cq(cq, context, 0, false);
    memory.put(cq + cq_layout.active_buffer, buffer);
    memory.put(cq + cq_layout.doorbell_record, doorbells);
    memory.put(cq + cq_layout.entry_bytes, entry_bytes);
    memory.put(buffer, ring);
    put_consumed(consumed);
    memory.put_qp(qp, context, 0, cq);
    const uint64_t queue = qp + send_layout.send_queue;
    memory.put(queue - 8, send_ring);
    memory.put(queue + 8, heads);
    memory.put(queue + 28, send_blocks);
    memory.put(queue + 32, send_blocks);
    memory.put(queue + 80, doorbells + 8);
    put_indices(0, 0);
    put_next_block(0);
  }

  void put_consumed(uint32_t index) {
    memory.put(cq + cq_layout.consumer_index, index);
    memory.put(doorbells, htobe32(index & 0xffffff));
  }
  // The entry with that index, as the adapter writes it.
  void put_entry(uint32_t index, unsigned opcode, uint8_t format = 0) {
    const uint64_t at = ring + uint64_t{index % cq_entries} * entry_bytes + entry_bytes - 1;
    memory.put(
        at, static_cast<uint8_t>(opcode << 4 | format << 2 | ((index & cq_entries) != 0 ? 1 : 0)));
  }
  // When it was made, by the adapter's clock.
  void put_stamp(uint32_t index, uint64_t stamp) {
    memory.put(ring + uint64_t{index % cq_entries} * entry_bytes + entry_bytes - 16,
               htobe64(stamp));
  }

  // What an entry with an error opcode tells of it.
  struct EntryError {
    uint8_t syndrome, vendor;
    uint32_t qp_num;
  };
  void put_error(uint32_t index, const EntryError& error) {
    const uint64_t at = ring + uint64_t{index % cq_entries} * entry_bytes + entry_bytes - 16;
    memory.put(at + 6, error.vendor);
    memory.put(at + 7, error.syndrome);
    memory.put(at + 8, htobe32(error.qp_num | 0x0a000000));  // with the request's opcode
  }

  void put_indices(uint32_t head, uint32_t tail) {
    memory.put(qp + send_layout.send_queue + 36, head);
    memory.put(qp + send_layout.send_queue + 40, tail);
  }
  void put_next_block(uint32_t block) {
    memory.put(qp + send_layout.send_queue + 44, block);
    memory.put(doorbells + 8 + 4, htobe32(block & 0xffff));
  }
  // A work request, the `number`th that was posted, that begins in that block.
  void put_request(uint32_t number, uint32_t block, bool signaled) {
    memory.put(heads + uint64_t{block % send_blocks} * 4, number);
    const uint64_t at = send_ring + uint64_t{block % send_blocks} * 64;
    memory.put(at, htobe32((block & 0xffff) << 8 | 0x08));
    memory.put(at + 4, htobe32(qp_num << 8 | 3));
    memory.put(at + 11, static_cast<uint8_t>(signaled ? 2 << 2 : 0));
  }

  CqInfo cq_info() const {
    return {.address = cq, .context = context, .handle = 3, .cqe = cq_entries - 1};
  }
  QpInfo qp_info() const {
    return {.address = qp, .context = context, .send_cq = cq, .recv_cq = cq, .qp_num = qp_num};
  }
};

}  // namespace pollgap
