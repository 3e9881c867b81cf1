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

std::vector<std::string> candidates(const DebugFileQuery& query) {
  std::vector<std::string> paths;
  const std::string& id = query.build_id;
  if (id.size() > 2) {
    paths.push_back(debug_root + "/.build-id/" + id.substr(0, 2) + "/" + id.substr(2) + ".debug");
  }
  const std::string& link = query.link_name;
  if (link.empty()) return paths;
  const std::string directory = query.path.substr(0, query.path.rfind('/') + 1);
  if (link.front() == '/') {
    paths.push_back(link);
  } else {
    paths.push_back(directory + link);
    paths.push_back(directory + ".debug/" + link);
    paths.push_back(debug_root + directory + link);
  }
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

bool is_wanted(const DebugFileQuery& query, int fd) {
  const auto debug = ElfImage::open(FileDescriptor(fcntl(fd, F_DUPFD_CLOEXEC, 0)), "debug file");
  if (!debug) return false;
  if (!query.build_id.empty()) return debug->build_id() == query.build_id;
  return query.link_crc == file_crc(fd);
}

}  // namespace

DebugFileQuery debug_file_query(const ElfImage& image, const std::string& path) {
  DebugFileQuery query{path, image.build_id(), {}, 0};
  const auto& link = image.debug_link();
  if (link && link->file_name.find('/') == std::string::npos) {
    query.link_name = link->file_name;
    query.link_crc = link->crc;
  }
  return query;
}

DebugFile find_debug_file(const DebugFileQuery& query, const FileOpener& opener) {
  for (const std::string& candidate : candidates(query)) {
    if (candidate == query.path) continue;
    FileDescriptor fd = opener(candidate);
    if (fd && is_wanted(query, fd.get())) return {std::move(fd), candidate};
  }
  return {};
}

DebugFile find_debug_file(const DebugFileQuery& query, const Process& process) {
  DebugFile found =
      find_debug_file(query, [&](const std::string& name) { return process.open_in_root(name); });
  if (found.fd) return found;
  return find_debug_file(query, [](const std::string& name) {
    return FileDescriptor(::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  });
}

}  // namespace pollgap
