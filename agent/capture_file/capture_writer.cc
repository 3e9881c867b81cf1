// SPDX-License-Identifier: Apache-2.0
#include "agent/capture_file/capture_writer.h"

#include <fcntl.h>
#include <unistd.h>
#include <zstd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "agent/capture_file/capture_format.h"
#include "agent/capture_file/little_endian.h"

namespace pollgap {
namespace {

// Evidence repeats itself: the fastest level already shrinks it several times over, and the agent
// must stay cheap.
constexpr int kCompressionLevel = 1;

}  // namespace

void CaptureWriter::FreeContext::operator()(ZSTD_CCtx_s* context) const { ZSTD_freeCCtx(context); }

CaptureWriter::CaptureWriter(std::string path, int fd)
    : path_(std::move(path)), fd_(fd), context_(ZSTD_createCCtx()) {
  ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_compressionLevel, kCompressionLevel);
  ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_checksumFlag, 1);
  block_.reserve(CaptureFormat::kMaxBlockBytes);
  compressed_.resize(CaptureFormat::kBlockHeaderBytes +
                     ZSTD_compressBound(CaptureFormat::kMaxBlockBytes));
}

CaptureWriter::CaptureWriter(CaptureWriter&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      context_(std::move(other.context_)),
      block_(std::move(other.block_)),
      compressed_(std::move(other.compressed_)),
      failed_(std::move(other.failed_)) {}

CaptureWriter::~CaptureWriter() {
  if (fd_ >= 0) {
    close(fd_);
  }
}

Result<CaptureWriter> CaptureWriter::create(const std::string& path) {
  // Evidence shows what a process did: not for everybody to read.
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) {
    return Error{ExitCode::other, "cannot create the capture file " + path + ": " +
                                      std::strerror(errno) + "; choose another path"};
  }
  CaptureWriter writer(path, fd);
  if (Status failed = writer.write_header()) {
    return *failed;
  }
  return writer;
}

Status CaptureWriter::write_header() {
  std::array<std::byte, CaptureFormat::kHeaderBytes> header{};
  std::memcpy(header.data(), CaptureFormat::kMagic.data(), CaptureFormat::kMagic.size());
  store_le32(header.data() + 8, CaptureFormat::kVersion);
  store_le32(header.data() + 12, CaptureFormat::kRecordAbi);
  return write_all(header);
}

Status CaptureWriter::append(std::span<const std::byte> record) {
  if (failed_) {
    return failed_;
  }
  uint16_t bytes = 0;
  if (record.size() >= CaptureFormat::kMinRecordBytes) {
    std::memcpy(&bytes, record.data() + sizeof(bytes), sizeof(bytes));
  }
  if (bytes != record.size() || bytes == 0) {
    return Error{ExitCode::other, "capture file " + path_ + ": a record of " +
                                      std::to_string(record.size()) +
                                      " bytes does not have the length it claims; not written"};
  }
  if (block_.size() + record.size() > CaptureFormat::kMaxBlockBytes) {
    if (Status failed = flush()) {
      return failed;
    }
  }
  block_.insert(block_.end(), record.begin(), record.end());
  return {};
}

Status CaptureWriter::flush() {
  if (failed_ || block_.empty()) {
    return failed_;
  }
  const size_t frame_bytes = ZSTD_compress2(
      context_.get(), compressed_.data() + CaptureFormat::kBlockHeaderBytes,
      compressed_.size() - CaptureFormat::kBlockHeaderBytes, block_.data(), block_.size());
  if (ZSTD_isError(frame_bytes) != 0) {
    return fail(std::string("compression failed: ") + ZSTD_getErrorName(frame_bytes));
  }
  store_le32(compressed_.data(), static_cast<uint32_t>(frame_bytes));
  store_le32(compressed_.data() + 4, static_cast<uint32_t>(block_.size()));
  block_.clear();
  return write_all({compressed_.data(), CaptureFormat::kBlockHeaderBytes + frame_bytes});
}

Status CaptureWriter::finish() {
  if (Status failed = flush()) {
    return failed;
  }
  const std::array<std::byte, CaptureFormat::kBlockHeaderBytes> end{};
  if (Status failed = write_all(end)) {
    return failed;
  }
  // A pipe or a terminal cannot be synchronized, and need not be.
  if (fsync(fd_) != 0 && errno != EINVAL && errno != EROFS) {
    return fail(std::strerror(errno));
  }
  return {};
}

Status CaptureWriter::write_all(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      return fail(written < 0 ? std::strerror(errno) : "nothing was written");
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return {};
}

Status CaptureWriter::fail(const std::string& what) {
  failed_ = Error{ExitCode::other, "cannot write the capture file " + path_ + ": " + what +
                                       "; what was written before can be replayed"};
  return failed_;
}

}  // namespace pollgap
