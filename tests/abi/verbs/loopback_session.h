// A session without a node: one device `lo` with 127.0.0.1 and ::1, whose packets this process receives itself.
#pragma once

#include <cstdint>

#include "net/fault_port.h"

namespace ucm::testing {

// Of packets received from now on; set before the first device is opened.
void set_faults(const net::FaultSpec& faults);

// Of the device, from its next update on.
void set_mtu(std::uint32_t bytes);

// Of the device, at once: the node tells of it.
struct LinkState {
  bool running = true;
  bool second_address = true;
};
void set_link(LinkState state);

// The node "goes away".
void lose_node();

}  // namespace ucm::testing
