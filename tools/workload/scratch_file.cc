// SPDX-License-Identifier: Apache-2.0
#include "tools/workload/scratch_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace pollgap::workload {
namespace {

Error cannot_write(const std::string& directory) {
  return {ExitCode::other, fmt::format("no scratch file in {}: {} (choose another --scratch)",
                                       directory, std::strerror(errno))};
}

bool fill(int fd, size_t bytes) {
  const std::vector<char> block(1U << 20, 'x');  // not zeroes: those may be stored as a hole
  for (size_t left = bytes; left > 0;) {
    const ssize_t written = write(fd, block.data(), std::min(left, block.size()));
    if (written <= 0) return false;
    left -= static_cast<size_t>(written);
  }
  return fdatasync(fd) == 0;
}

}  // namespace

Result<ScratchFile> ScratchFile::create(const std::string& directory, size_t bytes) {
  std::string path = directory + "/pollgap-workload.XXXXXX";
  ScratchFile scratch;
  scratch.file_ = FileDescriptor(mkostemp(path.data(), O_CLOEXEC));
  if (!scratch.file_) return cannot_write(directory);
  scratch.direct_ = FileDescriptor(open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
  unlink(path.c_str());
  if (!fill(scratch.fd(), bytes)) return cannot_write(directory);
  return scratch;
}

}  // namespace pollgap::workload
