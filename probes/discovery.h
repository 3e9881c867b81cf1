// SPDX-License-Identifier: Apache-2.0
// Finds where to attach in a live process: its poll and post functions, control verbs, contexts,
// CQs, QPs and threads.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "probes/live_context.h"
#include "probes/process.h"
#include "probes/result.h"
#include "probes/sites.h"

namespace pollgap {

struct DiscoveryOptions {
  std::vector<std::string> poll_sites;  // --poll-site: FILE:SYMBOL or FILE+0xOFFSET
  LiveScanOptions scan;
  bool control_verbs = true;
  // A process that has loaded libibverbs but opened no device yet is no error: its open hooks are
  // found, after whose calls discovery is to be repeated. Without it the poll functions of all
  // providers that libibverbs has loaded are sites then, or, where it has loaded none, an error.
  bool wait_for_context = false;
};

// Reads the target and its files; changes nothing, runs nothing of it. Takes some 0.1 s plus 0.4 s
// for each GiB of private memory in use. Errors: those of Process::open(); no_poll_function, saying
// where it looked and what to pass; usage, for a malformed poll site.
Result<Sites> discover(pid_t pid, const DiscoveryOptions& options);
Result<Sites> discover(const Process& process, const DiscoveryOptions& options);

}  // namespace pollgap
