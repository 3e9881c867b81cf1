// SPDX-License-Identifier: Apache-2.0
#include "agent/report/read_report.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "agent/report/summary_json.h"
#include "probes/file_descriptor.h"

namespace pollgap {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLeastRead = 64 * 1024;

Error cannot_read(const std::string& path, int error) {
  return {ExitCode::other, fmt::format("cannot read report {}: {}", path, std::strerror(error))};
}

Result<std::string> read_file(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0) return cannot_read(path, errno);
  if (S_ISDIR(status.st_mode)) return cannot_read(path, EISDIR);
  std::string text;
  size_t length = 0;
  for (;;) {
    // A regular file is read in one go; a pipe has no size to go by.
    if (length == text.size())
      text.resize(std::max({text.size() * 2, static_cast<size_t>(status.st_size) + 1, kLeastRead}));
    const ssize_t bytes = read(file.get(), text.data() + length, text.size() - length);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return cannot_read(path, errno);
    if (bytes == 0) break;
    length += static_cast<size_t>(bytes);
  }
  text.resize(length);
  if (!text.empty()) return text;
  return Error{ExitCode::other,
               fmt::format("report {} is empty; write it anew with 'pollgap attach --output' or "
                           "'pollgap replay --output'",
                           path)};
}

// Takes each element of the top-level member `gaps` out of the document as soon as it is complete.
class GapExtractor {
 public:
  explicit GapExtractor(const std::function<void(ReportedGap&&)>& on_gap) : on_gap_(on_gap) {}

  // A parser callback of nlohmann::json: false drops the value. The root is at depth 0.
  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    if (depth == 1 && event == Event::key) in_gaps_ = parsed == "gaps";
    const bool complete =
        event == Event::object_end || event == Event::array_end || event == Event::value;
    if (!in_gaps_ || depth != 2 || !complete) return true;
    take(parsed);
    return false;
  }

  const std::string& error() const { return error_; }

 private:
  void take(const Json& json) {
    const uint64_t index = next_index_++;
    if (!error_.empty()) return;
    auto reported = gap_from_json(json);
    if (reported)
      on_gap_(std::move(reported).value());
    else
      error_ = fmt::format("gaps[{}]: {}", index, reported.error().message);
  }

  const std::function<void(ReportedGap&&)>& on_gap_;
  bool in_gaps_ = false;
  uint64_t next_index_ = 0;
  std::string error_;
};

std::string head_error(const Json& document) {
  if (!document.is_object()) return "it is no JSON object";
  const auto schema = document.find("schema");
  if (schema == document.end() || !schema->is_string()) return "member schema is missing";
  if (*schema != kReportSchema)
    return fmt::format("its schema is '{}', this version reads '{}'",
                       schema->get_ref<const std::string&>(), kReportSchema);
  for (const char* key : {"tool", "host", "target", "options", "coverage", "summary"}) {
    const auto found = document.find(key);
    if (found == document.end()) return fmt::format("member {} is missing", key);
    if (!found->is_object()) return fmt::format("member {} is not an object", key);
  }
  const auto gaps = document.find("gaps");
  if (gaps == document.end() || !gaps->is_array()) return "member gaps is missing or not an array";
  return {};
}

Error not_a_report(const std::string& path, const std::string& why) {
  return {ExitCode::other, fmt::format("{} is not a report that pollgap can read: {}", path, why)};
}

}  // namespace

Result<ReportHead> read_report(const std::string& path,
                               const std::function<void(ReportedGap&&)>& on_gap) {
  const auto text = read_file(path);
  if (!text) return text.error();
  GapExtractor extractor(on_gap);
  Json document;
  try {
    document = Json::parse(text.value(), std::ref(extractor));
  } catch (const Json::exception& error) {
    const auto* parse_error = dynamic_cast<const Json::parse_error*>(&error);
    return not_a_report(path, parse_error == nullptr
                                  ? std::string("it is not valid JSON")
                                  : fmt::format("no valid JSON at byte {} of {}", parse_error->byte,
                                                text.value().size()));
  }
  if (const std::string why = head_error(document); !why.empty()) return not_a_report(path, why);
  if (!extractor.error().empty()) return not_a_report(path, extractor.error());

  auto summary = summary_from_json(document["summary"]);
  if (!summary) return not_a_report(path, "summary: " + summary.error().message);
  ReportHead head;
  head.session = session_info_of(document);
  head.coverage = document["coverage"];
  head.summary = std::move(summary).value();
  return Result<ReportHead>(std::move(head));
}

}  // namespace pollgap
