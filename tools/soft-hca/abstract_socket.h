// SPDX-License-Identifier: Apache-2.0
// Abstract Unix sockets (unix(7)), which are in no file system and end with their owner. All keep
// message boundaries (SOCK_SEQPACKET), do not block, and are closed on exec.
#pragma once

#include <string>

namespace pollgap::soft_hca {

// A descriptor, or -1 with errno set: EADDRINUSE when somebody has that name.
int listen_abstract(const std::string& name, int backlog);
int connect_abstract(const std::string& name);

// Whether the other end was opened by this process's user.
bool peer_is_same_user(int fd);

}  // namespace pollgap::soft_hca
