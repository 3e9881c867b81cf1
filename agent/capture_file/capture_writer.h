// SPDX-License-Identifier: Apache-2.0
// Writes a capture file, block by block, in place.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "probes/result.h"

struct ZSTD_CCtx_s;

namespace pollgap {

class CaptureWriter {
 public:
  // Creates the file, or empties it. Errors: it cannot be created or written.
  static Result<CaptureWriter> create(const std::string& path);

  CaptureWriter(CaptureWriter&& other) noexcept;
  CaptureWriter& operator=(CaptureWriter&&) = delete;
  // Closes the file without finishing it; a reader will say that it was cut off.
  ~CaptureWriter();

  // Adds one record of bpf/evidence.h. Writes a block when one is full. Errors: the record is not
  // a whole one; the block could not be written (disk full, quota, file size limit). After an error
  // nothing more is written, and each further call returns the same error.
  Status append(std::span<const std::byte> record);

  // Writes what was added so far, so that a reader sees it; for calling now and then.
  Status flush();

  // Flushes, marks the capture as finished, and brings it to the disk (fsync).
  Status finish();

 private:
  struct FreeContext {
    void operator()(ZSTD_CCtx_s* context) const;
  };

  CaptureWriter(std::string path, int fd);
  Status write_header();
  Status write_all(std::span<const std::byte> bytes);
  Status fail(const std::string& what);

  std::string path_;
  int fd_ = -1;
  std::unique_ptr<ZSTD_CCtx_s, FreeContext> context_;
  std::vector<std::byte> block_;       // records waiting
  std::vector<std::byte> compressed_;  // block header and frame
  Status failed_;
};

}  // namespace pollgap
