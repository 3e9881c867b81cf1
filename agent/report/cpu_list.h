// SPDX-License-Identifier: Apache-2.0
// Lists of CPUs as the kernel prints and takes them: "0-2,5" (Documentation/core-api/cpumask.rst,
// bitmap_parselist).
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace pollgap {

using CpuSet = std::set<uint32_t>;

// nullopt: not such a list, or a CPU number above 65535.
std::optional<CpuSet> parse_cpu_list(std::string_view text);

std::string format_cpu_list(const CpuSet& cpus);

// The hexadecimal mask of files like workqueue/cpumask: "f7", in groups of 32 bits: "1,00000000".
std::string format_cpu_mask(const CpuSet& cpus);

}  // namespace pollgap
