// Names of calls and events, as programs have them.
#pragma once

#include <string_view>

#include "ipc/cm_api.h"

namespace ucm::ipc {

// "connect"; empty for what is no call.
std::string_view name(CmCall call);
// "REJECTED" of RDMA_CM_EVENT_REJECTED; empty for what is none that a node tells.
std::string_view name(CmEventType event);

}  // namespace ucm::ipc
