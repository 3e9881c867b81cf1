// SPDX-License-Identifier: Apache-2.0
// A live target process, held so that its PID cannot come to mean another.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "probes/file_descriptor.h"
#include "probes/memory_map.h"
#include "probes/memory_reader.h"
#include "probes/result.h"
#include "probes/sites.h"

namespace pollgap {

class Process {
 public:
  // Errors: no_process (no such PID, a zombie, a kernel thread, a thread's id instead of a
  // process's), no_privilege, kernel_lacks (no pidfd: before 5.3), other (a 32-bit or foreign
  // program, which cannot be observed).
  static Result<Process> open(pid_t pid);

  pid_t pid() const { return pid_; }
  // Clock ticks after boot, field 22 of proc_pid_stat(5): with the PID it names one process.
  uint64_t start_time() const { return start_time_; }
  // As the target sees it; empty if unreadable.
  const std::string& executable() const { return executable_; }
  uint16_t elf_machine() const { return elf_machine_; }
  int pidfd() const { return pidfd_.get(); }
  // False once all its threads have exited, reaped or not.
  bool is_alive() const;
  // False also while it is still exiting: its memory goes first.
  bool has_memory() const;

  // Read anew each time, which takes the target's mmap_lock: rarely. Errors: no_process,
  // no_privilege.
  Result<MemoryMap> memory_map() const;
  std::vector<ThreadInfo> threads() const;
  std::set<int> open_fds() const;
  // Those of its descriptors that are an open /dev/infiniband/uverbsN.
  std::set<int> uverbs_fds() const;

  // Whether the target's memory can be read. Error: no_privilege.
  Status check_memory_access(const MemoryMap& map) const;
  // The target's memory. The reader must not outlive the process object.
  std::unique_ptr<MemoryReader> memory() const;

  struct OpenedFile {
    FileDescriptor fd;
    std::string path;  // through which that very file can be opened again
  };
  // Opens the very file that is mapped, for reading: through /proc/PID/map_files, or, where that is
  // not permitted, by its path below /proc/PID/root, following no link out of it and refusing
  // another file in its place. Errors: no_privilege, other.
  Result<OpenedFile> open_mapped_file(const Mapping& mapping) const;
  // Opens a path below the target's root for reading, following no link out of it.
  FileDescriptor open_in_root(const std::string& path) const;

 private:
  Process() = default;
  std::string proc(const std::string& name) const;

  pid_t pid_ = 0;
  uint64_t start_time_ = 0;
  std::string executable_;
  uint16_t elf_machine_ = 0;
  FileDescriptor pidfd_;
};

}  // namespace pollgap
