// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/interrupt_facts.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

namespace pollgap {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The PCI device that owns a message-signaled interrupt (Documentation/ABI/testing/sysfs-bus-pci).
std::string device_of(int irq) {
  std::error_code failed;
  for (const auto& device : std::filesystem::directory_iterator("/sys/bus/pci/devices", failed)) {
    const auto interrupt = device.path() / "msi_irqs" / std::to_string(irq);
    if (std::filesystem::exists(interrupt, failed)) return device.path().filename();
  }
  return {};
}

}  // namespace

std::string interrupt_facts(int irq) {
  const std::string number = std::to_string(irq);
  nlohmann::ordered_json facts;
  const auto add = [&facts](const char* key, const std::string& text) {
    if (!text.empty()) facts[key] = text;
  };
  add("device", device_of(irq));
  add("affinity", first_line("/proc/irq/" + number + "/smp_affinity_list"));
  add("effective_affinity", first_line("/proc/irq/" + number + "/effective_affinity_list"));
  add("chip", first_line("/sys/kernel/irq/" + number + "/chip_name"));
  return facts.is_null() ? "{}" : facts.dump();
}

}  // namespace pollgap
