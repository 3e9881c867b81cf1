// SPDX-License-Identifier: Apache-2.0
// The report's `summary`, written and read.
#pragma once

#include <nlohmann/json.hpp>

#include "agent/report/summary.h"
#include "probes/result.h"

namespace pollgap {

nlohmann::ordered_json to_json(const Summary& summary);

// The error's message says what does not fit, without a prefix: "cqs[0].tid is not an integer".
Result<Summary> summary_from_json(const nlohmann::ordered_json& json);

}  // namespace pollgap
