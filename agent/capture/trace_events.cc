// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/trace_events.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

namespace pollgap {
namespace {

namespace fs = std::filesystem;

// Failures, firmware's messages, connections, and what changes rarely. Not those on the path of the
// kernel's own completions (rdma_core:cq_poll, cq_process, cq_schedule, cq_reschedule) or of each
// management datagram: they would slow down others. Nor mlx5's flow steering.
constexpr std::string_view kOfRdma[] = {
    "mlx5:mlx5_cmd",
    "mlx5:mlx5_fw",
    "rdma_core:cq_alloc*",
    "rdma_core:cq_drain_complete",
    "rdma_core:cq_free",
    "rdma_core:cq_modify",
    "rdma_core:mr_*",
    "ib_mad:ib_mad_error_handler",
    "ib_mad:ib_mad_send_done_resend",
    "rdma_cma:*",
    "ib_cma:*",
};

fs::path events_directory() {
  std::error_code failed;
  for (const char* path : {"/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"})
    if (fs::exists(path, failed)) return path;
  return {};
}

bool matches(const std::string& pattern, const fs::path& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

// The directories in `path` whose name matches; without wildcards, that one if it is there.
std::vector<std::string> directories(const fs::path& path, const std::string& pattern) {
  std::error_code failed;
  std::vector<std::string> found;
  if (pattern.find_first_of("*?[") == std::string::npos) {
    if (fs::is_directory(path / pattern, failed)) found.push_back(pattern);
    return found;
  }
  for (fs::directory_iterator entry(path, failed), end; !failed && entry != end;
       entry.increment(failed))
    if (matches(pattern, entry->path().filename()) && entry->is_directory(failed))
      found.push_back(entry->path().filename());
  return found;
}

// tracefs files have no size to go by.
std::string whole_file(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<std::byte> event_record(const ev_trace& from, const std::string& json) {
  const size_t padded = (json.size() + 7) / 8 * 8;
  ev_trace_event record{};
  record.header = from.header;
  record.header.kind = EV_TRACE_EVENT;
  record.header.bytes = static_cast<uint16_t>(sizeof(record) + padded);
  record.tid = from.tid;
  record.pid = from.pid;
  std::memcpy(record.comm, from.comm, sizeof(record.comm));
  record.text_bytes = static_cast<uint32_t>(json.size());
  std::vector<std::byte> bytes(sizeof(record) + padded);
  std::memcpy(bytes.data(), &record, sizeof(record));
  std::memcpy(bytes.data() + sizeof(record), json.data(), json.size());
  return bytes;
}

}  // namespace

TraceEvents::TraceEvents(const bpf_program* program, const std::vector<std::string>& wanted)
    : program_(program) {
  const auto add = [this](std::string_view pattern, bool by_user) {
    const size_t colon = pattern.find(':');
    if (colon == std::string_view::npos) return;
    patterns_.push_back({.group = std::string(pattern.substr(0, colon)),
                         .event = std::string(pattern.substr(colon + 1)),
                         .by_user = by_user});
  };
  for (const std::string_view pattern : kOfRdma) add(pattern, false);
  for (const std::string& pattern : wanted) add(pattern, true);
}

void TraceEvents::find(Pattern& pattern) {
  const fs::path events = events_directory();
  if (events.empty()) return;
  for (const std::string& group : directories(events, pattern.group)) {
    for (const std::string& event : directories(events / group, pattern.event)) {
      pattern.matched = true;
      if (seen_.insert(fmt::format("{}:{}", group, event)).second) {
        found_.emplace_back(group, event);
      }
    }
  }
}

bool TraceEvents::any_new() {
  for (Pattern& pattern : patterns_) find(pattern);
  return !found_.empty();
}

void TraceEvents::attach_new() {
  any_new();
  for (const auto& [group, event] : found_) attach(group, event);
  found_.clear();
}

void TraceEvents::attach(const std::string& group, const std::string& event) {
  const auto number =
      formats_.add(group, whole_file(events_directory() / group / event / "format"));
  if (!number) {
    failures_.push_back(number.error().message);
    return;
  }
  LIBBPF_OPTS(bpf_tracepoint_opts, options, .bpf_cookie = number.value());
  bpf_link* link =
      bpf_program__attach_tracepoint_opts(program_, group.c_str(), event.c_str(), &options);
  if (link == nullptr) {
    failures_.push_back("cannot attach to tracepoint " + group + ":" + event + ": " +
                        std::strerror(errno));
    return;
  }
  links_.emplace_back(link, bpf_link__destroy);
  attached_.push_back(group + ":" + event);
}

std::vector<std::byte> TraceEvents::decode(const ev_trace& record) {
  if (record.event >= formats_.size()) return {};
  const DecodedTrace decoded = formats_.decode(record.event, std::as_bytes(std::span(record.data)));
  nlohmann::ordered_json json{{"event", decoded.event}, {"text", decoded.text}};
  json["fields"] = nlohmann::ordered_json::object();
  for (const auto& [name, value] : decoded.fields) json["fields"][name] = value;
  if (decoded.truncated) json["truncated"] = true;
  return event_record(record,
                      json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void TraceEvents::tell(nlohmann::ordered_json& coverage, std::vector<std::string>& notes) const {
  coverage["trace_events"] = attached_;
  notes.insert(notes.end(), failures_.begin(), failures_.end());
  for (const Pattern& pattern : patterns_)
    if (pattern.by_user && !pattern.matched)
      notes.push_back("there was no tracepoint " + pattern.group + ":" + pattern.event +
                      (events_directory().empty() ? ": tracefs is not mounted" : ""));
}

}  // namespace pollgap
