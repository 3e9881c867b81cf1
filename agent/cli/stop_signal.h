// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pollgap {

// From now on Ctrl-C, SIGTERM and a terminal that goes away end the session, not the program: what
// was seen is still to be told and written. They interrupt what waits.
void catch_stop_signals();

// One has come.
bool stop_requested();

}  // namespace pollgap
