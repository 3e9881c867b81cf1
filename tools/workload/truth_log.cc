// SPDX-License-Identifier: Apache-2.0
#include "tools/workload/truth_log.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace pollgap::workload {

void TruthLog::add_disturbance(const std::string& name, unsigned index, const std::string& cause,
                               pid_t tid, const Occurrence& occurrence,
                               const nlohmann::ordered_json& culprit,
                               const nlohmann::ordered_json& facts) {
  nlohmann::ordered_json record{{"type", "disturbance"},
                                {"name", name},
                                {"index", index},
                                {"cause", cause},
                                {"tid", tid},
                                {"start_mono_ns", occurrence.start_ns},
                                {"duration_ns", occurrence.end_ns - occurrence.start_ns},
                                {"culprit", culprit}};
  if (!facts.is_null()) record["facts"] = facts;
  add(std::move(record));
  ++disturbances_;
}

Status TruthLog::write(const std::string& path) const {
  std::ofstream file(path, std::ios::trunc);
  for (const nlohmann::ordered_json& record : records_) {
    file << record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  }
  file.close();
  if (file) return std::nullopt;
  return Error{ExitCode::other,
               fmt::format("cannot write the log {}: {}", path, std::strerror(errno))};
}

}  // namespace pollgap::workload
