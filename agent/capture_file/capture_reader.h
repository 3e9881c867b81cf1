// SPDX-License-Identifier: Apache-2.0
// Reads a capture file. The file is input that may be damaged or made up: nothing is believed
// before it is checked, and no claim of the file makes it take more than a few MiB of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "probes/result.h"

struct ZSTD_DCtx_s;

namespace pollgap {

class CaptureReader {
 public:
  // Errors: the file cannot be read, is no capture, or is of another version.
  static Result<CaptureReader> open(const std::string& path);

  CaptureReader(CaptureReader&& other) noexcept;
  CaptureReader& operator=(CaptureReader&&) = delete;
  ~CaptureReader();

  // The next record (header.bytes long), valid until the next call; nullopt at the end of a
  // finished capture. Errors: the file is damaged, or ends before the capture was finished. The
  // records before that have been returned; after an error each call returns it again.
  Result<std::optional<std::span<const std::byte>>> next();

  // After an error: the capture is sound but was never finished (the agent was killed, or the disk
  // was full), so its records may be used as they are.
  bool cut_off() const { return cut_off_; }

 private:
  struct FreeContext {
    void operator()(ZSTD_DCtx_s* context) const;
  };

  CaptureReader(std::string path, int fd);
  Status read_header();
  Status read_block();
  // Reads up to `bytes` bytes into `to`; fewer only at the end of the file.
  Result<size_t> read_up_to(std::byte* to, size_t bytes);
  Error damaged(uint64_t offset, const std::string& what) const;
  Error ended_early(uint64_t offset);

  std::string path_;
  int fd_ = -1;
  std::unique_ptr<ZSTD_DCtx_s, FreeContext> context_;
  std::vector<std::byte> block_;
  std::vector<std::byte> compressed_;
  size_t block_bytes_ = 0;
  size_t position_ = 0;        // in the block
  uint64_t block_offset_ = 0;  // of the block in the file
  uint64_t file_offset_ = 0;
  bool finished_ = false;
  bool cut_off_ = false;
  Status failed_;
};

}  // namespace pollgap
