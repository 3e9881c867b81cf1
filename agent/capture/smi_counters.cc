// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/smi_counters.h"

#include <bpf/bpf.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

namespace pollgap {
namespace {

constexpr const char* kPmu = "/sys/bus/event_source/devices/msr";

// "0-3,5" of /sys/devices/system/cpu/online.
std::vector<uint32_t> online_cpus() {
  std::ifstream file("/sys/devices/system/cpu/online");
  std::vector<uint32_t> cpus;
  uint32_t first = 0;
  while (file >> first) {
    uint32_t last = first;
    if (file.peek() == '-') {
      file.get();
      file >> last;
    }
    for (uint32_t cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    file.get();  // the comma
  }
  return cpus;
}

}  // namespace

Result<SmiEvent> find_smi_event() {
  SmiEvent event;
  std::ifstream type(std::string(kPmu) + "/type");
  if (!(type >> event.type)) return Error{ExitCode::kernel_lacks, "the kernel has no PMU msr"};
  std::ifstream description(std::string(kPmu) + "/events/smi");
  std::string text;
  if (!(description >> text))
    return Error{ExitCode::kernel_lacks, "this CPU has no count of them that the kernel knows"};
  constexpr std::string_view kPrefix = "event=";
  if (!text.starts_with(kPrefix))
    return Error{ExitCode::kernel_lacks, "the event msr/smi is described as " + text};
  event.config = std::strtoull(text.c_str() + kPrefix.size(), nullptr, 0);
  return event;
}

Result<SmiCounters> SmiCounters::open() {
  const Result<SmiEvent> event = find_smi_event();
  if (!event) return event.error();
  perf_event_attr attributes{};
  attributes.type = event->type;
  attributes.size = sizeof(attributes);
  attributes.config = event->config;
  SmiCounters counters;
  for (const uint32_t cpu : online_cpus()) {
    const long fd = syscall(SYS_perf_event_open, &attributes, -1, static_cast<int>(cpu), -1,
                            PERF_FLAG_FD_CLOEXEC);
    if (fd < 0)
      return Error{ExitCode::kernel_lacks, "the kernel refused the event msr/smi on CPU " +
                                               std::to_string(cpu) + ": " + std::strerror(errno)};
    counters.counters_.emplace_back(cpu, FileDescriptor(static_cast<int>(fd)));
  }
  return counters;
}

bool SmiCounters::put(const bpf_map* map) const {
  for (const auto& [cpu, counter] : counters_) {
    const int fd = counter.get();
    if (cpu < bpf_map__max_entries(map) &&
        bpf_map_update_elem(bpf_map__fd(map), &cpu, &fd, BPF_ANY) != 0)
      return false;
  }
  return true;
}

}  // namespace pollgap
