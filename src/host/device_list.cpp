#include "host/device_list.h"

#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>

#include "base/random.h"

namespace ucm::host {
namespace {

// A dump that changes under the reader is read again; a host that changes all the time gives a list soon outdated
// anyway.
constexpr int kReadTries = 4;

using Interfaces = std::map<std::uint32_t, Device>;

bool has_device(const std::vector<Device>& devices, int ifindex) {
  return std::ranges::find(devices, static_cast<std::uint32_t>(ifindex), &Device::ifindex) != devices.end();
}

void add_interface(nlmsghdr* header, const std::vector<Device>& before, Interfaces& interfaces,
                   std::set<std::uint32_t>& without_neighbors) {
  const auto* info = static_cast<const ifinfomsg*>(nlmsg_data(header));
  if (header->nlmsg_type != RTM_NEWLINK) return;
  if ((info->ifi_flags & IFF_UP) == 0 && !has_device(before, info->ifi_index)) return;
  nlattr* attributes[IFLA_MAX + 1] = {};
  if (nlmsg_parse(header, sizeof(*info), attributes, IFLA_MAX, nullptr) != 0 || attributes[IFLA_IFNAME] == nullptr)
    return;

  Device device;
  device.ifindex = static_cast<std::uint32_t>(info->ifi_index);
  device.interface_name = nla_get_string(attributes[IFLA_IFNAME]);
  if (attributes[IFLA_MTU] != nullptr) device.mtu = nla_get_u32(attributes[IFLA_MTU]);
  const nlattr* mac = attributes[IFLA_ADDRESS];
  if (mac != nullptr && nla_len(mac) == 6) std::memcpy(device.mac.data(), nla_data(mac), 6);
  device.guid = device_guid(device.mac, device.interface_name);
  device.loopback = (info->ifi_flags & IFF_LOOPBACK) != 0;
  device.running = (info->ifi_flags & IFF_RUNNING) != 0;
  if ((info->ifi_flags & (IFF_LOOPBACK | IFF_NOARP)) != 0) without_neighbors.insert(device.ifindex);
  interfaces[device.ifindex] = std::move(device);
}

// Nothing can be bound to an address whose duplicate detection runs or has failed; the kernel tells when it is over.
bool is_usable(std::uint32_t flags) {
  if ((flags & IFA_F_DADFAILED) != 0) return false;
  return (flags & IFA_F_TENTATIVE) == 0 || (flags & IFA_F_OPTIMISTIC) != 0;
}

void add_address(nlmsghdr* header, Interfaces& interfaces) {
  const auto* info = static_cast<const ifaddrmsg*>(nlmsg_data(header));
  const auto device = interfaces.find(info->ifa_index);
  if (header->nlmsg_type != RTM_NEWADDR || device == interfaces.end()) return;
  nlattr* attributes[IFA_MAX + 1] = {};
  if (nlmsg_parse(header, sizeof(*info), attributes, IFA_MAX, nullptr) != 0) return;
  const std::uint32_t flags = attributes[IFA_FLAGS] != nullptr ? nla_get_u32(attributes[IFA_FLAGS]) : info->ifa_flags;
  // On a point-to-point link IFA_ADDRESS is the peer's.
  const nlattr* own = attributes[IFA_LOCAL] != nullptr ? attributes[IFA_LOCAL] : attributes[IFA_ADDRESS];
  if (own == nullptr || !is_usable(flags)) return;

  const DeviceAddress address{read_address(own), info->ifa_prefixlen};
  auto& addresses = device->second.addresses;
  if (std::ranges::find(addresses, address.address, &DeviceAddress::address) == addresses.end()) {
    addresses.push_back(address);
  }
}

Result<DeviceList> read_once(nl_sock* socket, const std::vector<Device>& before) {
  DeviceList list;
  Interfaces interfaces;
  const auto links = make_request(RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, ifinfomsg{});
  auto asked = ask(socket, links.get(),
                   [&](nlmsghdr* header) { add_interface(header, before, interfaces, list.without_neighbors); });
  if (!asked) return tl::unexpected(asked.error());
  const auto addresses = make_request(RTM_GETADDR, NLM_F_REQUEST | NLM_F_DUMP, ifaddrmsg{});
  asked = ask(socket, addresses.get(), [&](nlmsghdr* header) { add_address(header, interfaces); });
  if (!asked) return tl::unexpected(asked.error());

  for (auto& [ifindex, device] : interfaces) {
    const auto link_local =
        std::ranges::find_if(device.addresses, [](const DeviceAddress& a) { return a.address.is_link_local(); });
    if (link_local != device.addresses.end()) std::rotate(device.addresses.begin(), link_local, link_local + 1);
    list.devices.push_back(std::move(device));
  }
  return list;
}

}  // namespace

Result<DeviceList> read_device_list(nl_sock* socket, const std::vector<Device>& before) {
  Result<DeviceList> list = read_once(socket, before);
  for (int tries = 1; tries < kReadTries && !list && list.error().code == EINTR; ++tries)
    list = read_once(socket, before);
  return list;
}

std::uint64_t device_guid(const std::array<std::uint8_t, 6>& mac, const std::string& interface_name) {
  if (mac != std::array<std::uint8_t, 6>{}) {
    const std::array<std::uint8_t, 8> eui64{
        static_cast<std::uint8_t>(mac[0] ^ 2), mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
    return load_be64(eui64.data());
  }
  std::string machine;
  std::ifstream("/etc/machine-id") >> machine;
  const std::string name = machine + "/" + interface_name;
  std::uint64_t hash = name.size();
  for (const char c : name) hash = siphash24({hash, 0}, static_cast<std::uint8_t>(c));
  // Universal/local bit cleared and group bit clear: the EUI-64 of no real card.
  return (hash & ~(std::uint64_t{3} << 56)) | 1;
}

}  // namespace ucm::host
