// SPDX-License-Identifier: Apache-2.0
// A file that is there whole or not at all: written under a temporary name in the same directory,
// fsynced, renamed over the final name, and the directory fsynced. Until commit() succeeds a
// previous file of that name is untouched.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "probes/result.h"

namespace pollgap {

class AtomicFile {
 public:
  // Creates the temporary file, mode 0644 less the umask. Errors name the path and the reason (no
  // such directory, no permission, ...): opening before the work tells whether it can be kept.
  // A path that is a directory is refused. A device or pipe ("/dev/stdout") is written in place.
  static Result<AtomicFile> create(const std::string& path);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  // Removes the temporary file unless it was committed.
  ~AtomicFile();

  // Buffered. An error is kept and told by commit().
  void write(std::string_view bytes);

  // On failure (disk full, I/O error) the previous file survives and the temporary one is removed.
  Status commit();

 private:
  AtomicFile() = default;
  void flush();
  void discard();

  std::string path_;
  std::string temporary_;  // empty: writing path_ itself
  int fd_ = -1;
  int error_ = 0;  // errno of the first failure
  std::string buffer_;
};

}  // namespace pollgap
