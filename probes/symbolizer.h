// SPDX-License-Identifier: Apache-2.0
// From an address in a live process to function, source line and module.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "probes/process.h"
#include "probes/result.h"

namespace pollgap {

struct CodeLocation {
  std::string function;        // demangled; empty: not known
  std::string file;            // source file; empty: not known
  uint32_t line = 0;           // 0: not known
  std::string module;          // path as the target sees it, "[vdso]"; empty: no file's code
  uint64_t module_offset = 0;  // file offset
};

// Opens the target's files through /proc/PID, and their debug files by build-id or debuglink from
// the local disk; fetches nothing. Keeps every answer: asking twice costs nothing. Not for use by
// several threads at once.
class Symbolizer {
 public:
  // Reads the memory map. `process` must outlive the symbolizer. Errors: those of
  // Process::memory_map().
  static Result<Symbolizer> open(const Process& process);
  ~Symbolizer();
  Symbolizer(Symbolizer&&) noexcept;
  Symbolizer& operator=(Symbolizer&&) noexcept;

  // An address in no module known so far makes it read the memory map again, at most once a
  // second. The reference lives as long as the symbolizer.
  const CodeLocation& locate(uint64_t address);

 private:
  struct Impl;
  explicit Symbolizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pollgap
