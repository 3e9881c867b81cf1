// SPDX-License-Identifier: Apache-2.0
// A target without verbs, for --poll-site: it calls the exported function poll_once for ever, and
// replaces itself by `sleep` when it gets SIGUSR1.
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>

extern "C" {
// Its prologue is the compiler's own; the probe goes where the agent chooses.
[[gnu::noinline, gnu::used]] int poll_once(volatile uint64_t* polls) {
  *polls = *polls + 1;
  asm volatile("" ::: "memory");
  return 0;
}
}

namespace {

volatile sig_atomic_t exec_asked = 0;

void ask_for_exec(int /*signal*/) { exec_asked = 1; }

}  // namespace

int main() {
  std::signal(SIGUSR1, ask_for_exec);
  std::printf("ready pid=%d\n", getpid());
  std::fflush(stdout);
  volatile uint64_t polls = 0;
  while (exec_asked == 0) {
    poll_once(&polls);
    for (int spin = 0; spin < 2000; ++spin) asm volatile("");
  }
  execl("/bin/sleep", "sleep", "60", static_cast<char*>(nullptr));
  return 1;
}
