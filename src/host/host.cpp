#include "host/host.h"

#include <algorithm>

namespace ucm::host {
namespace {

// What a RoCE packet of full path MTU may add: GRH 40, UDP 8, BTH 12, XRCETH 4, AtomicETH 28, ICRC 4.  // Linux:
// rdma_cm
constexpr std::uint32_t kHeaderBytesMax = 96;

bool has_address(const Device& device, const wire::IpAddress& address) {
  if (device.loopback && address.is_ipv4() && address.is_loopback()) return true;
  return std::ranges::any_of(device.addresses, [&](const DeviceAddress& a) { return a.address == address; });
}

}  // namespace

std::uint8_t path_mtu_of(std::uint32_t interface_mtu) {
  for (std::uint8_t code = 5; code > 0; --code) {
    if ((128u << code) + kHeaderBytesMax <= interface_mtu) return code;
  }
  return 0;
}

const Device* Host::find_device(std::uint32_t ifindex) const {
  const auto it = std::ranges::find(devices(), ifindex, &Device::ifindex);
  return it != devices().end() ? &*it : nullptr;
}

const Device* Host::find_device_of(const wire::IpAddress& address, std::uint32_t ifindex) const {
  const bool any_interface = !address.is_link_local() || ifindex == 0;
  for (const Device& device : devices()) {
    if ((any_interface || device.ifindex == ifindex) && has_address(device, address)) return &device;
  }
  return nullptr;
}

}  // namespace ucm::host
