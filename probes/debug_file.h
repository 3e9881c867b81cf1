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

// `path` is the stripped file's, as its process sees it. A candidate is taken only if its build-id
// equals the file's, or, for a file without one, if it has the CRC-32 that the link names.
// The descriptor is empty where there is none.
DebugFile find_debug_file(const ElfImage& image, const std::string& path, const FileOpener& opener);

// Looks below the target's root first, then below the agent's own, which may hold debug packages
// that a container does not.
DebugFile find_debug_file(const ElfImage& image, const std::string& path, const Process& process);

}  // namespace pollgap
