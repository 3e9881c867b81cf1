// SPDX-License-Identifier: Apache-2.0
// The system calls behind the libc calls that the adapter interposes. libc's own functions cannot
// be used for them: their names now lead back to the adapter. Results and errno are as in libc.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

#include "tools/soft-hca/program_memory.h"

namespace pollgap::soft_hca::raw {

inline int openat(int dir, const char* path, int flags, mode_t mode) {
  return static_cast<int>(syscall(SYS_openat, dir, path, flags, mode));
}

inline int close(int fd) { return static_cast<int>(syscall(SYS_close, fd)); }

inline int ioctl(int fd, unsigned long request, void* argument) {
  return static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
}

inline int stat(const char* path, struct stat* result) {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, result, 0));
}

inline void* mmap(void* address, size_t length, int protection, int flags, int fd, off_t offset) {
  return at_address<void>(
      static_cast<uint64_t>(syscall(SYS_mmap, address, length, protection, flags, fd, offset)));
}

inline int socket(int domain, int type, int protocol) {
  return static_cast<int>(syscall(SYS_socket, domain, type, protocol));
}

}  // namespace pollgap::soft_hca::raw
