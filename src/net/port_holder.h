// Who has a UDP port: for the message that a person reads when UDP 4791 is taken.
#pragma once

#include <cstdint>
#include <string>

namespace ucm::net {

// For example "process 812 (ucmd) of user root", "a process of user 1000", "the kernel (rdma_rxe)", "another socket".
std::string describe_udp_port_holder(std::uint16_t port);

}  // namespace ucm::net
