// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/stop_signal.h"

#include <csignal>
#include <initializer_list>

namespace pollgap {
namespace {

volatile std::sig_atomic_t requested = 0;

void request_stop(int) { requested = 1; }

}  // namespace

void catch_stop_signals() {
  struct sigaction action {};  // without SA_RESTART
  action.sa_handler = request_stop;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
}

bool stop_requested() { return requested != 0; }

}  // namespace pollgap
