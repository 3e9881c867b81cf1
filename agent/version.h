// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pollgap {

// Of this build: the CMake project's version.
inline constexpr const char* version = POLLGAP_VERSION;

}  // namespace pollgap
