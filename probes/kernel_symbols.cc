// SPDX-License-Identifier: Apache-2.0
#include "probes/kernel_symbols.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>

namespace pollgap {
namespace {

// Code lies in the upper half of the address space on every 64-bit architecture.
constexpr uint64_t kernel_half = uint64_t{1} << 63;
// No function is longer: an address further from the last symbol before it is nobody's.
constexpr uint64_t max_function_bytes = 4 << 20;

}  // namespace

Result<KernelSymbols> KernelSymbols::load() {
  std::ifstream file("/proc/kallsyms");
  KernelSymbols symbols = parse(file);
  if (symbols.size() == 0) {
    return Error{ExitCode::no_privilege,
                 "/proc/kallsyms shows no addresses: run as root or with CAP_SYSLOG, and see "
                 "kernel.kptr_restrict"};
  }
  return symbols;
}

KernelSymbols KernelSymbols::parse(std::istream& text) {
  KernelSymbols symbols;
  for (std::string line; std::getline(text, line);) {
    uint64_t address = 0;
    const char* end = line.data() + line.size();
    const auto [rest, error] = std::from_chars(line.data(), end, address, 16);
    if (error != std::errc() || end - rest < 4 || rest[0] != ' ' || rest[2] != ' ') continue;
    if (std::string_view("tTwW").find(rest[1]) == std::string_view::npos) continue;
    if (address < kernel_half) continue;
    const std::string_view name(
        rest + 3, std::find_if(rest + 3, end, [](char c) { return c == '\t' || c == ' '; }));
    if (name.empty() || symbols.names_.size() > UINT32_MAX - name.size() - 1) continue;
    symbols.symbols_.push_back({address, static_cast<uint32_t>(symbols.names_.size())});
    symbols.names_.append(name).push_back('\0');
  }
  std::stable_sort(symbols.symbols_.begin(), symbols.symbols_.end(),
                   [](const Symbol& a, const Symbol& b) { return a.address < b.address; });
  symbols.symbols_.shrink_to_fit();
  symbols.names_.shrink_to_fit();
  return symbols;
}

std::string_view KernelSymbols::name(uint64_t address) const {
  auto after =
      std::upper_bound(symbols_.begin(), symbols_.end(), address,
                       [](uint64_t value, const Symbol& symbol) { return value < symbol.address; });
  if (after == symbols_.begin()) return {};
  const uint64_t start = std::prev(after)->address;
  if (address - start >= max_function_bytes) return {};
  // Of several names for one address the first in the file.
  while (after != symbols_.begin() && std::prev(after)->address == start) --after;
  return names_.c_str() + after->name;
}

}  // namespace pollgap
