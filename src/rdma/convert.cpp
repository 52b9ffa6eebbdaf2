#include "rdma/convert.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "wire/address.h"

namespace ucm::rdma {

std::optional<ipc::SocketAddress> from_sockaddr(const sockaddr& address) {
  ipc::SocketAddress out;
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

sockaddr_storage to_sockaddr(const ipc::SocketAddress& address) {
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

std::uint16_t port_of(const sockaddr_storage& address) {
  const auto parsed = from_sockaddr(reinterpret_cast<const sockaddr&>(address));
  return parsed ? htons(parsed->port) : std::uint16_t{0};
}

ibv_gid gid_of(const ipc::SocketAddress& address) {
  ibv_gid gid{};
  std::copy(address.address.begin(), address.address.end(), gid.raw);
  return gid;
}

ibv_sa_path_rec path_record_of(const ipc::CmPath& path) {
  constexpr std::uint8_t kSelectorEqual = 2;
  ibv_sa_path_rec record{};
  record.dgid = gid_of(path.remote);
  record.sgid = gid_of(path.local);
  record.flow_label = htonl(path.flow_label);
  record.hop_limit = path.hop_limit;
  record.traffic_class = path.traffic_class;
  record.reversible = 1;
  record.numb_path = 1;
  record.pkey = htons(path.pkey);
  record.sl = path.sl;
  record.mtu_selector = kSelectorEqual;
  record.mtu = path.mtu;
  record.rate_selector = kSelectorEqual;
  record.rate = path.rate;
  record.packet_life_time_selector = kSelectorEqual;
  record.packet_life_time = path.packet_lifetime;
  return record;
}

ipc::CmEventType type_of(const rdma_cm_event& event) {
  // As bytes: the header's enumeration ends before the newer ones.
  ipc::CmEventType type{};
  static_assert(sizeof type == sizeof event.event);
  std::memcpy(&type, &event.event, sizeof type);
  return type;
}

void set_type(rdma_cm_event& event, ipc::CmEventType type) { std::memcpy(&event.event, &type, sizeof type); }

const char* event_name(ipc::CmEventType type) {
  constexpr std::array kNames{"RDMA_CM_EVENT_ADDR_RESOLVED",
                              "RDMA_CM_EVENT_ADDR_ERROR",
                              "RDMA_CM_EVENT_ROUTE_RESOLVED",
                              "RDMA_CM_EVENT_ROUTE_ERROR",
                              "RDMA_CM_EVENT_CONNECT_REQUEST",
                              "RDMA_CM_EVENT_CONNECT_RESPONSE",
                              "RDMA_CM_EVENT_CONNECT_ERROR",
                              "RDMA_CM_EVENT_UNREACHABLE",
                              "RDMA_CM_EVENT_REJECTED",
                              "RDMA_CM_EVENT_ESTABLISHED",
                              "RDMA_CM_EVENT_DISCONNECTED",
                              "RDMA_CM_EVENT_DEVICE_REMOVAL",
                              "RDMA_CM_EVENT_MULTICAST_JOIN",
                              "RDMA_CM_EVENT_MULTICAST_ERROR",
                              "RDMA_CM_EVENT_ADDR_CHANGE",
                              "RDMA_CM_EVENT_TIMEWAIT_EXIT",
                              "RDMA_CM_EVENT_ADDRINFO_RESOLVED",
                              "RDMA_CM_EVENT_ADDRINFO_ERROR",
                              "RDMA_CM_EVENT_USER"};
  const auto index = static_cast<std::size_t>(type);
  return index < kNames.size() ? kNames[index] : "UNKNOWN EVENT";
}

}  // namespace ucm::rdma
