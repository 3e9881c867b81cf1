// SPDX-License-Identifier: Apache-2.0
// What the host says of a device interrupt: whose it is and where it may go.
#pragma once

#include <string>

namespace pollgap {

// JSON object {"device", "affinity", "effective_affinity", "chip"}: a PCI address or "", CPU lists,
// the interrupt chip. Members that cannot be read are left out.
std::string interrupt_facts(int irq);

}  // namespace pollgap
