// SPDX-License-Identifier: Apache-2.0
// What the host says of a device interrupt: whose it is and where it may go.
#pragma once

#include <string>

namespace pollgap {

// JSON object {"device", "rdma_device", "action", "affinity", "effective_affinity", "chip"}: a PCI
// address, the RDMA device on it ("mlx5_0"), the name of its first handler, CPU lists, the
// interrupt chip. Members that cannot be read, or are of no use here, are left out. `root` has sys
// and proc.
std::string interrupt_facts(int irq, const std::string& root = "/");

}  // namespace pollgap
