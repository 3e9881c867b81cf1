// SPDX-License-Identifier: Apache-2.0
#include "agent/report/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace pollgap {
namespace {

constexpr size_t kBufferBytes = 1 << 20;
constexpr int kNameAttempts = 100;

std::string what_to_do(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "free some space or choose another place";
    case EFBIG:
      return "raise the file size limit (ulimit -f) or choose another place";
    case ENOENT:
    case ENOTDIR:
      return "create the directory first";
    case EACCES:
    case EPERM:
    case EROFS:
      return "choose a directory that can be written";
    case EISDIR:
      return "name a file";
    default:
      return "choose another place";
  }
}

Error file_error(const std::string& path, int error) {
  return {ExitCode::other,
          fmt::format("cannot write {}: {}; {}", path, std::strerror(error), what_to_do(error))};
}

std::string directory_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// O_EXCL: never through a file or link that someone else left there.
int open_temporary(const std::string& path, std::string& name) {
  for (int attempt = 0; attempt < kNameAttempts; ++attempt) {
    name = fmt::format("{}.{}.{}.tmp", path, getpid(), attempt);
    const int fd = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  return -1;
}

}  // namespace

Result<AtomicFile> AtomicFile::create(const std::string& path) {
  if (path.empty()) return file_error("''", ENOENT);
  AtomicFile file;
  file.path_ = path;
  struct stat status {};
  const bool exists = stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) return file_error(path, EISDIR);
  if (exists && !S_ISREG(status.st_mode)) {
    file.fd_ = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    // A link stays a link: the file that it names is replaced.
    std::error_code ignored;
    if (exists) file.path_ = std::filesystem::canonical(path, ignored).string();
    if (file.path_.empty()) file.path_ = path;
    file.fd_ = open_temporary(file.path_, file.temporary_);
  }
  if (file.fd_ < 0) {
    const int error = errno;
    file.temporary_.clear();  // not ours to remove
    return file_error(path, error);
  }
  return Result<AtomicFile>(std::move(file));
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      fd_(std::exchange(other.fd_, -1)),
      error_(other.error_),
      buffer_(std::move(other.buffer_)) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  if (this != &other) {
    discard();
    path_ = std::move(other.path_);
    temporary_ = std::exchange(other.temporary_, {});
    fd_ = std::exchange(other.fd_, -1);
    error_ = other.error_;
    buffer_ = std::move(other.buffer_);
  }
  return *this;
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
  if (!temporary_.empty()) unlink(temporary_.c_str());
  temporary_.clear();
}

void AtomicFile::write(std::string_view bytes) {
  buffer_.append(bytes);
  if (buffer_.size() >= kBufferBytes) flush();
}

void AtomicFile::flush() {
  const char* next = buffer_.data();
  size_t left = buffer_.size();
  while (left > 0 && error_ == 0) {
    const ssize_t written = ::write(fd_, next, left);
    if (written < 0) {
      if (errno != EINTR) error_ = errno;
      continue;
    }
    next += written;
    left -= static_cast<size_t>(written);
  }
  buffer_.clear();
}

Status AtomicFile::commit() {
  flush();
  // Some devices and pipes cannot be synced: that is no failure.
  if (error_ == 0 && fsync(fd_) != 0 && !temporary_.empty()) error_ = errno;
  if (close(std::exchange(fd_, -1)) != 0 && error_ == 0) error_ = errno;
  if (error_ == 0 && !temporary_.empty()) {
    if (rename(temporary_.c_str(), path_.c_str()) != 0) error_ = errno;
  }
  if (error_ != 0) {
    discard();
    return file_error(path_, error_);
  }
  if (std::exchange(temporary_, {}).empty()) return std::nullopt;
  // The new name is in place and whole; syncing the directory makes it survive a power cut.
  const int directory = open(directory_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    (void)fsync(directory);
    close(directory);
  }
  return std::nullopt;
}

}  // namespace pollgap
