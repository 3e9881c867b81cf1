// SPDX-License-Identifier: Apache-2.0
// The adapter's control commands: lines of words and name=value pairs. tools/soft-hca/control
// --help describes them.
#pragma once

#include <string>

#include "tools/soft-hca/device_thread.h"

namespace pollgap::soft_hca {

// Carries out one command and returns its answer, which begins with "ok" or "error". Not for the
// device thread.
std::string execute_control(DeviceThread* device, const std::string& command);

// A line of ground truth about what a fault did, in JSON, without a line end.
std::string to_json(const FaultEvent& event);

}  // namespace pollgap::soft_hca
