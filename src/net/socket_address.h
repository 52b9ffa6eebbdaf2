// IP addresses in the operating system's layouts and as text.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "wire/address.h"

namespace ucm::net {

union SocketAddress {
  sockaddr generic;
  sockaddr_in ipv4;
  sockaddr_in6 ipv6;
};

// Returns the length. `scope` is kept for link-local IPv6 addresses only.
socklen_t to_socket_address(const wire::IpAddress& address, std::uint16_t port, std::uint32_t scope,
                            SocketAddress& out);
// The family is AF_INET or AF_INET6.
wire::IpAddress from_socket_address(const SocketAddress& address);
std::uint16_t port_of(const SocketAddress& address);

wire::IpAddress from_in_addr(in_addr address);
wire::IpAddress from_in6_addr(const in6_addr& address);

// "10.0.0.1", "fd00::1"
std::string to_string(const wire::IpAddress& address);

}  // namespace ucm::net
