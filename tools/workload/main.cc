// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>

#include "tools/workload/options.h"
#include "tools/workload/run.h"

namespace {

int complain(const pollgap::Error& error) {
  std::fprintf(stderr, "pollgap-workload: %s\n", error.message.c_str());
  return static_cast<int>(error.code);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace pollgap::workload;
  const pollgap::Result<ParsedOptions> parsed = parse_options(argc, argv);
  if (!parsed) return complain(parsed.error());
  if (parsed.value().exit_now) return 0;
  const pollgap::Status error = run_workload(parsed.value().options, command_line(argc, argv));
  return error ? complain(*error) : 0;
}
