#include "net/socket_address.h"

#include <arpa/inet.h>

#include <cstring>

namespace ucm::net {

socklen_t to_socket_address(const wire::IpAddress& address, std::uint16_t port, std::uint32_t scope,
                            SocketAddress& out) {
  out = {};
  if (address.is_ipv4()) {
    out.ipv4.sin_family = AF_INET;
    out.ipv4.sin_port = htons(port);
    std::memcpy(&out.ipv4.sin_addr, &address.bytes[12], 4);
    return sizeof(out.ipv4);
  }
  out.ipv6.sin6_family = AF_INET6;
  out.ipv6.sin6_port = htons(port);
  std::memcpy(&out.ipv6.sin6_addr, address.bytes.data(), 16);
  if (address.is_link_local()) out.ipv6.sin6_scope_id = scope;
  return sizeof(out.ipv6);
}

wire::IpAddress from_in_addr(in_addr address) { return wire::IpAddress::ipv4(ntohl(address.s_addr)); }

wire::IpAddress from_in6_addr(const in6_addr& address) {
  wire::IpAddress result;
  std::memcpy(result.bytes.data(), &address, 16);
  return result;
}

wire::IpAddress from_socket_address(const SocketAddress& address) {
  return address.generic.sa_family == AF_INET ? from_in_addr(address.ipv4.sin_addr)
                                              : from_in6_addr(address.ipv6.sin6_addr);
}

std::uint16_t port_of(const SocketAddress& address) {
  return ntohs(address.generic.sa_family == AF_INET ? address.ipv4.sin_port : address.ipv6.sin6_port);
}

std::string to_string(const wire::IpAddress& address) {
  char text[INET6_ADDRSTRLEN] = "?";
  if (address.is_ipv4()) {
    inet_ntop(AF_INET, &address.bytes[12], text, sizeof(text));
  } else {
    inet_ntop(AF_INET6, address.bytes.data(), text, sizeof(text));
  }
  return text;
}

}  // namespace ucm::net
