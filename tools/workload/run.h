// SPDX-License-Identifier: Apache-2.0
// One run of the workload: set up, poll, disturb, end, log.
#pragma once

#include <string>

#include "probes/result.h"
#include "tools/workload/options.h"

namespace pollgap::workload {

// Until the duration is over or SIGINT, SIGTERM or SIGHUP comes. Everything that was changed on the
// machine is undone before it returns. tool_options: for the log.
Status run_workload(const Options& options, const std::string& tool_options);

}  // namespace pollgap::workload
