// SPDX-License-Identifier: Apache-2.0
// A private anonymous mapping, or a shared read-only one of a file.
#pragma once

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "probes/result.h"

namespace pollgap::workload {

inline constexpr size_t page_bytes = 4096;

class Mapping {
 public:
  Mapping() = default;
  static Result<Mapping> anonymous(size_t bytes) {
    return make(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  }
  static Result<Mapping> file(int fd, size_t bytes) {
    return make(bytes, PROT_READ, MAP_SHARED, fd);
  }
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  static Result<Mapping> make(size_t bytes, int protection, int flags, int fd) {
    void* const memory = mmap(nullptr, bytes, protection, flags, fd, 0);
    if (memory == MAP_FAILED) {
      return Error{ExitCode::other,
                   fmt::format("mmap of {} bytes: {}", bytes, std::strerror(errno))};
    }
    Mapping mapping;
    mapping.data_ = static_cast<char*>(memory);
    mapping.bytes_ = bytes;
    return mapping;
  }

  char* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace pollgap::workload
