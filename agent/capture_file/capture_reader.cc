// SPDX-License-Identifier: Apache-2.0
#include "agent/capture_file/capture_reader.h"

#include <fcntl.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "agent/capture_file/capture_format.h"
#include "agent/capture_file/little_endian.h"

namespace pollgap {

void CaptureReader::FreeContext::operator()(ZSTD_DCtx_s* context) const { ZSTD_freeDCtx(context); }

CaptureReader::CaptureReader(std::string path, int fd)
    : path_(std::move(path)), fd_(fd), context_(ZSTD_createDCtx()) {}

CaptureReader::CaptureReader(CaptureReader&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      context_(std::move(other.context_)),
      block_(std::move(other.block_)),
      compressed_(std::move(other.compressed_)),
      block_bytes_(other.block_bytes_),
      position_(other.position_),
      block_offset_(other.block_offset_),
      file_offset_(other.file_offset_),
      finished_(other.finished_),
      cut_off_(other.cut_off_),
      failed_(std::move(other.failed_)) {}

CaptureReader::~CaptureReader() {
  if (fd_ >= 0) {
    close(fd_);
  }
}

Result<CaptureReader> CaptureReader::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return Error{ExitCode::other, "cannot open the capture file " + path + ": " +
                                      std::strerror(errno) + "; check the path"};
  }
  CaptureReader reader(path, fd);
  if (Status failed = reader.read_header()) {
    return *failed;
  }
  return reader;
}

Status CaptureReader::read_header() {
  std::array<std::byte, CaptureFormat::kHeaderBytes> header{};
  const Result<size_t> bytes = read_up_to(header.data(), header.size());
  if (!bytes) {
    return bytes.error();
  }
  if (bytes.value() < header.size() ||
      std::memcmp(header.data(), CaptureFormat::kMagic.data(), CaptureFormat::kMagic.size()) != 0) {
    return Error{ExitCode::other,
                 path_ +
                     " is not a pollgap capture: it does not begin with PGCAP at byte 0; give "
                     "a file written by pollgap attach --capture"};
  }
  const uint32_t version = load_le32(header.data() + 8);
  const uint32_t record_abi = load_le32(header.data() + 12);
  if (version != CaptureFormat::kVersion || record_abi != CaptureFormat::kRecordAbi) {
    return Error{ExitCode::other, "capture file " + path_ + " has format " +
                                      std::to_string(version) + "." + std::to_string(record_abi) +
                                      " (at byte 8), this pollgap reads " +
                                      std::to_string(CaptureFormat::kVersion) + "." +
                                      std::to_string(CaptureFormat::kRecordAbi) +
                                      "; replay it with the pollgap that wrote it"};
  }
  return {};
}

Result<size_t> CaptureReader::read_up_to(std::byte* to, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t count = read(fd_, to + done, bytes - done);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      return Error{ExitCode::other, "cannot read the capture file " + path_ + " at byte " +
                                        std::to_string(file_offset_) + ": " + std::strerror(errno) +
                                        "; check the file and its disk"};
    }
    if (count == 0) {
      break;
    }
    done += static_cast<size_t>(count);
    file_offset_ += static_cast<size_t>(count);
  }
  return done;
}

Error CaptureReader::damaged(uint64_t offset, const std::string& what) const {
  return {ExitCode::other, "capture file " + path_ + " is damaged at byte " +
                               std::to_string(offset) + ": " + what +
                               "; the records before it are sound, copy or record it again for "
                               "the rest"};
}

Error CaptureReader::ended_early(uint64_t offset) {
  cut_off_ = true;
  return {ExitCode::other, "capture file " + path_ + " ends at byte " + std::to_string(offset) +
                               " without having been finished (pollgap was killed, or the disk "
                               "was full); the records before that are sound"};
}

Status CaptureReader::read_block() {
  std::array<std::byte, CaptureFormat::kBlockHeaderBytes> header{};
  block_offset_ = file_offset_;
  const Result<size_t> header_bytes = read_up_to(header.data(), header.size());
  if (!header_bytes) {
    return header_bytes.error();
  }
  if (header_bytes.value() < header.size()) {
    return ended_early(file_offset_);
  }
  const uint32_t frame_bytes = load_le32(header.data());
  const uint32_t record_bytes = load_le32(header.data() + 4);
  if (frame_bytes == 0 && record_bytes == 0) {
    finished_ = true;
    return {};
  }
  if (frame_bytes == 0 || frame_bytes > ZSTD_compressBound(CaptureFormat::kMaxBlockBytes) ||
      record_bytes == 0 || record_bytes > CaptureFormat::kMaxBlockBytes) {
    return damaged(block_offset_, "a block of " + std::to_string(frame_bytes) + " bytes for " +
                                      std::to_string(record_bytes) + " bytes of records");
  }
  // Both lengths are bounded by now: the buffers stay small whatever the file claims.
  compressed_.resize(std::max<size_t>(compressed_.size(), frame_bytes));
  block_.resize(std::max<size_t>(block_.size(), record_bytes));
  const Result<size_t> got = read_up_to(compressed_.data(), frame_bytes);
  if (!got) {
    return got.error();
  }
  if (got.value() < frame_bytes) {
    return ended_early(file_offset_);
  }
  const size_t decoded = ZSTD_decompressDCtx(context_.get(), block_.data(), record_bytes,
                                             compressed_.data(), frame_bytes);
  if (ZSTD_isError(decoded) != 0) {
    return damaged(block_offset_, ZSTD_getErrorName(decoded));
  }
  if (decoded != record_bytes) {
    return damaged(block_offset_, "its block holds fewer bytes than it claims");
  }
  block_bytes_ = decoded;
  position_ = 0;
  return {};
}

Result<std::optional<std::span<const std::byte>>> CaptureReader::next() {
  using Record = std::optional<std::span<const std::byte>>;
  while (!failed_ && !finished_ && position_ == block_bytes_) {
    failed_ = read_block();
  }
  if (failed_) {
    return *failed_;
  }
  if (finished_) {
    return Record();
  }
  const size_t left = block_bytes_ - position_;
  uint16_t bytes = 0;
  if (left >= CaptureFormat::kMinRecordBytes) {
    std::memcpy(&bytes, block_.data() + position_ + sizeof(uint16_t), sizeof(bytes));
  }
  if (bytes < CaptureFormat::kMinRecordBytes || bytes > left) {
    failed_ =
        damaged(block_offset_, "a record at " + std::to_string(position_) +
                                   " in its block claims " + std::to_string(bytes) + " bytes");
    return *failed_;
  }
  const std::span<const std::byte> record(block_.data() + position_, bytes);
  position_ += bytes;
  return Record(record);
}

}  // namespace pollgap
