#include "rdma/convert.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace ucm::rdma {
namespace {

ibv_gid gid_of(const std::array<std::uint8_t, 16>& bytes) {
  ibv_gid gid{};
  std::copy(bytes.begin(), bytes.end(), gid.raw);
  return gid;
}

}  // namespace

std::uint16_t port_of(const sockaddr_storage& address) {
  const auto parsed = from_sockaddr(reinterpret_cast<const sockaddr&>(address));
  return parsed ? htons(parsed->port) : std::uint16_t{0};
}

ibv_gid gid_of(const ipc::SocketAddress& address) { return gid_of(address.address); }

ibv_gid local_gid_of(const ipc::CmPath& path, const ipc::CmDevicePath& device) {
  return device.port != 0 ? gid_of(device.sgid) : gid_of(path.local);
}

ibv_gid remote_gid_of(const ipc::CmPath& path, const ipc::CmDevicePath& device) {
  return device.port != 0 ? gid_of(device.dgid) : gid_of(path.remote);
}

ibv_ah_attr address_handle_of(const ipc::CmPath& path, const ipc::CmDevicePath& device) {
  ibv_ah_attr attributes{};
  attributes.is_global = device.is_global;
  attributes.grh.dgid = gid_of(device.dgid);
  attributes.grh.sgid_index = device.sgid_index;
  attributes.grh.hop_limit = path.hop_limit;
  attributes.grh.traffic_class = path.traffic_class;
  attributes.grh.flow_label = path.flow_label;
  attributes.dlid = device.dlid;
  attributes.sl = path.sl;
  attributes.src_path_bits = device.src_path_bits;
  attributes.static_rate = device.static_rate;
  attributes.port_num = device.port;
  return attributes;
}

ibv_sa_path_rec path_record_of(const ipc::CmPath& path, const ipc::CmDevicePath& device) {
  constexpr std::uint8_t kSelectorEqual = 2;
  ibv_sa_path_rec record{};
  record.dgid = remote_gid_of(path, device);
  record.sgid = local_gid_of(path, device);
  record.slid = htons(device.slid);
  record.dlid = htons(device.dlid);
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
