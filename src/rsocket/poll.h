// rpoll() and rselect(): poll(2) and select(2) over rsockets and other descriptors together.
#pragma once

#include <poll.h>
#include <sys/select.h>

#include <span>

#include "base/result.h"

namespace ucm::rsocket {

Result<int> poll_sockets(std::span<pollfd> fds, int timeout_ms);
Result<int> select_sockets(int count, fd_set* readable, fd_set* writable, fd_set* exceptional, timeval* timeout);

}  // namespace ucm::rsocket
