// SPDX-License-Identifier: Apache-2.0
// Who the adapter says it is and what it can do: a ConnectX-6 with one InfiniBand port, cut down to
// what is implemented. Used by the sysfs tree and by the query commands, which must agree.
#pragma once

#include <cstdint>

namespace pollgap::soft_hca {

inline constexpr char kDeviceName[] = "mlx5_0";
inline constexpr char kDevicePath[] = "/dev/infiniband/uverbs0";
inline constexpr char kNodeGuidText[] = "506f:6c6c:0067:6170";
inline constexpr uint64_t kNodeGuid = 0x506f6c6c00676170;
inline constexpr char kFirmwareVersionText[] = "20.31.1014";
inline constexpr uint64_t kFirmwareVersion = (20ULL << 32) | (31ULL << 16) | 1014;
inline constexpr char kGidText[] = "fe80:0000:0000:0000:506f:6c6c:0067:6170";

inline constexpr uint32_t kVendorId = 0x2c9;
inline constexpr uint32_t kVendorPartId = 4123;  // 0x101b, ConnectX-6
inline constexpr uint32_t kCompletionVectors = 2;
inline constexpr uint16_t kLid = 1;

// A queue pair's number is a generation, which never is 0 (numbers 0 and 1 are special: InfiniBand
// specification volume 1, 3.5.1) and makes a new queue pair not be taken for an old one; then the
// process, which shares the adapter with others; then a place in that process's table.
inline constexpr uint32_t kSlotBits = 12;
inline constexpr uint32_t kProcessBits = 6;
inline constexpr uint32_t kMaxProcesses = 1u << kProcessBits;
inline constexpr uint32_t kGenerations = 1u << (24 - kSlotBits - kProcessBits);
constexpr uint32_t process_of(uint32_t queue_pair) {
  return queue_pair >> kSlotBits & (kMaxProcesses - 1);
}

inline constexpr uint32_t kMaxQueuePairs = 1u << kSlotBits;
inline constexpr uint32_t kMaxSharedReceiveQueues = 4096;
inline constexpr uint32_t kMaxSharedReceives = 32767;
inline constexpr uint32_t kMaxCompletionQueues = 4096;
inline constexpr uint32_t kMaxMemoryRegions = 65536;
inline constexpr uint32_t kMaxProtectionDomains = 65536;
inline constexpr uint32_t kMaxWorkRequests = 32768;
inline constexpr uint32_t kMaxCqe = (1u << 22) - 1;
inline constexpr uint32_t kMaxSge = 30;
inline constexpr uint32_t kMaxReads = 16;
// The largest number of whole 64-byte blocks whose length the 6-bit ds field (16-byte units) holds.
inline constexpr uint32_t kMaxSendWqeBytes = 960;
inline constexpr uint32_t kMaxReceiveWqeBytes = 512;
inline constexpr uint32_t kMaxMessageBytes = 1u << 30;
inline constexpr uint8_t kActiveMtu = 5;  // IBV_MTU_4096

}  // namespace pollgap::soft_hca
