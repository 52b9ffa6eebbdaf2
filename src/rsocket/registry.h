// The rsockets of this process by descriptor, and making them.
#pragma once

#include <memory>

#include "base/result.h"
#include "rsocket/socket.h"

namespace ucm::rsocket {

// Returns the descriptor.
Result<int> open_socket(int domain, int type, int protocol);
int add_socket(std::shared_ptr<Socket> socket);
// null when the descriptor is not an rsocket.
std::shared_ptr<Socket> find_socket(int fd);
// Forgets it; the caller closes it.
std::shared_ptr<Socket> remove_socket(int fd);

}  // namespace ucm::rsocket
