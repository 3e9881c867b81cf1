// SPDX-License-Identifier: Apache-2.0
// A file without a name, written through to its disk.
#pragma once

#include <cstddef>
#include <string>

#include "probes/result.h"
#include "tools/workload/file_descriptor.h"

namespace pollgap::workload {

class ScratchFile {
 public:
  ScratchFile() = default;
  // Opened for direct I/O as well, where the file system has it (direct_fd() >= 0).
  static Result<ScratchFile> create(const std::string& directory, size_t bytes);

  int fd() const { return file_.get(); }
  int direct_fd() const { return direct_.get(); }

 private:
  FileDescriptor file_;
  FileDescriptor direct_;
};

}  // namespace pollgap::workload
