// SPDX-License-Identifier: Apache-2.0
#include "tools/workload/duration.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace pollgap::workload {
namespace {

constexpr std::array<std::pair<std::string_view, double>, 4> units{
    {{"ns", 1.0}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}};
constexpr double largest_ns = 9e18;

Error not_a_duration(std::string_view text) {
  return {ExitCode::usage,
          fmt::format("\"{}\" is not a duration: write a number and ns, us, ms or s", text)};
}

}  // namespace

Result<uint64_t> parse_duration(std::string_view text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, status] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (status != std::errc() || !std::isfinite(number) || std::signbit(number)) {
    return not_a_duration(text);
  }
  const std::string_view unit(rest, static_cast<size_t>(end - rest));
  if (unit.empty() && number == 0) return uint64_t{0};
  for (const auto& [name, ns] : units) {
    if (unit != name) continue;
    if (number * ns > largest_ns) return not_a_duration(text);
    return static_cast<uint64_t>(std::llround(number * ns));
  }
  return not_a_duration(text);
}

}  // namespace pollgap::workload
