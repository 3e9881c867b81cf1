// SPDX-License-Identifier: Apache-2.0
// The mappings of a process, as /proc/PID/maps lists them (proc_pid_maps(5)).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pollgap {

struct Mapping {
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t offset = 0;  // in the file
  bool readable = false;
  bool writable = false;
  bool executable = false;
  bool shared = false;
  std::string device;    // "fe:01"; not stat's st_dev on an overlay or btrfs
  uint64_t inode = 0;    // 0: not a file
  std::string path;      // "/usr/lib/...", "[heap]", "" anonymous; octal escapes resolved
  bool deleted = false;  // the path no longer leads to the file

  bool is_file() const { return inode != 0; }
  bool same_file(const Mapping& other) const {
    return is_file() && inode == other.inode && device == other.device && path == other.path;
  }
};

class MemoryMap {
 public:
  // Lines that do not have the format of proc_pid_maps(5) are skipped, as are mappings beyond the
  // first `max_mappings`: the text comes from the target's doing and may be of any length.
  static MemoryMap parse(std::string_view text, size_t max_mappings = 1'000'000);

  // The mapping that contains the address, or null. Pointers live as long as the map.
  const Mapping* find(uint64_t address) const;
  // The mapping of the file that holds this file offset executable, or null.
  const Mapping* find_executable(const Mapping& file, uint64_t offset) const;

  const std::vector<Mapping>& mappings() const { return mappings_; }

 private:
  std::vector<Mapping> mappings_;  // by start; disjoint
};

}  // namespace pollgap
