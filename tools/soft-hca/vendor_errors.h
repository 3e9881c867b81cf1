// SPDX-License-Identifier: Apache-2.0
// The vendor error (ibv_wc.vendor_err) that goes with an error completion. NVIDIA does not publish
// their meaning; these are the values that users of ConnectX adapters report with each status.
#pragma once

#include <cstdint>

namespace pollgap::soft_hca {

inline constexpr uint8_t kVendorLocalProtection = 0x51;
inline constexpr uint8_t kVendorLocalOperation = 0x68;
inline constexpr uint8_t kVendorRetryExceeded = 0x81;
inline constexpr uint8_t kVendorRnrRetryExceeded = 0x87;
inline constexpr uint8_t kVendorRemoteAccess = 0x88;
inline constexpr uint8_t kVendorRemoteOperation = 0x89;
inline constexpr uint8_t kVendorRemoteInvalidRequest = 0x8a;
inline constexpr uint8_t kVendorFlushed = 0xf9;

}  // namespace pollgap::soft_hca
