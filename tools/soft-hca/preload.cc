// SPDX-License-Identifier: Apache-2.0
// The shared library to preload: makes the device appear in a program that knows nothing of it.
// Options come from the environment; tools/soft-hca/run sets it.
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tools/soft-hca/soft_hca.h"

namespace pollgap::soft_hca {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv((std::string("POLLGAP_SOFT_HCA_") + name).c_str());
  return value == nullptr ? "" : value;
}

[[noreturn]] void refuse(const std::string& problem) {
  std::fprintf(stderr, "soft-hca: %s\n", problem.c_str());
  _exit(127);
}

template <typename T>
void read_number(const char* name, T* value) {
  const std::string text = variable(name);
  if (text.empty()) return;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  if (error != std::errc() || end != text.data() + text.size()) {
    refuse(std::string("POLLGAP_SOFT_HCA_") + name + "=" + text + " is not a number");
  }
}

Options options_of_environment() {
  Options options;
  options.spin = false;
  options.real_time = true;
  const std::string policy = variable("POLICY");
  if (policy == "spin") {
    options.spin = true;
  } else if (policy == "sleep") {
    options.real_time = false;
  } else if (!policy.empty() && policy != "fifo") {
    refuse("POLLGAP_SOFT_HCA_POLICY=" + policy + " is none of fifo, sleep and spin");
  }
  read_number("CPU", &options.cpu);
  read_number("NICE", &options.nice);
  read_number("SLEEP_NS", &options.sleep_ns);
  read_number("DELAY_NS", &options.completion_delay_ns);
  read_number("CQE_VERSION", &options.cqe_version);
  options.fabric = variable("FABRIC");
  if (options.fabric.empty()) options.fabric = "default";
  options.log = variable("LOG");
  return options;
}

__attribute__((constructor)) void start_in_program() {
  const std::string problem = start_at_first_open(options_of_environment());
  if (!problem.empty()) refuse(problem);
}

}  // namespace
}  // namespace pollgap::soft_hca
