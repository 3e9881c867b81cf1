// SPDX-License-Identifier: Apache-2.0
// Doing something on a CPU that a polling thread keeps busy.
#pragma once

#include <functional>

#include "probes/result.h"

namespace pollgap::workload {

// Runs it in a short-lived thread on that CPU, above any polling thread there (SCHED_FIFO 99, where
// that is allowed).
Status run_on_polling_core(int cpu, const std::function<Status()>& action);

}  // namespace pollgap::workload
