// SPDX-License-Identifier: Apache-2.0
// A made-up process memory with verbs objects in it, for tests and fuzzers of the scanner.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "probes/memory_map.h"
#include "probes/memory_reader.h"

namespace pollgap {

class SyntheticMemory : public MemoryReader {
 public:
  static constexpr uint64_t heap = 0x555500000000, provider = 0x7f0000000000,
                            libibverbs = 0x7f1000000000;
  static constexpr int command_fd = 5, channel_fd = 7;

  explicit SyntheticMemory(size_t heap_bytes = 1 << 16) : heap_(heap_bytes) {}

  size_t read(uint64_t address, std::span<std::byte> out) override {
    bytes_read += out.size();
    if (address < heap || address - heap >= heap_.size()) return 0;
    const size_t offset = address - heap;
    const size_t bytes = std::min(out.size(), heap_.size() - offset);
    memcpy(out.data(), heap_.data() + offset, bytes);
    return bytes;
  }

  // Nothing but the heap is resident.
  std::vector<AddressRange> resident(AddressRange range) override {
    resident_asked += range.end - range.start;
    return range.start - heap < heap_.size() ? std::vector{range} : std::vector<AddressRange>();
  }

  void reserve(uint64_t bytes) { reserved_ = bytes; }

  MemoryMap map() const {
    return MemoryMap::parse(
        (reserved_ > 0 ? line(0x100000000000, 0x100000000000 + reserved_, "rw-p", 0, "") : "") +
        line(heap, heap + heap_.size(), "rw-p", 0, "[heap]") +
        line(provider, provider + 0x10000, "r-xp", 11, "/usr/lib/libmlx5.so.1.24.44.0") +
        line(provider + 0x10000, provider + 0x20000, "rw-p", 11, "/usr/lib/libmlx5.so.1.24.44.0") +
        line(libibverbs, libibverbs + 0x10000, "r-xp", 12, "/usr/lib/libibverbs.so.1.14.44.0"));
  }

  template <typename T>
  void put(uint64_t address, const T& value) {
    memcpy(heap_.data() + (address - heap), &value, sizeof(T));
  }

  // A context with everything in order; fields may be damaged afterwards.
  void put_context(uint64_t address, uint64_t device) {
    put<uint64_t>(address - 8, 648);
    put(address + offsetof(ibv_context, device), device);
    put(address + offsetof(ibv_context, ops.poll_cq), provider + 0x100);
    put(address + offsetof(ibv_context, ops.post_send), provider + 0x200);
    put(address + offsetof(ibv_context, ops.post_recv), provider + 0x300);
    put(address + offsetof(ibv_context, cmd_fd), command_fd);
    put(address + offsetof(ibv_context, num_comp_vectors), 2);
    put(address + offsetof(ibv_context, abi_compat), ~uint64_t{0});
    const char name[] = "mlx5_0";
    put(device + offsetof(ibv_device, name), name);
  }

  void put_cq(uint64_t address, uint64_t context, uint64_t channel, bool extended) {
    put(address + offsetof(ibv_cq, context), context);
    put(address + offsetof(ibv_cq, channel), channel);
    put<uint32_t>(address + offsetof(ibv_cq, handle), 3);
    put<int>(address + offsetof(ibv_cq, cqe), 255);
    if (!extended) return;
    put(address + offsetof(ibv_cq_ex, start_poll), provider + 0x400);
    put(address + offsetof(ibv_cq_ex, next_poll), provider + 0x500);
    put(address + offsetof(ibv_cq_ex, end_poll), provider + 0x600);
  }

  void put_qp(uint64_t address, uint64_t context, uint64_t domain, uint64_t cq) {
    put(address + offsetof(ibv_qp, context), context);
    put(address + offsetof(ibv_qp, pd), domain);
    put(address + offsetof(ibv_qp, send_cq), cq);
    put(address + offsetof(ibv_qp, recv_cq), cq);
    put<uint32_t>(address + offsetof(ibv_qp, qp_num), 77);
    put<uint32_t>(address + offsetof(ibv_qp, state), IBV_QPS_RTS);
    put<uint32_t>(address + offsetof(ibv_qp, qp_type), IBV_QPT_RC);
  }

  void clear() { std::fill(heap_.begin(), heap_.end(), std::byte{0}); }
  std::vector<std::byte>& bytes() { return heap_; }
  size_t bytes_read = 0;
  uint64_t resident_asked = 0;

 private:
  static std::string line(uint64_t start, uint64_t end, const std::string& permissions, int inode,
                          const std::string& path) {
    char text[256];
    snprintf(text, sizeof(text), "%lx-%lx %s 00000000 fe:01 %d    %s\n", start, end,
             permissions.c_str(), inode, path.c_str());
    return text;
  }
  std::vector<std::byte> heap_;
  uint64_t reserved_ = 0;
};

}  // namespace pollgap
