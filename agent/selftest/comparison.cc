// SPDX-License-Identifier: Apache-2.0
#include "agent/selftest/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

namespace pollgap {
namespace {

using Json = nlohmann::json;

constexpr const char* kNoGap = "no gap";
constexpr const char* kUnexplained = "unexplained";
// Of a disturbance that does not have the core all the while: tasks say how long they ran, verbs
// how long they took.
uint64_t spent_ns(const Json& record) {
  const auto duration_ns = record.at("duration_ns").get<uint64_t>();
  const Json facts = record.value("facts", Json::object());
  uint64_t sum_ns = 0;
  for (const Json& task : facts.value("tasks", Json::array())) {
    sum_ns += task.at("ran_ns").get<uint64_t>();
  }
  for (const auto& [name, value] : facts.items()) {
    const bool own = name == "ran_ns" || name == "slept_ns" || name == "stopped_ns";
    if (own || (name.starts_with("ibv_") && name.ends_with("_ns"))) {
      sum_ns += value.get<uint64_t>();
    }
  }
  return sum_ns == 0 ? duration_ns : std::min(sum_ns, duration_ns);
}

Injected injected_from(const Json& record) {
  const auto start_ns = record.at("start_mono_ns").get<uint64_t>();
  return {.disturbance = record.at("name"),
          .cause = record.at("cause"),
          .tid = record.at("tid"),
          .start_ns = start_ns,
          .end_ns = start_ns + record.at("duration_ns").get<uint64_t>(),
          .spent_ns = spent_ns(record)};
}

// The time injected, by cause in the ledgers of all gaps there.
std::map<std::string, uint64_t> named_times(const Injected& injected,
                                            const std::vector<Gap>& gaps) {
  std::map<std::string, uint64_t> times;
  for (const Gap& gap : gaps) {
    if (gap.tid != injected.tid) continue;
    for (const Segment& segment : gap.segments) {
      const uint64_t start_ns = gap.start_mono_ns + segment.offset_ns;
      const uint64_t from_ns = std::max(start_ns, injected.start_ns);
      const uint64_t until_ns = std::min(start_ns + segment.duration_ns, injected.end_ns);
      if (from_ns < until_ns) times[to_string(segment.cause)] += until_ns - from_ns;
    }
  }
  return times;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

Result<std::vector<Injected>> read_ground_truth(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return Error{ExitCode::other,
                 fmt::format("cannot read the workload's log {}: {}", path, std::strerror(errno))};
  }
  std::vector<Injected> found;
  std::string line;
  try {
    while (std::getline(file, line)) {
      const Json record = Json::parse(line);
      if (record.at("type") == "disturbance") found.push_back(injected_from(record));
    }
  } catch (const Json::exception&) {
    return Error{ExitCode::other,
                 fmt::format("{} is no log of pollgap-workload: '{}'", path, line.substr(0, 80))};
  }
  return found;
}

void ConfusionMatrix::add(const Injected& injected, const std::vector<Gap>& gaps) {
  const std::map<std::string, uint64_t> times = named_times(injected, gaps);
  const auto most = std::max_element(
      times.begin(), times.end(),
      [](const auto& left, const auto& right) { return left.second < right.second; });
  Row& row = rows_[injected.disturbance];
  row.cause = injected.cause;
  ++row.named[most == times.end() ? kNoGap : most->first];
  const auto own = times.find(injected.cause);
  const uint64_t own_ns = own == times.end() ? 0 : std::min(own->second, injected.spent_ns);
  row.shares.push_back(static_cast<double>(own_ns) / static_cast<double>(injected.spent_ns));
}

uint64_t ConfusionMatrix::count(bool (*chosen)(const Row& row, const std::string& named)) const {
  uint64_t sum = 0;
  for (const auto& [disturbance, row] : rows_) {
    for (const auto& [named, times] : row.named) sum += chosen(row, named) ? times : 0;
  }
  return sum;
}

uint64_t ConfusionMatrix::injected() const {
  return count([](const Row&, const std::string&) { return true; });
}

uint64_t ConfusionMatrix::right() const {
  return count([](const Row& row, const std::string& named) { return named == row.cause; });
}

uint64_t ConfusionMatrix::wrong() const {
  return count([](const Row& row, const std::string& named) {
    return named != row.cause && named != kUnexplained && named != kNoGap;
  });
}

std::string ConfusionMatrix::text() const {
  std::string out =
      fmt::format("{:<14}  {:<15}  {:>5}  {:<28}  {}\n", "disturbance", "injected cause", "times",
                  "named", "of its time, median and least");
  for (const auto& [disturbance, row] : rows_) {
    std::string named;
    for (const auto& [cause, times] : row.named) {
      named += fmt::format("{}{} {}", named.empty() ? "" : ", ", cause, times);
    }
    out += fmt::format("{:<14}  {:<15}  {:>5}  {:<28}  {:>5.1f} %  {:>5.1f} %\n", disturbance,
                       row.cause, row.shares.size(), named, 100 * median(row.shares),
                       100 * *std::min_element(row.shares.begin(), row.shares.end()));
  }
  return out;
}

}  // namespace pollgap
