// SPDX-License-Identifier: Apache-2.0
#include "probes/memory_map.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace pollgap {
namespace {

// The next word of a line, which it is cut from.
std::string_view take_word(std::string_view& line) {
  const size_t begin = std::min(line.find_first_not_of(' '), line.size());
  line.remove_prefix(begin);
  const size_t end = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(end);
  return word;
}

std::optional<uint64_t> number(std::string_view text, int base) {
  uint64_t value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || rest != text.data() + text.size()) return std::nullopt;
  return value;
}

// The kernel writes a newline in a path as "\012" (seq_path with "\n" to be escaped).
std::string unescape(std::string_view path) {
  std::string out;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path.substr(i, 4) == "\\012") {
      out += '\n';
      i += 3;
    } else {
      out += path[i];
    }
  }
  return out;
}

std::optional<Mapping> parse_line(std::string_view line) {
  Mapping mapping;
  const std::string_view range = take_word(line);
  const size_t dash = range.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto start = number(range.substr(0, dash), 16);
  const auto end = number(range.substr(dash + 1), 16);
  const std::string_view permissions = take_word(line);
  const auto offset = number(take_word(line), 16);
  mapping.device = take_word(line);
  const auto inode = number(take_word(line), 10);
  if (!start || !end || !offset || !inode || *end <= *start || permissions.size() < 4) {
    return std::nullopt;
  }
  mapping.start = *start;
  mapping.end = *end;
  mapping.offset = *offset;
  mapping.inode = *inode;
  mapping.readable = permissions[0] == 'r';
  mapping.writable = permissions[1] == 'w';
  mapping.executable = permissions[2] == 'x';
  mapping.shared = permissions[3] == 's';

  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  constexpr std::string_view deleted = " (deleted)";
  if (mapping.inode != 0 && line.ends_with(deleted)) {
    mapping.deleted = true;
    line.remove_suffix(deleted.size());
  }
  mapping.path = unescape(line);
  return mapping;
}

}  // namespace

MemoryMap MemoryMap::parse(std::string_view text, size_t max_mappings) {
  MemoryMap map;
  while (!text.empty() && map.mappings_.size() < max_mappings) {
    const size_t end = std::min(text.find('\n'), text.size());
    auto mapping = parse_line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!mapping) continue;
    // The kernel lists them in order. A list read while they change may repeat one: keep the first.
    if (!map.mappings_.empty() && mapping->start < map.mappings_.back().end) continue;
    map.mappings_.push_back(std::move(*mapping));
  }
  return map;
}

const Mapping* MemoryMap::find(uint64_t address) const {
  auto after = std::upper_bound(
      mappings_.begin(), mappings_.end(), address,
      [](uint64_t value, const Mapping& mapping) { return value < mapping.start; });
  if (after == mappings_.begin()) return nullptr;
  const Mapping& mapping = *std::prev(after);
  return address < mapping.end ? &mapping : nullptr;
}

const Mapping* MemoryMap::find_executable(const Mapping& file, uint64_t offset) const {
  for (const Mapping& mapping : mappings_) {
    if (mapping.executable && mapping.same_file(file) && offset >= mapping.offset &&
        offset - mapping.offset < mapping.end - mapping.start) {
      return &mapping;
    }
  }
  return nullptr;
}

}  // namespace pollgap
