// SPDX-License-Identifier: Apache-2.0
// rxe's CQs and send queues in a made-up process memory, for tests and fuzzers of what reads them.
#pragma once

#include <infiniband/verbs.h>

#include "probes/sites.h"
#include "tests/unit/probes_synthetic_memory.h"

namespace pollgap {

// A QP and the CQ of its sends and receives. Numbers are offsets of <rdma/rdma_user_rxe.h> and
// <rdma/ib_user_verbs.h>.
struct SyntheticRxe {
  using Memory = SyntheticMemory;
  static constexpr uint64_t context = Memory::heap + 0x1000, cq = Memory::heap + 0x2000,
                            qp = Memory::heap + 0x2800, cq_ring = Memory::heap + 0x4000,
                            receive_ring = Memory::heap + 0x5000, send_ring = Memory::heap + 0x6000;
  static constexpr size_t bytes = 0x8000;
  static constexpr uint32_t cq_entries = 8, send_entries = 8, qp_num = 77;
  static constexpr uint32_t cq_entry_log2 = 7, send_entry_log2 = 8;

  struct Entry {
    uint64_t number = 1;  // wr_id
    uint32_t status = 0, opcode = 0, qp_num = 0;
  };
  static constexpr Entry send{1, IBV_WC_SUCCESS, IBV_WC_SEND, qp_num},
      receive{1, IBV_WC_SUCCESS, IBV_WC_RECV, qp_num};

  Memory& memory;
  uint64_t in_cq = 304, in_qp = 304;  // where the pointers to the rings of CQ and receives are

  static MemoryMap map() {
    const auto line = [](uint64_t start, uint64_t end, uint64_t offset, const char* what) {
      char text[128];
      snprintf(text, sizeof(text), "%lx-%lx %s\n", start, end,
               (offset == 0 ? std::string("rw-p 00000000 00:00 0 ")
                            : std::string("rw-s 000") + std::to_string(offset) + "000 00:05 99 ")
                   .append(what)
                   .c_str());
      return std::string(text);
    };
    constexpr const char* device = "/dev/infiniband/uverbs0";
    return MemoryMap::parse(line(Memory::heap, cq_ring, 0, "[heap]") +
                            line(cq_ring, receive_ring, 10, device) +
                            line(receive_ring, send_ring, 20, device) +
                            line(send_ring, Memory::heap + bytes, 30, device));
  }

  void put_all() {
    memory.put_cq(cq, context, 0, false);
    memory.put<int>(cq + offsetof(ibv_cq, cqe), cq_entries - 1);
    memory.put_qp(qp, context, 0, cq);
    put_ring(cq + in_cq, cq_ring, 0x10000, cq_entry_log2, cq_entries);
    put_ring(qp + in_qp, receive_ring, 0x20000, 6, 16);
    put_ring(qp + in_qp + 40, send_ring, 0x30000, send_entry_log2, send_entries);
  }
  void put_ring(uint64_t pointer, uint64_t ring, uint64_t offset, uint32_t log2, uint32_t entries) {
    memory.put(pointer - 16, offset);
    memory.put(pointer - 8, uint32_t{384} + (entries << log2));
    memory.put(pointer, ring);
    memory.put(ring, log2);
    memory.put(ring + 4, entries - 1);
    memory.put(ring + 128, uint32_t{0});
    memory.put(ring + 256, uint32_t{0});
  }

  // What the application does, and what the kernel does.
  void post(uint32_t flags, uint32_t opcode = IBV_WR_SEND) {
    const uint64_t request = entry(send_ring, 128);
    memory.put(request + 12, opcode);
    memory.put(request + 16, flags);
    advance(send_ring, 128);
  }
  void complete(uint32_t packet) {
    memory.put(entry(send_ring, 256) + first_packet, packet);
    memory.put(entry(send_ring, 256) + first_packet + 4, packet);
    advance(send_ring, 256);
  }
  void add_entry(const Entry& value) {
    const uint64_t at = entry(cq_ring, 128);
    memory.put(at, value.number);
    memory.put(at + 8, value.status);
    memory.put(at + 12, value.opcode);
    memory.put(at + 28, value.qp_num);
    advance(cq_ring, 128);
  }
  void consume() { advance(cq_ring, 256); }

  CqInfo cq_info() const {
    return {.address = cq, .context = context, .handle = 3, .cqe = cq_entries - 1};
  }
  QpInfo qp_info() const {
    return {.address = qp, .context = context, .send_cq = cq, .recv_cq = cq, .qp_num = qp_num};
  }

 private:
  static constexpr uint64_t first_packet = 164;  // of rxe_send_wqe

  uint64_t entry(uint64_t ring, uint64_t index) {
    return ring + 384 +
           (uint64_t{*memory.load<uint32_t>(ring + index)} << *memory.load<uint32_t>(ring));
  }
  void advance(uint64_t ring, uint64_t index) {
    memory.put(ring + index,
               (*memory.load<uint32_t>(ring + index) + 1) & *memory.load<uint32_t>(ring + 4));
  }
};

}  // namespace pollgap
