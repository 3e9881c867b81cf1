// SPDX-License-Identifier: Apache-2.0
#include "agent/report/trace.h"

#include <fmt/format.h>

#include <utility>

#include "agent/report/escape.h"
#include "agent/report/segment_text.h"

namespace pollgap {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kProcess = 1;  // one process holds all tracks

double microseconds(uint64_t ns) { return static_cast<double>(ns) / 1000; }

Json slice(std::string name, const char* category, uint64_t track, uint64_t start_ns,
           uint64_t duration_ns, Json arguments) {
  return {{"name", std::move(name)},
          {"cat", category},
          {"ph", "X"},
          {"pid", kProcess},
          {"tid", track},
          {"ts", microseconds(start_ns)},
          {"dur", microseconds(duration_ns)},
          {"args", std::move(arguments)}};
}

}  // namespace

TraceWriter::TraceWriter(std::function<void(std::string_view)> sink) : sink_(std::move(sink)) {
  sink_("{\"displayTimeUnit\": \"ns\", \"traceEvents\": [");
}

void TraceWriter::write(const Json& event) {
  sink_(std::exchange(first_, false) ? "\n" : ",\n");
  sink_(event.dump(-1, ' ', false, Json::error_handler_t::replace));
}

uint64_t TraceWriter::track_of(const Gap& gap) {
  const auto [found, added] =
      tracks_.try_emplace({gap.tid, gap.cq, gap.kind}, uint64_t{tracks_.size() + 1});
  if (added)
    write({{"name", "thread_name"},
           {"ph", "M"},
           {"pid", kProcess},
           {"tid", found->second},
           {"args",
            {{"name", terminal_escaped(fmt::format("{}/{} cq {:#x} {}", gap.thread, gap.tid, gap.cq,
                                                   to_string(gap.kind)))}}}});
  return found->second;
}

void TraceWriter::add(const ReportedGap& reported) {
  const Gap& gap = reported.gap;
  const uint64_t track = track_of(gap);
  write(slice(fmt::format("gap {}: {}", gap.id, to_string(gap.verdict.cause)), "gap", track,
              gap.start_mono_ns, gap.duration_ns,
              {{"verdict", terminal_escaped(gap.verdict.text)},
               {"start", reported.start},
               {"cpu", gap.cpu},
               {"confidence", to_string(gap.verdict.confidence)}}));
  for (const Segment& segment : gap.segments)
    write(slice(to_string(segment.cause), "segment", track, gap.start_mono_ns + segment.offset_ns,
                segment.duration_ns, {{"what", describe(segment)}}));
}

void TraceWriter::finish() { sink_("\n]}\n"); }

}  // namespace pollgap
