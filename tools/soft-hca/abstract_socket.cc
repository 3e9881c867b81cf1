// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/abstract_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tools/soft-hca/raw_syscalls.h"

namespace pollgap::soft_hca {
namespace {

template <typename Use>
int with_socket(const std::string& name, Use use) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof(address.sun_path)) {
    errno = ENAMETOOLONG;
    return -1;
  }
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const int fd = raw::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  if (use(fd, reinterpret_cast<const sockaddr*>(&address), length)) return fd;
  const int error = errno;
  raw::close(fd);
  errno = error;
  return -1;
}

}  // namespace

int listen_abstract(const std::string& name, int backlog) {
  return with_socket(name, [&](int fd, const sockaddr* address, socklen_t length) {
    return bind(fd, address, length) == 0 && listen(fd, backlog) == 0;
  });
}

int connect_abstract(const std::string& name) {
  return with_socket(name, [](int fd, const sockaddr* address, socklen_t length) {
    return connect(fd, address, length) == 0;
  });
}

bool peer_is_same_user(int fd) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == getuid();
}

}  // namespace pollgap::soft_hca
