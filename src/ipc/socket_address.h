// Between the operating system's socket addresses and those that travel between a program and its node.
#pragma once

#include <sys/socket.h>

#include <optional>

#include "ipc/cm_api.h"

namespace ucm::ipc {

// nullopt for a family other than AF_INET and AF_INET6.
std::optional<SocketAddress> from_sockaddr(const sockaddr& address);

// All zero for family 0.
sockaddr_storage to_sockaddr(const SocketAddress& address);

}  // namespace ucm::ipc
