// SPDX-License-Identifier: Apache-2.0
// Writes a capture of a random evidence stream, for tests of the command line.
//   report_capture FILE SEED RECORDS
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "agent/capture_file/capture_writer.h"
#include "tests/unit/ledger_random_stream.h"

namespace {

using pollgap::test::EvidenceStream;

EvidenceStream whole_stream(uint64_t seed, size_t records) {
  EvidenceStream stream;
  stream.text(EV_SESSION, R"({
      "tool": {"name": "pollgap", "version": "0.1.0", "pid": 4242},
      "host": {"kernel": "6.1.0", "online_cpus": "0-3", "cgroup_version": 2,
               "clock": {"mono_ns": 1000000000, "realtime_ns": 1738367999000000000}},
      "target": {"pid": 800, "executable": "/usr/bin/server", "sites": []},
      "options": {"threshold_ns": 1000000, "timing": "uprobe"}})");
  const EvidenceStream random = pollgap::test::random_stream(seed, records);
  for (const auto& record : random.records()) {
    ev_header header{};
    std::memcpy(&header, record.data(), std::min(sizeof(header), record.size()));
    if (header.kind != EV_SESSION) stream.add_bytes(record);
  }
  stream.text(EV_COVERAGE, R"({"notes": ["a made-up stream"], "lost_records": 0})");
  return stream;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  auto writer = pollgap::CaptureWriter::create(argv[1]);
  if (!writer) {
    std::fprintf(stderr, "%s\n", writer.error().message.c_str());
    return 1;
  }
  const auto stream = whole_stream(std::strtoull(argv[2], nullptr, 10),
                                   static_cast<size_t>(std::strtoull(argv[3], nullptr, 10)));
  for (const auto& record : stream.records())
    if (writer->append(record)) return 1;
  return writer->finish() ? 1 : 0;
}
