// SPDX-License-Identifier: Apache-2.0
// A segment in words.
#pragma once

#include <string>

#include "agent/ledger/gap.h"

namespace pollgap {

// One printable line saying what the detail holds: "stress-ng (pid 812), SCHED_FIFO 50, woken by
// cron (pid 1)". Empty when the detail is.
std::string describe(const Segment& segment);

// "poll_loop at server.cc:88", "libfoo.so+0x1234", "0x7f12": the most that is known.
std::string describe(const Frame& frame);

}  // namespace pollgap
