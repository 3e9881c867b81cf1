// SPDX-License-Identifier: Apache-2.0
// The exported functions of libibverbs and librdmacm that discovery looks for.
#pragma once

#include <span>
#include <string_view>

namespace pollgap {

// Control-path functions: each enters the kernel, and most talk to the adapter's firmware, so that
// a polling thread that calls one is silent for as long.
std::span<const std::string_view> control_verbs();

// The function after whose call a context or a CQ may be new, best first. verbs_init_cq(cq,
// context, channel, cq_context) runs at the end of every CQ's creation, by whichever function
// (ibv_create_cq, ibv_create_cq_ex, a provider's own), and nothing can be polled before: its first
// call in a context tells of the context, too.
std::span<const std::string_view> open_hooks();

inline constexpr std::string_view wait_for_completion_event = "ibv_get_cq_event";

}  // namespace pollgap
