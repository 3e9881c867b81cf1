// SPDX-License-Identifier: Apache-2.0
// The capture file (*.pgc): the evidence stream as it was seen, for replay.
//
//   header   "PGCAP" 0 0 0, u32 format version, u32 record ABI version
//   block*   u32 compressed bytes, u32 record bytes, one zstd frame with a checksum
//   end      a block header with both lengths 0: the capture was finished
//
// Integers are little-endian. A block holds whole records (bpf/evidence.h), at most kMaxBlockBytes
// of them. It is written in place, block after block: what an agent that was killed had written
// up to its last block can be read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pollgap {

struct CaptureFormat {
  static constexpr std::array<char, 8> kMagic = {'P', 'G', 'C', 'A', 'P', 0, 0, 0};
  static constexpr uint32_t kVersion = 1;
  // Changes whenever a record of bpf/evidence.h changes its layout or meaning.
  static constexpr uint32_t kRecordAbi = 3;
  static constexpr size_t kHeaderBytes = 16;
  static constexpr size_t kBlockHeaderBytes = 8;
  static constexpr size_t kMaxBlockBytes = 1 << 20;
  static constexpr size_t kMinRecordBytes = 24;  // struct ev_header
};

}  // namespace pollgap
