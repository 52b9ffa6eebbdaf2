// The interfaces that are devices, with their addresses, read from rtnetlink.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "base/result.h"
#include "host/device.h"
#include "host/netlink_request.h"

namespace ucm::host {

struct DeviceList {
  std::vector<Device> devices;                // by interface index
  std::set<std::uint32_t> without_neighbors;  // interfaces that do not resolve neighbours
  bool operator==(const DeviceList&) const = default;
};

// Those that are up, and those that were devices `before` and are still there: as with Linux, a link that goes down
// takes no device away.
Result<DeviceList> read_device_list(nl_sock* socket, const std::vector<Device>& before);

// EUI-64 of the MAC, or, without one, a number that is stable for this machine and interface name. Never 0.
std::uint64_t device_guid(const std::array<std::uint8_t, 6>& mac, const std::string& interface_name);

}  // namespace ucm::host
