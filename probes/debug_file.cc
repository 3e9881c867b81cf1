// SPDX-License-Identifier: Apache-2.0
#include "probes/debug_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <optional>
#include <vector>

namespace pollgap {
namespace {

const std::string debug_root = "/usr/lib/debug";

std::vector<std::string> candidates(const ElfImage& image, const std::string& path) {
  std::vector<std::string> paths;
  const std::string& id = image.build_id();
  if (id.size() > 2) {
    paths.push_back(debug_root + "/.build-id/" + id.substr(0, 2) + "/" + id.substr(2) + ".debug");
  }
  const auto& link = image.debug_link();
  if (!link || link->file_name.find('/') != std::string::npos) return paths;
  const std::string directory = path.substr(0, path.rfind('/') + 1);
  paths.push_back(directory + link->file_name);
  paths.push_back(directory + ".debug/" + link->file_name);
  paths.push_back(debug_root + directory + link->file_name);
  return paths;
}

uint32_t file_crc(int fd) {
  std::array<unsigned char, 65536> buffer;
  uLong crc = crc32(0, nullptr, 0);
  off_t at = 0;
  for (ssize_t got = 0; (got = pread(fd, buffer.data(), buffer.size(), at)) > 0; at += got) {
    crc = crc32(crc, buffer.data(), static_cast<uInt>(got));
  }
  return static_cast<uint32_t>(crc);
}

bool belongs_to(const ElfImage& image, int fd) {
  const auto debug = ElfImage::open(FileDescriptor(fcntl(fd, F_DUPFD_CLOEXEC, 0)), "debug file");
  if (!debug || debug->machine() != image.machine()) return false;
  if (!image.build_id().empty()) return debug->build_id() == image.build_id();
  return image.debug_link() && image.debug_link()->crc == file_crc(fd);
}

}  // namespace

DebugFile find_debug_file(const ElfImage& image, const std::string& path,
                          const FileOpener& opener) {
  for (const std::string& candidate : candidates(image, path)) {
    if (candidate == path) continue;
    FileDescriptor fd = opener(candidate);
    if (fd && belongs_to(image, fd.get())) return {std::move(fd), candidate};
  }
  return {};
}

DebugFile find_debug_file(const ElfImage& image, const std::string& path, const Process& process) {
  DebugFile found = find_debug_file(
      image, path, [&](const std::string& name) { return process.open_in_root(name); });
  if (found.fd) return found;
  return find_debug_file(image, path, [](const std::string& name) {
    return FileDescriptor(::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  });
}

}  // namespace pollgap
