// SPDX-License-Identifier: Apache-2.0
// The capture reader on any bytes, and, so that the records' checks are reached, on any record
// bytes inside a well-formed block.
#include <sys/mman.h>
#include <unistd.h>
#include <zstd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "agent/capture_file/capture_format.h"
#include "agent/capture_file/capture_reader.h"
#include "agent/capture_file/little_endian.h"

namespace {

void read_all(std::span<const std::byte> file) {
  const int fd = memfd_create("capture", MFD_CLOEXEC);
  if (fd < 0 || write(fd, file.data(), file.size()) != static_cast<ssize_t>(file.size())) {
    std::abort();
  }
  auto reader = pollgap::CaptureReader::open("/proc/self/fd/" + std::to_string(fd));
  while (reader) {
    const auto record = reader->next();
    if (!record || !record.value()) {
      break;
    }
    if (record.value()->size() < pollgap::CaptureFormat::kMinRecordBytes) {
      std::abort();
    }
  }
  close(fd);
}

std::vector<std::byte> as_block(std::span<const std::byte> records) {
  using Format = pollgap::CaptureFormat;
  const size_t headers = Format::kHeaderBytes + Format::kBlockHeaderBytes;
  std::vector<std::byte> file(headers + ZSTD_compressBound(records.size()));
  std::memcpy(file.data(), Format::kMagic.data(), Format::kMagic.size());
  pollgap::store_le32(file.data() + 8, Format::kVersion);
  pollgap::store_le32(file.data() + 12, Format::kRecordAbi);
  const size_t bytes = ZSTD_compress(file.data() + headers, file.size() - headers, records.data(),
                                     records.size(), 1);
  pollgap::store_le32(file.data() + 16, static_cast<uint32_t>(bytes));
  pollgap::store_le32(file.data() + 20, static_cast<uint32_t>(records.size()));
  file.resize(headers + bytes);
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  if (size > 0 && data[0] % 2 == 0) {
    read_all(as_block(bytes.subspan(1)));
  } else {
    read_all(bytes);
  }
  return 0;
}
