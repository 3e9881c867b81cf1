// SPDX-License-Identifier: Apache-2.0
// What the name of an adapter's interrupt tells of it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace pollgap {

struct AdapterInterrupt {
  std::string vector;  // what the driver uses it for: "completion 3", "asynchronous 0"
  std::string device;  // PCI address; empty: the name has none
};

// nullopt: not named by the mlx5 driver. Names are those of drivers/net/ethernet/mellanox/mlx5/core
// (pci_irq.c, before 5.3 eq.c): "mlx5_comp3@pci:0000:3b:00.0", "mlx5_async0@pci:...", "mlx5_async",
// "mlx5_ctrl0", "mlx5_sf_comp7", "mlx5_combined0", "mlx5_pages_eq@pci:...".
std::optional<AdapterInterrupt> adapter_interrupt(std::string_view action);

// The interrupt number of a threaded interrupt's task, "irq/45-mlx5_comp" (kernel/irq/manage.c:
// setup_irq_thread); nullopt: the name is no such task's.
std::optional<int> threaded_interrupt(std::string_view comm);

}  // namespace pollgap
