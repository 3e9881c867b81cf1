// SPDX-License-Identifier: Apache-2.0
#include "agent/report/duration.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace pollgap {
namespace {

struct Unit {
  std::string_view name;
  uint64_t ns;
};
constexpr std::array<Unit, 6> kUnits{{{"ns", 1},
                                      {"us", 1'000},
                                      {"ms", 1'000'000},
                                      {"s", 1'000'000'000},
                                      {"m", 60'000'000'000},
                                      {"h", 3'600'000'000'000}}};
constexpr uint64_t kMaxNs = std::numeric_limits<int64_t>::max();

Error refuse(std::string_view text, std::string_view why) {
  return {ExitCode::usage, fmt::format("duration '{}': {}; write it like 250us, 1ms or 30s "
                                       "(units ns, us, ms, s, m, h)",
                                       text, why)};
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

Result<uint64_t> parse_duration(std::string_view text) {
  size_t end = 0;
  while (end < text.size() && is_digit(text[end])) ++end;
  if (end == 0) return refuse(text, "it does not start with a number");
  uint64_t whole = 0;
  if (std::from_chars(text.data(), text.data() + end, whole).ec != std::errc())
    return refuse(text, "the number is too large");

  uint64_t fraction = 0;
  uint64_t scale = 1;
  if (end < text.size() && text[end] == '.') {
    const size_t first = ++end;
    while (end < text.size() && is_digit(text[end])) ++end;
    if (end == first || end - first > 9) return refuse(text, "it needs one to nine decimals");
    for (size_t i = first; i < end; ++i) {
      fraction = fraction * 10 + static_cast<uint64_t>(text[i] - '0');
      scale *= 10;
    }
  }

  const std::string_view suffix = text.substr(end);
  if (suffix.empty()) return refuse(text, "it has no unit");
  for (const Unit& unit : kUnits) {
    if (suffix != unit.name) continue;
    using Wide = unsigned __int128;
    const Wide total = Wide{whole} * unit.ns + Wide{fraction} * unit.ns / scale;
    if (total > kMaxNs) return refuse(text, "it is too long");
    if (total == 0) return refuse(text, "it must be more than zero");
    return static_cast<uint64_t>(total);
  }
  return refuse(text, fmt::format("the unit '{}' is not known", suffix));
}

std::string duration_text(uint64_t duration_ns) {
  constexpr uint64_t kSecond = 1'000'000'000;
  if (duration_ns < 1000) return fmt::format("{} ns", duration_ns);
  if (duration_ns >= 120 * kSecond) {
    const uint64_t seconds = (duration_ns + kSecond / 2) / kSecond;
    if (seconds < 7200) return fmt::format("{} min {} s", seconds / 60, seconds % 60);
    return fmt::format("{} h {} min", seconds / 3600, seconds % 3600 / 60);
  }
  double value = static_cast<double>(duration_ns) / 1000;
  const char* unit = "\u00b5s";
  // 999.5 and above would print as 1000: it reads better as 1.00 of the next unit.
  if (value >= 999.5) {
    value /= 1000;
    unit = "ms";
    if (value >= 999.5) {
      value /= 1000;
      unit = "s";
    }
  }
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, unit);
}

}  // namespace pollgap
