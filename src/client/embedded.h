// UCM_MODE=embedded: the node runs in a thread of this process, without ucmd. The session talks to it over a socket
// pair, as it would to ucmd.
#pragma once

#include "base/result.h"
#include "ipc/file_descriptor.h"

namespace ucm::client {

// Starts the node and returns this side of its control socket. EADDRINUSE when another process (a ucmd, say) has UDP
// 4791. UCM_FAULTS ("loss=5,seed=1") injects faults into what is received. The node's thread takes no signals; at the
// process's exit it disconnects what is connected and ends.
Result<ipc::FileDescriptor> start_embedded_node();

}  // namespace ucm::client
