// SPDX-License-Identifier: Apache-2.0
// The ELF files that a process maps, opened and parsed once each, with their debug files.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "probes/elf_image.h"
#include "probes/memory_map.h"
#include "probes/process.h"
#include "probes/result.h"

namespace pollgap {

struct ModuleFile {
  Mapping mapping;                // an executable mapping of it
  std::string open_path;          // through which that very file opens again
  ElfImage image;                 // as mapped
  std::optional<ElfImage> debug;  // its separate debug file, where one exists
  std::string debug_path;
};

class ModuleFiles {
 public:
  // Both must outlive this object.
  ModuleFiles(const Process& process, const MemoryMap& map) : process_(process), map_(map) {}

  // The file of an executable mapping. The pointer lives as long as this object. Errors: those of
  // Process::open_mapped_file() and ElfImage::open().
  Result<const ModuleFile*> get(const Mapping& mapping);

  // Address in the file of an address in the process, and back; nothing where that is not mapped.
  static std::optional<uint64_t> file_address(const ModuleFile& module, const Mapping& mapping,
                                              uint64_t address);
  std::optional<uint64_t> process_address(const ModuleFile& module, uint64_t file_address) const;

 private:
  const Process& process_;
  const MemoryMap& map_;
  std::map<std::pair<std::string, uint64_t>, Result<std::unique_ptr<ModuleFile>>> files_;
};

}  // namespace pollgap
