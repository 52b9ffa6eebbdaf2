// What the process behind a socket may do, beyond its user.
#pragma once

#include "ipc/control_socket.h"

namespace ucm::ipc {

// It has CAP_NET_BIND_SERVICE in the user namespace that this process is in. False when that cannot be seen, or the
// process has ended: another one with its number does not count.  // Linux: ns_capable(net->user_ns)
bool may_bind_low_ports(const PeerCredentials& peer);

}  // namespace ucm::ipc
