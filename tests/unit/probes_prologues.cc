// SPDX-License-Identifier: Apache-2.0
// Functions whose prologues the instruction choice is tested on, compiled with and without
// -fcf-protection. Exported, so that the test finds them by name.

extern "C" {

// Only its name in a debug file tells of it.
[[gnu::noinline, gnu::visibility("hidden")]] int hidden_function(int value) {
  asm volatile("" : "+r"(value));
  return value + 1;
}
int (*address_of_hidden_function())(int) { return hidden_function; }

int sink(void *a, int b, void *c);

// Keeps its arguments across calls: pushes callee-saved registers first.
int saves_registers(void *cq, int count, void *wc) {
  int sum = 0;
  for (int i = 0; i < count; ++i) sum += sink(cq, i, wc);
  return sum + sink(wc, sum, cq);
}

// Returns early before anything is pushed (shrink-wrapping).
int returns_early(int *cq, int count, void *wc) {
  if (*cq == 0) return -1;
  int sum = 0;
  for (int i = 0; i < count; ++i) sum += sink(cq, i, wc);
  return sum + sink(wc, sum, cq);
}

// Straight-line leaf: nothing of it is emulated.
int leaf(const int *cq, int count) { return *cq + count; }

// Loops on its own first real instruction.
void spins(volatile int *cq) {
  while (*cq == 0) {
  }
}

}  // extern "C"
