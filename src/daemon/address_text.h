// Addresses as a person reads them.
#pragma once

#include <string>

#include "ipc/cm_api.h"

namespace ucm::daemon {

// "10.0.0.1:7174", "[fd00::1]:7174"
std::string text_of(const ipc::SocketAddress& address);

}  // namespace ucm::daemon
