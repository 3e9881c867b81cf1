// SPDX-License-Identifier: Apache-2.0
#include "agent/report/read_report.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "agent/report/report_parts.h"
#include "agent/report/summary_json.h"
#include "probes/file_descriptor.h"

namespace pollgap {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLeastRead = size_t{64} << 10;
constexpr size_t kBatch = 256;  // gaps that a thread parses at a time
constexpr unsigned kMaxThreads = 8;

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

// Where in the whole text the parser stopped.
Error broken_json(const std::string& path, size_t at, size_t size) {
  return not_a_report(path, fmt::format("no valid JSON at byte {} of {}", at, size));
}

// One gap, or what does not fit in it.
struct ParsedGap {
  std::optional<ReportedGap> gap;
  std::string error;
  std::optional<size_t> broken_at;  // byte in its text: not even JSON
};

ParsedGap parse_gap(std::string_view text) {
  try {
    auto reported = gap_from_json(Json::parse(text));
    if (!reported) return {std::nullopt, reported.error().message, std::nullopt};
    return {std::move(reported).value(), {}, std::nullopt};
  } catch (const Json::parse_error& error) {
    return {std::nullopt, {}, error.byte};
  } catch (const Json::exception&) {  // a number out of range
    return {std::nullopt, {}, 0};
  }
}

using GapTexts = std::span<const std::string_view>;

std::vector<ParsedGap> parse_gaps(GapTexts texts) {
  std::vector<ParsedGap> parsed;
  parsed.reserve(texts.size());
  for (const std::string_view text : texts) parsed.push_back(parse_gap(text));
  return parsed;
}

// The texts parsed side by side, kBatch by a thread, and given back in order.
std::vector<ParsedGap> parse_wave(GapTexts texts) {
  std::vector<std::future<std::vector<ParsedGap>>> batches;
  for (size_t begin = 0; begin < texts.size(); begin += kBatch)
    batches.push_back(std::async(std::launch::async, parse_gaps,
                                 texts.subspan(begin, std::min(kBatch, texts.size() - begin))));
  std::vector<ParsedGap> parsed;
  parsed.reserve(texts.size());
  for (auto& batch : batches)
    for (ParsedGap& gap : batch.get()) parsed.push_back(std::move(gap));
  return parsed;
}

Status read_gaps(const std::string& path, std::string_view text, GapTexts gaps,
                 const std::function<void(ReportedGap&&)>& on_gap) {
  const size_t wave = kBatch * std::clamp(std::thread::hardware_concurrency(), 1U, kMaxThreads);
  for (size_t begin = 0; begin < gaps.size(); begin += wave) {
    const GapTexts texts = gaps.subspan(begin, std::min(wave, gaps.size() - begin));
    std::vector<ParsedGap> parsed = parse_wave(texts);
    for (size_t i = 0; i < parsed.size(); ++i) {
      if (parsed[i].broken_at)
        return broken_json(
            path, static_cast<size_t>(texts[i].data() - text.data()) + *parsed[i].broken_at,
            text.size());
      if (!parsed[i].gap)
        return not_a_report(path, fmt::format("gaps[{}]: {}", begin + i, parsed[i].error));
      on_gap(std::move(*parsed[i].gap));
    }
  }
  return std::nullopt;
}

// Byte of the whole text at which it stops to be JSON. Only for the message: it parses all anew.
size_t first_broken_byte(const std::string& text) {
  try {
    [[maybe_unused]] const Json nothing =
        Json::parse(text, [](int, Json::parse_event_t, const Json&) { return false; });
  } catch (const Json::parse_error& error) {
    return error.byte;
  } catch (const Json::exception&) {
    return 0;
  }
  return 0;
}

}  // namespace

Result<ReportHead> read_report(const std::string& path,
                               const std::function<void(ReportedGap&&)>& on_gap) {
  const auto text = read_file(path);
  if (!text) return text.error();
  const ReportParts parts = split_report(text.value());
  const Json document = Json::parse(parts.head, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded())
    return broken_json(path, first_broken_byte(text.value()), text.value().size());
  if (const std::string why = head_error(document); !why.empty()) return not_a_report(path, why);
  auto summary = summary_from_json(document["summary"]);
  if (!summary) return not_a_report(path, "summary: " + summary.error().message);
  if (Status failed = read_gaps(path, text.value(), parts.gaps, on_gap)) return *failed;

  ReportHead head;
  head.session = session_info_of(document);
  head.coverage = document["coverage"];
  head.summary = std::move(summary).value();
  return Result<ReportHead>(std::move(head));
}

}  // namespace pollgap
