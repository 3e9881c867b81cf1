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
constexpr uint8_t kFenceMask = 0xe0;

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

bool has_remote_address(uint8_t opcode) {
  return opcode == MLX5_OPCODE_RDMA_WRITE || opcode == MLX5_OPCODE_RDMA_WRITE_IMM ||
         opcode == MLX5_OPCODE_RDMA_READ || is_atomic(opcode);
}

// Reads a fixed segment and steps over it; false when the WQE ends before.
template <typename T>
bool take_segment(const SendRequest& request, uint32_t end, uint32_t* offset, T* segment) {
  if (*offset + sizeof(T) > end) return false;
  std::memcpy(static_cast<void*>(segment), request.wqe.data() + *offset, sizeof(T));
  *offset += sizeof(T);
  return true;
}

bool decode_fixed_segments(bool datagram, uint32_t end, uint32_t* offset, SendRequest* request) {
  if (datagram) {
    mlx5_wqe_datagram_seg address{};
    if (!take_segment(*request, end, offset, &address)) return false;
    request->datagram_qp = be32toh(address.av.dqp_dct) & 0xffffff;
    request->datagram_key = be32toh(address.av.key.qkey.qkey);
    request->datagram_lid = be16toh(address.av.rlid);
    request->service_level = address.av.stat_rate_sl & 0xf;
    request->global = (be32toh(address.av.grh_gid_fl) >> 30 & 1) != 0;
    return true;
  }
  if (!has_remote_address(request->opcode)) return true;
  mlx5_wqe_raddr_seg remote{};
  if (!take_segment(*request, end, offset, &remote)) return false;
  request->remote_address = be64toh(remote.raddr);
  request->remote_key = be32toh(remote.rkey);
  if (!is_atomic(request->opcode)) return true;
  mlx5_wqe_atomic_seg atomic{};
  if (!take_segment(*request, end, offset, &atomic)) return false;
  request->swap_or_add = be64toh(atomic.swap_add);
  request->compare = be64toh(atomic.compare);
  return true;
}

}  // namespace

uint16_t load_counter(uint64_t word_address) {
  auto* word = at_address<uint32_t>(word_address);
  return static_cast<uint16_t>(
      be32toh(std::atomic_ref<uint32_t>(*word).load(std::memory_order_acquire)));
}

void decode_receive(const std::byte* list, size_t bytes, SegmentList* segments) {
  segments->clear();
  const size_t places = std::min(bytes / sizeof(mlx5_wqe_data_seg), segments->items.size());
  for (size_t i = 0; i < places; ++i) {
    mlx5_wqe_data_seg data{};
    std::memcpy(&data, list + i * sizeof(data), sizeof(data));
    const uint32_t key = be32toh(data.lkey);
    if (key == MLX5_INVALID_LKEY) break;
    segments->add({be64toh(data.addr), be32toh(data.byte_count), key, false});
  }
}

uint16_t SendQueue::producer() const { return load_counter(doorbell_ + sizeof(uint32_t)); }

uint32_t SendQueue::blocks_at(uint16_t counter, uint16_t available, uint8_t* opcode) const {
  mlx5_wqe_ctrl_seg control{};
  std::memcpy(&control, block(counter), sizeof(control));
  *opcode = static_cast<uint8_t>(be32toh(control.opmod_idx_opcode) & 0xff);
  return std::min<uint32_t>(blocks_of(wqe_units(control)), available);
}

void SendQueue::decode(uint16_t counter, uint16_t available, bool datagram,
                       SendRequest* request) const {
  mlx5_wqe_ctrl_seg control{};
  std::memcpy(&control, block(counter), sizeof(control));
  const uint32_t units = wqe_units(control);
  const uint32_t blocks = blocks_of(units);
  request->opcode = static_cast<uint8_t>(be32toh(control.opmod_idx_opcode) & 0xff);
  request->signaled = (control.fm_ce_se & MLX5_WQE_CTRL_CQ_UPDATE) != 0;
  request->solicited = (control.fm_ce_se & MLX5_WQE_CTRL_SOLICITED) != 0;
  request->fence = control.fm_ce_se & kFenceMask;
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
  request->valid = decode_fixed_segments(datagram, end, &offset, request) &&
                   decode_segments(offset, end, request);
}

uint16_t ReceiveQueue::producer() const { return load_counter(doorbell_); }

void ReceiveQueue::decode(SegmentList* segments) const {
  const auto* wqe =
      at_address<const std::byte>(buffer_) + (size_t{consumer_ & (entries_ - 1)} << shift_);
  decode_receive(wqe, size_t{1} << shift_, segments);
}

}  // namespace pollgap::soft_hca
