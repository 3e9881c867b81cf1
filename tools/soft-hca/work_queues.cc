// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/work_queues.h"

#include <endian.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "tools/soft-hca/program_memory.h"

namespace pollgap::soft_hca {
namespace {

constexpr uint32_t kUnit = 16;  // WQE lengths are in units of 16 bytes

// libmlx5 writes the WQEs, then a barrier, then the doorbell record.
uint16_t load_counter(uint64_t word_address) {
  auto* word = at_address<uint32_t>(word_address);
  return static_cast<uint16_t>(
      be32toh(std::atomic_ref<uint32_t>(*word).load(std::memory_order_acquire)));
}

// The ds field of the control segment: the WQE's length in 16-byte units.
uint32_t wqe_units(const mlx5_wqe_ctrl_seg& control) { return be32toh(control.qpn_ds) & 0x3f; }

uint32_t blocks_of(uint32_t units) {
  return std::max<uint32_t>(1, (units * kUnit + MLX5_SEND_WQE_BB - 1) / MLX5_SEND_WQE_BB);
}

// The segments after the fixed part: pointers, or inline data with its own length.
bool decode_segments(uint32_t offset, uint32_t end, SendRequest* request) {
  const std::byte* wqe = request->wqe.data();
  while (offset < end) {
    mlx5_wqe_data_seg data{};
    std::memcpy(&data, wqe + offset, sizeof(data));
    const uint32_t count = be32toh(data.byte_count);
    if ((count & MLX5_INLINE_SEG) != 0) {
      const uint32_t length = count & ~uint32_t{MLX5_INLINE_SEG};
      const uint32_t start = offset + static_cast<uint32_t>(sizeof(mlx5_wqe_inl_data_seg));
      if (length > end - start) return false;
      request->segments.add(
          {reinterpret_cast<uint64_t>(wqe + start), length, 0, /*is_inline=*/true});
      offset = (start + length + kUnit - 1) / kUnit * kUnit;
    } else {
      request->segments.add({be64toh(data.addr), count, be32toh(data.lkey), false});
      offset += sizeof(data);
    }
  }
  return true;
}

}  // namespace

uint16_t SendQueue::producer() const { return load_counter(doorbell_ + sizeof(uint32_t)); }

uint32_t SendQueue::blocks_at(uint16_t counter, uint16_t available, uint8_t* opcode) const {
  mlx5_wqe_ctrl_seg control{};
  std::memcpy(&control, block(counter), sizeof(control));
  *opcode = static_cast<uint8_t>(be32toh(control.opmod_idx_opcode) & 0xff);
  return std::min<uint32_t>(blocks_of(wqe_units(control)), available);
}

void SendQueue::decode(uint16_t counter, uint16_t available, SendRequest* request) const {
  mlx5_wqe_ctrl_seg control{};
  std::memcpy(&control, block(counter), sizeof(control));
  const uint32_t units = wqe_units(control);
  const uint32_t blocks = blocks_of(units);
  request->opcode = static_cast<uint8_t>(be32toh(control.opmod_idx_opcode) & 0xff);
  request->signaled = (control.fm_ce_se & MLX5_WQE_CTRL_CQ_UPDATE) != 0;
  request->solicited = (control.fm_ce_se & MLX5_WQE_CTRL_SOLICITED) != 0;
  request->immediate = control.imm;
  request->counter = counter;
  request->blocks = std::min<uint32_t>(blocks, available);
  request->segments.clear();
  request->valid = units != 0 && blocks <= available;
  if (!request->valid) return;

  // A WQE may wrap around the end of the ring.
  for (uint32_t i = 0; i < blocks; ++i) {
    std::memcpy(request->wqe.data() + size_t{i} * MLX5_SEND_WQE_BB,
                block(static_cast<uint16_t>(counter + i)), MLX5_SEND_WQE_BB);
  }
  uint32_t offset = sizeof(control);
  const uint32_t end = units * kUnit;
  if (request->opcode == MLX5_OPCODE_RDMA_WRITE || request->opcode == MLX5_OPCODE_RDMA_WRITE_IMM ||
      request->opcode == MLX5_OPCODE_RDMA_READ) {
    mlx5_wqe_raddr_seg remote{};
    if (offset + sizeof(remote) > end) {
      request->valid = false;
      return;
    }
    std::memcpy(&remote, request->wqe.data() + offset, sizeof(remote));
    request->remote_address = be64toh(remote.raddr);
    request->remote_key = be32toh(remote.rkey);
    offset += sizeof(remote);
  }
  request->valid = decode_segments(offset, end, request);
}

uint16_t ReceiveQueue::producer() const { return load_counter(doorbell_); }

// libmlx5 ends a list that is shorter than the WQE with an invalid key (mlx5_post_recv).
void ReceiveQueue::decode(SegmentList* segments) const {
  segments->clear();
  const auto* wqe =
      at_address<const std::byte>(buffer_) + (size_t{consumer_ & (entries_ - 1)} << shift_);
  const uint32_t places = (1u << shift_) / sizeof(mlx5_wqe_data_seg);
  for (uint32_t i = 0; i < places; ++i) {
    mlx5_wqe_data_seg data{};
    std::memcpy(&data, wqe + i * sizeof(data), sizeof(data));
    const uint32_t key = be32toh(data.lkey);
    if (key == MLX5_INVALID_LKEY) break;
    segments->add({be64toh(data.addr), be32toh(data.byte_count), key, false});
  }
}

}  // namespace pollgap::soft_hca
