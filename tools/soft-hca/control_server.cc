// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/control_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "tools/soft-hca/abstract_socket.h"
#include "tools/soft-hca/control.h"
#include "tools/soft-hca/fabric.h"
#include "tools/soft-hca/raw_syscalls.h"

namespace pollgap::soft_hca {

std::string ControlServer::start(const std::string& fabric) {
  const std::string name = socket_prefix(fabric) + "control/" + std::to_string(getpid());
  listener_ = listen_abstract(name, 8);
  if (listener_ >= 0) return "";
  return "cannot listen for the soft adapter's control commands as @" + name + ": " +
         std::strerror(errno);
}

void ControlServer::close_all() {
  if (listener_ >= 0) raw::close(listener_);
  listener_ = -1;
  for (const int client : clients_) raw::close(client);
  clients_.clear();
}

void ControlServer::add_descriptors(std::vector<pollfd>* descriptors) const {
  if (listener_ >= 0) descriptors->push_back({listener_, POLLIN, 0});
  for (const int client : clients_) descriptors->push_back({client, POLLIN, 0});
}

// False: the client has gone, or said too much at once.
bool ControlServer::serve(int client) {
  std::array<char, 4096> command;
  const ssize_t length = recv(client, command.data(), command.size(), MSG_DONTWAIT | MSG_TRUNC);
  if (length < 0) return errno == EAGAIN || errno == EINTR;
  if (length == 0 || static_cast<size_t>(length) > command.size()) return false;
  const std::string answer =
      execute_control(device_, std::string(command.data(), static_cast<size_t>(length)));
  return send(client, answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(answer.size());
}

void ControlServer::serve(const std::vector<pollfd>& descriptors) {
  for (const pollfd& ready : descriptors) {
    if (ready.revents == 0) continue;
    if (ready.fd == listener_) {
      const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (client >= 0 && peer_is_same_user(client)) {
        clients_.push_back(client);
      } else if (client >= 0) {
        raw::close(client);
      }
      continue;
    }
    const auto at = std::find(clients_.begin(), clients_.end(), ready.fd);
    if (at == clients_.end() || serve(ready.fd)) continue;
    clients_.erase(at);
    raw::close(ready.fd);
  }
}

}  // namespace pollgap::soft_hca
