// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/fabric.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tools/soft-hca/abstract_socket.h"
#include "tools/soft-hca/clock.h"
#include "tools/soft-hca/raw_syscalls.h"

namespace pollgap::soft_hca {
namespace {

constexpr int kBacklog = static_cast<int>(kMaxProcesses);

std::string name_of(const std::string& prefix, uint32_t process) {
  return prefix + "process/" + std::to_string(process);
}

// Memory that cannot shrink under the other end's feet.
int make_link_memory() {
  const int fd = memfd_create("soft-hca-link", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return -1;
  if (ftruncate(fd, sizeof(LinkMemory)) == 0 &&
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    return fd;
  }
  raw::close(fd);
  return -1;
}

bool is_link_memory(int fd) {
  struct stat info {};
  const int seals = fcntl(fd, F_GET_SEALS);
  return fstat(fd, &info) == 0 && info.st_size == sizeof(LinkMemory) && seals >= 0 &&
         (seals & F_SEAL_SHRINK) != 0;
}

// The one message of a connection: the sender's number, and the memory's descriptor.
union DescriptorMessage {
  char bytes[CMSG_SPACE(sizeof(int))];
  cmsghdr alignment;
};

bool send_link(int socket, uint32_t process, int memory) {
  DescriptorMessage control{};
  iovec data{&process, sizeof(process)};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof(control.bytes);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &memory, sizeof(memory));
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(process);
}

// Returns the memory's descriptor or -1.
int receive_link(int socket, uint32_t* process) {
  DescriptorMessage control{};
  iovec data{process, sizeof(*process)};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof(control.bytes);
  const ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  const cmsghdr* header = got < 0 ? nullptr : CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
      header->cmsg_len != CMSG_LEN(sizeof(int))) {
    return -1;
  }
  int memory = -1;
  std::memcpy(&memory, CMSG_DATA(header), sizeof(memory));
  if (got == sizeof(*process) && *process < kMaxProcesses && is_link_memory(memory)) return memory;
  raw::close(memory);
  return -1;
}

}  // namespace

std::string socket_prefix(const std::string& fabric) {
  return "pollgap-soft-hca/" + std::to_string(getuid()) + "/" + fabric + "/";
}

Fabric::~Fabric() { close_all(); }

void Fabric::close_all() {
  if (listener_ >= 0) raw::close(listener_);
  listener_ = -1;
  for (const Connection& connection : connections_) raw::close(connection.fd);
  connections_.clear();
}

std::string Fabric::start(const std::string& fabric) {
  prefix_ = socket_prefix(fabric);
  for (process_ = 0; process_ < kMaxProcesses; ++process_) {
    listener_ = listen_abstract(name_of(prefix_, process_), kBacklog);
    if (listener_ >= 0) return "";
    if (errno != EADDRINUSE) {
      return std::string("cannot listen for other processes of the soft adapter: ") +
             std::strerror(errno);
    }
  }
  return "all " + std::to_string(kMaxProcesses) + " places of the soft adapter \"" + fabric +
         "\" are taken; name another fabric";
}

void Fabric::connect(uint32_t process) {
  Connection connection;
  connection.fd = connect_abstract(name_of(prefix_, process));
  if (connection.fd >= 0) {
    const int memory = make_link_memory();
    if (memory >= 0) {
      auto link = std::make_unique<Link>(process, memory, /*made_here=*/true);
      if (link->valid() && send_link(connection.fd, process_, memory)) {
        connection.link = std::move(link);
      }
      raw::close(memory);
    }
  }
  if (connection.link == nullptr) {
    if (connection.fd >= 0) raw::close(connection.fd);
    device_->run([&](Device* device) { device->refuse_link(process, now_ns()); });
    return;
  }
  Link* link = connection.link.get();
  connections_.push_back(std::move(connection));
  device_->run([&](Device* device) { device->add(link); });
}

void Fabric::accept_newcomers() {
  for (;;) {
    Connection connection;
    connection.fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection.fd < 0) return;
    if (peer_is_same_user(connection.fd)) {
      connections_.push_back(std::move(connection));
    } else {
      raw::close(connection.fd);
    }
  }
}

bool Fabric::take_link(Connection* connection) {
  uint32_t process = 0;
  const int memory = receive_link(connection->fd, &process);
  if (memory < 0) return false;
  connection->link = std::make_unique<Link>(process, memory, /*made_here=*/false);
  raw::close(memory);
  if (!connection->link->valid()) {
    connection->link.reset();
    return false;
  }
  device_->run([&](Device* device) { device->add(connection->link.get()); });
  return true;
}

void Fabric::drop(Connection* connection) {
  if (connection->link != nullptr) {
    device_->run([&](Device* device) { device->remove(connection->link.get()); });
  }
  raw::close(connection->fd);
}

// Once the memory is there nothing more is sent: what comes is the end.
bool Fabric::serve(Connection* connection) {
  if (connection->link == nullptr) return take_link(connection);
  char byte = 0;
  const ssize_t got = recv(connection->fd, &byte, 1, MSG_DONTWAIT);
  return got < 0 && (errno == EAGAIN || errno == EINTR);
}

void Fabric::add_descriptors(std::vector<pollfd>* descriptors) const {
  if (listener_ < 0) return;
  descriptors->push_back({listener_, POLLIN, 0});
  for (const Connection& connection : connections_) {
    descriptors->push_back({connection.fd, POLLIN, 0});
  }
}

void Fabric::serve(const std::vector<pollfd>& descriptors) {
  for (const pollfd& ready : descriptors) {
    if (ready.revents == 0) continue;
    if (ready.fd == listener_) accept_newcomers();
    for (auto at = connections_.begin(); at != connections_.end(); ++at) {
      if (at->fd != ready.fd) continue;
      if (!serve(&*at)) {
        drop(&*at);
        connections_.erase(at);
      }
      break;
    }
  }
}

}  // namespace pollgap::soft_hca
