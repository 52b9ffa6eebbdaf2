// A host as a test wants it: one loopback device and one link, with neighbours that answer or do not.
#pragma once

#include <cerrno>
#include <map>
#include <vector>

#include "host/host.h"

namespace ucm::test {

class FakeHost final : public host::Host {
 public:
  static constexpr std::uint32_t kLo = 1;
  static constexpr std::uint32_t kLink = 2;

  explicit FakeHost(const wire::IpAddress& address) : address_(address) {
    wire::IpAddress one;
    one.bytes[15] = 1;
    devices_.push_back({.ifindex = kLo,
                        .interface_name = "lo",
                        .mtu = 65536,
                        .guid = 1,
                        .loopback = true,
                        .addresses = {{wire::IpAddress::ipv4(0x7f000001), 8}, {one, 128}}});
    devices_.push_back({.ifindex = kLink,
                        .interface_name = "eth0",
                        .mtu = 1500,
                        .guid = std::uint64_t{0x505400fffe000000} | address.bytes[15],
                        .addresses = {{address, 24}}});
  }

  const std::vector<host::Device>& devices() const override { return devices_; }

  Result<host::Route> find_route(const host::RouteQuery& query) override {
    if (find_device_of(query.destination, query.ifindex) != nullptr) {
      const auto source = query.source.value_or(query.destination);
      return host::Route{find_device_of(source, query.ifindex)->ifindex, source, query.destination, false};
    }
    if (!query.destination.is_ipv4() || query.destination.bytes[12] != 10) return fail(ENETUNREACH, "no route");
    return host::Route{route_ifindex, query.source.value_or(address_), query.destination, true};
  }

  host::NeighborState neighbor_state(std::uint32_t, const wire::IpAddress& address) override {
    const auto known = neighbors.find(address);
    return known != neighbors.end() ? known->second : neighbors_default;
  }
  void resolve_neighbor(std::uint32_t, const wire::IpAddress&) override { ++resolutions; }
  host::PortRules port_rules() const override { return {}; }

  void set_neighbor(const wire::IpAddress& address, host::NeighborState state) {
    neighbors[address] = state;
    observer_.neighbor_changed(kLink, address);
  }
  void remove_link() {
    devices_.pop_back();
    observer_.devices_changed();
  }

  std::map<wire::IpAddress, host::NeighborState> neighbors;
  host::NeighborState neighbors_default = host::NeighborState::kUsable;
  std::uint32_t route_ifindex = kLink;
  int resolutions = 0;

 private:
  wire::IpAddress address_;
  std::vector<host::Device> devices_;
};

}  // namespace ucm::test
