// SPDX-License-Identifier: Apache-2.0
// Names of kernel addresses, from /proc/kallsyms.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

#include "probes/result.h"

namespace pollgap {

class KernelSymbols {
 public:
  // Reads /proc/kallsyms once: some 0.1 s. Error: no_privilege, where the kernel hides the
  // addresses (kernel.kptr_restrict).
  static Result<KernelSymbols> load();
  // Lines "address type name [module]"; only code (types t, T, w, W) is kept.
  static KernelSymbols parse(std::istream& text);

  // The function that contains the address, "" where there is none.
  std::string_view name(uint64_t address) const;
  size_t size() const { return symbols_.size(); }

 private:
  struct Symbol {
    uint64_t address;
    uint32_t name;  // offset in names_
  };
  std::vector<Symbol> symbols_;  // by address
  std::string names_;            // NUL-terminated, one after the other
};

}  // namespace pollgap
