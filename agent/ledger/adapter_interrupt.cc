// SPDX-License-Identifier: Apache-2.0
#include "agent/ledger/adapter_interrupt.h"

#include <algorithm>
#include <charconv>

namespace pollgap {
namespace {

constexpr std::string_view kDigits = "0123456789";

// What the driver calls its interrupts, in words.
std::string_view in_words(std::string_view name) {
  if (name == "comp" || name == "sf_comp") {
    return "completion";
  }
  if (name == "async" || name == "async_eq") {
    return "asynchronous";
  }
  if (name == "ctrl" || name == "sf_ctrl") {
    return "control";
  }
  if (name == "cmd_eq") {
    return "command";
  }
  return name == "pages_eq" ? "pages" : name;
}

}  // namespace

std::optional<AdapterInterrupt> adapter_interrupt(std::string_view action) {
  constexpr std::string_view kDriver = "mlx5_";
  constexpr std::string_view kBus = "@pci:";
  if (!action.starts_with(kDriver)) {
    return std::nullopt;
  }
  action.remove_prefix(kDriver.size());
  AdapterInterrupt interrupt;
  if (const size_t bus = action.find(kBus); bus != std::string_view::npos) {
    interrupt.device = action.substr(bus + kBus.size());
    action = action.substr(0, bus);
  }
  const size_t number = std::min(action.find_last_not_of(kDigits) + 1, action.size());
  if (number == 0) {
    return std::nullopt;
  }
  interrupt.vector = in_words(action.substr(0, number));
  if (number < action.size()) {
    interrupt.vector += " " + std::string(action.substr(number));
  }
  return interrupt;
}

std::optional<int> threaded_interrupt(std::string_view comm) {
  constexpr std::string_view kThread = "irq/";
  int irq = -1;
  if (!comm.starts_with(kThread)) {
    return std::nullopt;
  }
  comm.remove_prefix(kThread.size());
  const auto parsed = std::from_chars(comm.data(), comm.data() + comm.size(), irq);
  const bool named = parsed.ptr != comm.data() + comm.size() && *parsed.ptr == '-';
  return parsed.ec == std::errc() && named && irq >= 0 ? std::optional(irq) : std::nullopt;
}

}  // namespace pollgap
