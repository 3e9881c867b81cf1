// SPDX-License-Identifier: Apache-2.0
#include "agent/report/cpu_list.h"

#include <fmt/format.h>

#include <charconv>
#include <iterator>
#include <vector>

namespace pollgap {
namespace {

constexpr uint32_t kMaxCpu = 65535;

std::optional<uint32_t> take_number(std::string_view& text) {
  uint32_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || value > kMaxCpu) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(parsed.ptr - text.data()));
  return value;
}

}  // namespace

std::optional<CpuSet> parse_cpu_list(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  CpuSet cpus;
  while (!text.empty()) {
    const auto first = take_number(text);
    if (!first) return std::nullopt;
    auto last = first;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      last = take_number(text);
      if (!last || *last < *first) return std::nullopt;
    }
    for (uint32_t cpu = *first; cpu <= *last; ++cpu) cpus.insert(cpu);
    if (text.empty()) break;
    if (!text.starts_with(',') || text.size() == 1) return std::nullopt;
    text.remove_prefix(1);
  }
  return cpus;
}

std::string format_cpu_list(const CpuSet& cpus) {
  std::string out;
  for (auto it = cpus.begin(); it != cpus.end();) {
    const uint32_t first = *it;
    uint32_t last = first;
    while (++it != cpus.end() && *it == last + 1) last = *it;
    if (!out.empty()) out += ',';
    out += first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
  }
  return out;
}

std::string format_cpu_mask(const CpuSet& cpus) {
  const uint32_t highest = cpus.empty() ? 0 : *cpus.rbegin();
  std::vector<uint32_t> words(highest / 32 + 1);
  for (const uint32_t cpu : cpus) words[cpu / 32] |= uint32_t{1} << (cpu % 32);
  std::string out = fmt::format("{:x}", words.back());
  for (auto word = std::next(words.rbegin()); word != words.rend(); ++word)
    out += fmt::format(",{:08x}", *word);
  return out;
}

}  // namespace pollgap
