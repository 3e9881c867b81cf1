// SPDX-License-Identifier: Apache-2.0
// The separate debug file of a stripped ELF file (GDB manual, "Debugging Information in Separate
// Files"): by build-id, then by .gnu_debuglink. Only local files: nothing is fetched.
#pragma once

#include <functional>
#include <string>

#include "probes/elf_image.h"
#include "probes/file_descriptor.h"
#include "probes/process.h"

namespace pollgap {

// Opens a path for reading, or gives an empty descriptor.
using FileOpener = std::function<FileDescriptor(const std::string& path)>;

struct DebugFile {
  FileDescriptor fd;
  std::string path;  // as the opener took it
};

// What is known of the debug file.
struct DebugFileQuery {
  std::string path;       // of the file that wants it, as its process sees it
  std::string build_id;   // hexadecimal, "" none
  std::string link_name;  // .gnu_debuglink's, or a path (.gnu_debugaltlink's), "" none
  uint32_t link_crc = 0;  // of the linked file
};
DebugFileQuery debug_file_query(const ElfImage& image, const std::string& path);

// A candidate is taken only if its build-id is the one wanted, or, where none is wanted, if it has
// the CRC-32 that the link names. The descriptor is empty where there is none.
DebugFile find_debug_file(const DebugFileQuery& query, const FileOpener& opener);

// Looks below the target's root first, then below the agent's own, which may hold debug packages
// that a container does not.
DebugFile find_debug_file(const DebugFileQuery& query, const Process& process);

}  // namespace pollgap
