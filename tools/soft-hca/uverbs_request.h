// SPDX-License-Identifier: Apache-2.0
// The RDMA_VERBS_IOCTL call as the kernel decodes it (rdma/rdma_user_ioctl_cmds.h,
// drivers/infiniband/core/uverbs_ioctl.c).
#pragma once

#include <rdma/rdma_user_ioctl_cmds.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace pollgap::soft_hca {

// A write command inside an ioctl (object DEVICE, method INVOKE_WRITE): the command's own input and
// output, and the driver's (UHW), apart from each other.
struct WriteRequest {
  uint32_t command = 0;  // IB_USER_VERBS_CMD_*, perhaps with IB_USER_VERBS_CMD_FLAG_EXTENDED
  std::span<const std::byte> in;
  std::span<std::byte> out;
  std::span<const std::byte> driver_in;
  std::span<std::byte> driver_out;
};

// Decodes `header`, whose spans then point into it and into the caller's buffers. Returns 0, or the
// errno value that the kernel gives: EPROTONOSUPPORT for any other object, method or mandatory
// attribute (libibverbs then falls back to a write command), EINVAL for a malformed call.
int decode_write_request(ib_uverbs_ioctl_hdr* header, WriteRequest* request);

// As uverbs_request() and ib_copy_from_udata(): a shorter input leaves the rest zero.
template <typename T>
T read_input(std::span<const std::byte> in) {
  T value{};
  if (!in.empty()) {
    std::memcpy(static_cast<void*>(&value), in.data(), std::min(sizeof(T), in.size()));
  }
  return value;
}

// As uverbs_response(): a shorter output takes what fits.
template <typename T>
void write_output(std::span<std::byte> out, const T& value) {
  if (!out.empty()) std::memcpy(out.data(), &value, std::min(sizeof(T), out.size()));
}

// Whether an input longer than `known` bytes is zero there, as unknown fields must be
// (ib_is_udata_cleared).
bool rest_is_zero(std::span<const std::byte> in, size_t known);

}  // namespace pollgap::soft_hca
