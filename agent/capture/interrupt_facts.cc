// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/interrupt_facts.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

namespace pollgap {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The PCI device that owns a message-signaled interrupt (Documentation/ABI/testing/sysfs-bus-pci).
fs::path device_of(int irq, const fs::path& root) {
  std::error_code failed;
  for (const auto& device : fs::directory_iterator(root / "sys/bus/pci/devices", failed)) {
    const auto interrupt = device.path() / "msi_irqs" / std::to_string(irq);
    if (fs::exists(interrupt, failed)) return device.path();
  }
  return {};
}

// The first directory in `path`; empty if there is none.
std::string first_directory(const fs::path& path) {
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(path, failed))
    if (entry.is_directory(failed)) return entry.path().filename();
  return {};
}

// Its RDMA device, or that of a device below it (a subfunction, a virtio device).
std::string rdma_device_of(const fs::path& device) {
  std::error_code failed;
  std::string name = first_directory(device / "infiniband");
  for (fs::directory_iterator child(device, failed), end; name.empty() && !failed && child != end;
       child.increment(failed))
    if (!child->is_symlink(failed)) name = first_directory(child->path() / "infiniband");
  return name;
}

}  // namespace

std::string interrupt_facts(int irq, const std::string& root) {
  const std::string number = std::to_string(irq);
  const fs::path in_proc = fs::path(root) / "proc/irq" / number;
  nlohmann::ordered_json facts;
  const auto add = [&facts](const char* key, const std::string& text) {
    if (!text.empty()) facts[key] = text;
  };
  const fs::path device = device_of(irq, root);
  add("device", device.filename());
  if (!device.empty()) add("rdma_device", rdma_device_of(device));
  add("action", first_directory(in_proc));
  add("affinity", first_line(in_proc / "smp_affinity_list"));
  add("effective_affinity", first_line(in_proc / "effective_affinity_list"));
  add("chip", first_line(fs::path(root) / "sys/kernel/irq" / number / "chip_name"));
  return facts.is_null()
             ? "{}"
             : facts.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace pollgap
