// A software RDMA device as the host's interfaces define it: one per network interface that is up, or has
// been since the node knows it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "wire/address.h"

namespace ucm::host {

struct DeviceAddress {
  wire::IpAddress address;  // = the GID
  std::uint8_t prefix_length = 0;
  bool operator==(const DeviceAddress&) const = default;
};

struct Device {
  std::uint32_t ifindex = 0;
  std::string interface_name;  // the RDMA device is called "ucm_" + interface_name
  std::uint32_t mtu = 0;       // of the interface, bytes
  std::uint64_t guid = 0;      // node GUID, host byte order; EUI-64 of the MAC, or made up (stable) without one
  std::array<std::uint8_t, 6> mac{};
  bool loopback = false;
  bool running = true;  // up, with carrier
  // Index = GID index. The IPv6 link-local address first, then IPv4 and IPv6 addresses in the order found.
  std::vector<DeviceAddress> addresses;
  bool operator==(const Device&) const = default;
};

// The largest ibv_mtu code (1 = 256 .. 5 = 4096) whose packets fit an interface MTU; 0 below 352 bytes.
// value + 96 <= MTU, as rdma_cm computes it.
std::uint8_t path_mtu_of(std::uint32_t interface_mtu);

}  // namespace ucm::host
