// SPDX-License-Identifier: Apache-2.0
#include "tools/workload/disturbance_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "tools/workload/duration.h"

namespace pollgap::workload {
namespace {

Error usage(std::string message) { return {ExitCode::usage, std::move(message)}; }

template <typename Number>
Status read_number(std::string_view key, std::string_view value, Number& number) {
  const char* const end = value.data() + value.size();
  const auto [rest, status] = std::from_chars(value.data(), end, number);
  if (status == std::errc() && rest == end) return std::nullopt;
  return usage(fmt::format("--disturb: {}={} is not a whole number", key, value));
}

template <typename Ns>
Status read_duration(std::string_view key, std::string_view value, Ns& ns) {
  Result<uint64_t> parsed = parse_duration(value);
  if (!parsed) return usage(fmt::format("--disturb: {}: {}", key, parsed.error().message));
  ns = static_cast<Ns>(*parsed);
  return std::nullopt;
}

Status read_pair(std::string_view key, std::string_view value, DisturbanceSpec& spec) {
  if (key == "period") return read_duration(key, value, spec.period_ns);
  if (key == "length") return read_duration(key, value, spec.length_ns);
  if (key == "phase") return read_duration(key, value, spec.phase_ns);
  if (key == "count") return read_number(key, value, spec.count);
  if (key == "thread") return read_number(key, value, spec.thread);
  spec.settings.insert_or_assign(std::string(key), std::string(value));
  return std::nullopt;
}

}  // namespace

Result<DisturbanceSpec> parse_disturbance(std::string_view text) {
  DisturbanceSpec spec;
  const size_t colon = text.find(':');
  spec.name = text.substr(0, colon);
  if (spec.name.empty()) {
    return usage("--disturb needs a name: NAME:period=200ms,length=5ms,count=10");
  }
  std::string_view rest = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const std::string_view pair = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      return usage(fmt::format("--disturb {}: \"{}\" is not KEY=VALUE", spec.name, pair));
    }
    if (Status error = read_pair(pair.substr(0, equals), pair.substr(equals + 1), spec)) {
      return *error;
    }
  }
  if (spec.length_ns == 0 || spec.length_ns >= spec.period_ns) {
    return usage(fmt::format("--disturb {}: length must be more than 0 and less than the period",
                             spec.name));
  }
  return spec;
}

std::optional<uint64_t> Schedule::next(uint64_t now) {
  if (count_ != 0 && given_ == count_) return std::nullopt;
  const uint64_t elapsed = now > first_ ? now - first_ : 0;
  number_ = std::max(number_, (elapsed + period_ - 1) / period_);
  ++given_;
  return first_ + number_++ * period_;
}

}  // namespace pollgap::workload
