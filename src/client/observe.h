// What `ucm` sees of a running node (ipc/observe.h).
#pragma once

#include <cstdint>
#include <functional>

#include "base/bytes.h"
#include "base/result.h"
#include "ipc/observe.h"

namespace ucm::client {

// Asks on a greeted socket and hands `take` every piece of the answer, until its end or until `take` returns false; the
// socket is of no more use after the latter. ETIMEDOUT where a piece that must come does not; a trace is waited for as
// long as it takes. ENOTCONN when the node has gone, or has dropped a reader that was too slow.
Result<void> observe(int socket, ipc::Subject subject, std::uint32_t argument, const std::function<bool(Bytes)>& take);

}  // namespace ucm::client
