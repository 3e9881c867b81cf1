// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/uverbs_request.h"

#include <rdma/ib_user_ioctl_cmds.h>

#include <cerrno>

#include "tools/soft-hca/program_memory.h"

namespace pollgap::soft_hca {
namespace {

// UVERBS_ATTR_TYPE_PTR_IN: up to eight bytes are in the attribute itself.
std::span<const std::byte> input_of(const ib_uverbs_attr& attribute) {
  if (attribute.len <= sizeof(attribute.data)) {
    return {reinterpret_cast<const std::byte*>(&attribute.data), attribute.len};
  }
  return {at_address<const std::byte>(attribute.data), attribute.len};
}

std::span<std::byte> output_of(ib_uverbs_attr* attribute) {
  attribute->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
  return {at_address<std::byte>(attribute->data), attribute->len};
}

bool take_attribute(ib_uverbs_attr* attribute, WriteRequest* request, bool* has_command) {
  switch (attribute->attr_id) {
    case UVERBS_ATTR_CORE_IN:
      request->in = input_of(*attribute);
      return true;
    case UVERBS_ATTR_CORE_OUT:
      request->out = output_of(attribute);
      return true;
    case UVERBS_ATTR_WRITE_CMD:
      request->command = static_cast<uint32_t>(attribute->data);
      *has_command = true;
      return true;
    case UVERBS_ATTR_UHW_IN:
      request->driver_in = input_of(*attribute);
      return true;
    case UVERBS_ATTR_UHW_OUT:
      request->driver_out = output_of(attribute);
      return true;
    default:
      return (attribute->flags & UVERBS_ATTR_F_MANDATORY) == 0;
  }
}

}  // namespace

int decode_write_request(ib_uverbs_ioctl_hdr* header, WriteRequest* request) {
  if (header->length != sizeof(*header) + header->num_attrs * sizeof(ib_uverbs_attr)) return EINVAL;
  if (header->reserved1 != 0 || header->reserved2 != 0) return EPROTONOSUPPORT;
  if (header->object_id != UVERBS_OBJECT_DEVICE ||
      header->method_id != UVERBS_METHOD_INVOKE_WRITE) {
    return EPROTONOSUPPORT;
  }
  bool has_command = false;
  for (ib_uverbs_attr& attribute : std::span(header->attrs, header->num_attrs)) {
    if (!take_attribute(&attribute, request, &has_command)) return EPROTONOSUPPORT;
  }
  return has_command ? 0 : EINVAL;
}

bool rest_is_zero(std::span<const std::byte> in, size_t known) {
  return in.size() <= known || std::all_of(in.begin() + static_cast<ptrdiff_t>(known), in.end(),
                                           [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace pollgap::soft_hca
