// SPDX-License-Identifier: Apache-2.0
// The command line of pollgap-workload.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "probes/result.h"
#include "tools/workload/disturbance_spec.h"

namespace pollgap::workload {

enum class Operation { send, write, read };
enum class PollStyle { poll, bare, extended, event };
enum class Policy { other, fifo, rr };

struct Options {
  std::string device = "soft";
  std::vector<int> cpus;  // of the polling threads, in turn; default: the last CPU
  int other_cpu = -1;     // of everything else; default: the first CPU that is not in cpus
  Policy policy = Policy::other;
  int priority = 0;  // fifo and rr: 1..99; other: nice value
  Operation operation = Operation::write;
  PollStyle style = PollStyle::poll;
  uint32_t size_bytes = 64;
  int batch = 16;
  uint32_t signal_every = 1;
  int cq_depth = 256;
  unsigned threads = 1;
  uint32_t depth = 16;  // outstanding sends
  uint64_t think_ns = 0;
  uint64_t think_cycle_ns = 0;  // think in every second stretch of that length; 0: always
  bool post = true;
  int gid_index = -1;                             // -1: chosen
  uint64_t completion_delay_ns = 20 * ns_per_us;  // soft adapter
  uint64_t registration_ns_per_page = 500;        // soft adapter
  bool soft_spin = false;                         // soft adapter
  uint64_t duration_ns = 0;                       // 0: until a signal
  uint64_t start_after_ns = ns_per_s;
  uint64_t log_threshold_ns = 500 * ns_per_us;
  uint64_t stall_threshold_ns = ns_per_ms;
  std::string log_path;
  std::string ready_path;
  std::string go_path;
  std::string scratch_directory = "/var/tmp";
  std::vector<DisturbanceSpec> disturbances;
};

struct ParsedOptions {
  Options options;
  bool exit_now = false;  // --help: already answered on standard output
};

// Errors have ExitCode::usage and one line. Checks everything that needs no device.
Result<ParsedOptions> parse_options(int argc, const char* const* argv);

// What the run record says of the options.
std::string command_line(int argc, const char* const* argv);

}  // namespace pollgap::workload
