// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/event_pipe.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "tools/soft-hca/raw_syscalls.h"

namespace pollgap::soft_hca {

std::shared_ptr<EventPipe> EventPipe::create() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return nullptr;
  const std::string path = "/proc/self/fd/" + std::to_string(ends[0]);
  const int own_reader = raw::openat(AT_FDCWD, path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC, 0);
  if (own_reader < 0 || fcntl(ends[1], F_SETFL, O_NONBLOCK) != 0) {
    const int error = errno;
    if (own_reader >= 0) raw::close(own_reader);
    raw::close(ends[0]);
    raw::close(ends[1]);
    errno = error;
    return nullptr;
  }
  return std::shared_ptr<EventPipe>(new EventPipe(ends[0], own_reader, ends[1]));
}

EventPipe::~EventPipe() {
  raw::close(own_reader_fd_);
  raw::close(writer_fd_);
}

bool EventPipe::post(const void* event, size_t size) {
  return write(writer_fd_, event, size) == static_cast<ssize_t>(size);
}

uint32_t EventPipe::withdraw(uint64_t element, size_t event_size) {
  std::vector<std::byte> event(event_size);
  std::vector<std::byte> others;
  uint32_t withdrawn = 0;
  while (read(own_reader_fd_, event.data(), event_size) == static_cast<ssize_t>(event_size)) {
    uint64_t first = 0;
    std::memcpy(&first, event.data(), sizeof(first));
    if (first == element) {
      ++withdrawn;
    } else {
      others.insert(others.end(), event.begin(), event.end());
    }
  }
  for (size_t offset = 0; offset < others.size(); offset += event_size) {
    post(others.data() + offset, event_size);
  }
  return withdrawn;
}

}  // namespace pollgap::soft_hca
