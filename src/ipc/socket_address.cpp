#include "ipc/socket_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "wire/address.h"

namespace ucm::ipc {

std::optional<SocketAddress> from_sockaddr(const sockaddr& address) {
  SocketAddress out;
  if (address.sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &address, sizeof(in));
    out.family = 4;
    out.port = ntohs(in.sin_port);
    out.address = wire::IpAddress::ipv4(ntohl(in.sin_addr.s_addr)).bytes;
    return out;
  }
  if (address.sa_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, &address, sizeof(in));
    out.family = 6;
    out.port = ntohs(in.sin6_port);
    out.scope_id = in.sin6_scope_id;
    out.flow_info = ntohl(in.sin6_flowinfo);
    std::copy_n(in.sin6_addr.s6_addr, out.address.size(), out.address.begin());
    return out;
  }
  return std::nullopt;
}

sockaddr_storage to_sockaddr(const SocketAddress& address) {
  sockaddr_storage out{};
  if (address.family == 4) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(address.port);
    in.sin_addr.s_addr = htonl(wire::IpAddress{address.address}.ipv4_value());
    std::memcpy(&out, &in, sizeof(in));
  } else if (address.family == 6) {
    sockaddr_in6 in{};
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(address.port);
    in.sin6_scope_id = address.scope_id;
    in.sin6_flowinfo = htonl(address.flow_info);
    std::copy(address.address.begin(), address.address.end(), in.sin6_addr.s6_addr);
    std::memcpy(&out, &in, sizeof(in));
  }
  return out;
}

}  // namespace ucm::ipc
