// SPDX-License-Identifier: Apache-2.0
// The memory of a live process, read without stopping it (process_vm_readv(2)).
#pragma once

#include <sys/types.h>

#include "probes/file_descriptor.h"
#include "probes/memory_reader.h"

namespace pollgap {

class TargetMemory : public MemoryReader {
 public:
  explicit TargetMemory(pid_t pid);

  size_t read(uint64_t address, std::span<std::byte> out) override;
  // One system call for 1024 pieces, and one more for each that cannot be read.
  void read_pieces(std::span<MemoryPiece> pieces) override;
  // The pages present in memory, as /proc/PID/pagemap tells
  // (Documentation/admin-guide/mm/pagemap.rst); the whole range where it does not.
  std::vector<AddressRange> resident(AddressRange range) override;

 private:
  pid_t pid_;
  FileDescriptor pagemap_;
  uint64_t page_bytes_;
};

}  // namespace pollgap
