#include <gtest/gtest.h>
#include <poll.h>

#include <cerrno>
#include <cstdlib>
#include <functional>

#include "host/device_list.h"
#include "host/netlink_host.h"
#include "unit/private_network.h"

namespace ucm::host {
namespace {

constexpr wire::IpAddress ipv4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
  return wire::IpAddress::ipv4(std::uint32_t{a} << 24 | std::uint32_t{b} << 16 | std::uint32_t{c} << 8 | d);
}

wire::IpAddress ipv6(std::uint16_t first, std::uint16_t last) {
  wire::IpAddress address;
  store_be16(&address.bytes[0], first);
  store_be16(&address.bytes[14], last);
  return address;
}

TEST(PathMtu, IsTheLargestWhoseHeadersFit) {
  EXPECT_EQ(path_mtu_of(351), 0);
  EXPECT_EQ(path_mtu_of(352), 1);
  EXPECT_EQ(path_mtu_of(1500), 3);
  EXPECT_EQ(path_mtu_of(2143), 3);
  EXPECT_EQ(path_mtu_of(2144), 4);
  EXPECT_EQ(path_mtu_of(4192), 5);
  EXPECT_EQ(path_mtu_of(65536), 5);
}

TEST(DeviceGuid, IsTheEui64OfTheMacAndMadeUpButStableWithoutOne) {
  EXPECT_EQ(device_guid({0x52, 0x54, 0x00, 0x77, 0x00, 0x02}, "eth0"), 0x505400fffe770002u);
  EXPECT_NE(device_guid({}, "lo"), 0u);
  EXPECT_EQ(device_guid({}, "lo"), device_guid({}, "lo"));
  EXPECT_NE(device_guid({}, "lo"), device_guid({}, "tun0"));
}

// How long to wait for what takes milliseconds, on a busy machine.
constexpr int kPatienceMs = 20'000;

class HostInItsOwnNetwork : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::enter_private_network()) GTEST_SKIP() << "no network namespace of one's own here";
    auto opened = NetlinkHost::open();
    ASSERT_TRUE(opened) << opened.error().message;
    host_ = std::move(*opened);
    host_->observe({.devices_changed = [this] { ++changes_; },
                    .neighbor_changed = [this](std::uint32_t, const wire::IpAddress& a) { neighbors_.push_back(a); }});
  }

  // What the kernel has to tell of IPv4 addresses and of links set down or deleted is in the socket when the command
  // returns.
  void ip(const std::string& arguments) {
    ASSERT_EQ(std::system(("ip " + arguments).c_str()), 0) << "ip " << arguments;
    host_->on_readable();
  }
  // Of IPv6 addresses and of a carrier that has come it tells from a work queue, later.
  void await(const std::function<bool()>& condition) {
    while (!condition()) {
      pollfd news{.fd = host_->wait_fd(), .events = POLLIN, .revents = 0};
      ASSERT_EQ(poll(&news, 1, kPatienceMs), 1) << "the kernel has nothing more to tell";
      host_->on_readable();
    }
  }
  void await_running() {
    await([&] {
      const Device* found = host_->find_device(link_.ifindex);
      return found != nullptr && found->running;
    });
  }
  // A link to nobody: its far end is up, has no address and answers nothing.
  void add_link() {
    if (std::system("ip link add ucmtest0 type veth peer name ucmtest1 2>/dev/null") != 0) {
      GTEST_SKIP() << "no veth interfaces here";
    }
    ip("link set ucmtest0 mtu 4200 addrgenmode none address 52:54:00:77:00:02 up");
    ip("link set ucmtest1 addrgenmode none up");
    ip("address add 10.1.0.1/24 dev ucmtest0");
    ip("-6 address add fd01::1/64 dev ucmtest0 nodad");
    ip("-6 address add fe80::1/64 dev ucmtest0 nodad");
    await([&] {
      const Device* found = host_->find_device_of(ipv4(10, 1, 0, 1), 0);
      if (found != nullptr) link_ = *found;
      return link_.addresses.size() == 3;
    });
  }

  std::unique_ptr<NetlinkHost> host_;
  Device link_;
  int changes_ = 0;
  std::vector<wire::IpAddress> neighbors_;
};

TEST_F(HostInItsOwnNetwork, TheLoopbackDeviceHasEveryAddressOf127) {
  const Device* lo = host_->find_device_of(ipv4(127, 9, 9, 9), 0);
  ASSERT_NE(lo, nullptr);
  EXPECT_EQ(lo->interface_name, "lo");
  EXPECT_TRUE(lo->loopback);
  EXPECT_EQ(host_->find_device_of(ipv6(0, 1), 0), lo);
  EXPECT_NE(lo->guid, 0u);

  const auto route = host_->find_route({.destination = ipv4(127, 0, 0, 2), .source = ipv4(127, 0, 0, 3)});
  ASSERT_TRUE(route) << route.error().message;
  EXPECT_EQ(route->ifindex, lo->ifindex);
  EXPECT_EQ(route->source, ipv4(127, 0, 0, 3));
  EXPECT_FALSE(route->needs_neighbor);
}

TEST_F(HostInItsOwnNetwork, NoRouteAndNoSuchSourceAreErrorsOfTheirOwn) {
  EXPECT_EQ(host_->find_route({.destination = ipv4(10, 1, 0, 9)}).error().code, ENETUNREACH);
  EXPECT_EQ(host_->find_route({.destination = ipv6(0xfd01, 9)}).error().code, ENETUNREACH);
  EXPECT_EQ(host_->find_route({.destination = ipv4(127, 0, 0, 1), .source = ipv4(10, 1, 0, 1)}).error().code,
            EADDRNOTAVAIL);
  EXPECT_EQ(host_->find_route({.destination = ipv6(0, 1), .source = ipv4(127, 0, 0, 1)}).error().code, EINVAL);
}

TEST_F(HostInItsOwnNetwork, ANewInterfaceAppearsWithItsAddressesLinkLocalFirst) {
  add_link();
  if (IsSkipped()) return;
  EXPECT_GT(changes_, 0);
  EXPECT_EQ(link_.interface_name, "ucmtest0");
  EXPECT_EQ(link_.mtu, 4200u);
  EXPECT_EQ(link_.guid, 0x505400fffe770002u);
  ASSERT_EQ(link_.addresses.size(), 3u);
  EXPECT_EQ(link_.addresses[0].address, ipv6(0xfe80, 1));
  EXPECT_EQ(link_.addresses[1], (DeviceAddress{ipv4(10, 1, 0, 1), 24}));
  EXPECT_EQ(link_.addresses[2], (DeviceAddress{ipv6(0xfd01, 1), 64}));
}

TEST_F(HostInItsOwnNetwork, ALinkThatGoesDownStaysADeviceUntilItIsRemoved) {
  add_link();
  if (IsSkipped()) return;
  await_running();
  ip("link set ucmtest0 down");
  const Device* found = host_->find_device_of(ipv4(10, 1, 0, 1), 0);
  ASSERT_NE(found, nullptr);
  EXPECT_FALSE(found->running);
  EXPECT_EQ(host_->find_route({.destination = ipv4(10, 1, 0, 9)}).error().code, ENETUNREACH);
  EXPECT_EQ(host_->find_device_of(ipv6(0xfd01, 1), 0), nullptr);
  ip("link set ucmtest0 up");
  await_running();
  ip("link delete ucmtest0");
  EXPECT_EQ(host_->find_device(link_.ifindex), nullptr);
}

TEST_F(HostInItsOwnNetwork, ATentativeAddressIsLeftOut) {
  add_link();
  if (IsSkipped()) return;
  ip("-6 address add fd01::2/64 dev ucmtest0");
  EXPECT_EQ(host_->find_device_of(ipv6(0xfd01, 2), 0), nullptr);
}

TEST_F(HostInItsOwnNetwork, AnOwnAddressIsReachedThroughTheDeviceThatHasIt) {
  add_link();
  if (IsSkipped()) return;
  const auto route = host_->find_route({.destination = ipv4(10, 1, 0, 1)});
  ASSERT_TRUE(route) << route.error().message;
  EXPECT_EQ(route->ifindex, link_.ifindex);
  EXPECT_EQ(route->source, ipv4(10, 1, 0, 1));
  EXPECT_FALSE(route->needs_neighbor);
}

TEST_F(HostInItsOwnNetwork, ARouteTellsSourceAndNextHop) {
  add_link();
  if (IsSkipped()) return;
  ip("route add 10.2.0.0/16 via 10.1.0.7");
  const auto on_link = host_->find_route({.destination = ipv4(10, 1, 0, 9)});
  ASSERT_TRUE(on_link) << on_link.error().message;
  EXPECT_EQ(on_link->source, ipv4(10, 1, 0, 1));
  EXPECT_EQ(on_link->next_hop, ipv4(10, 1, 0, 9));
  EXPECT_TRUE(on_link->needs_neighbor);

  const auto routed = host_->find_route({.destination = ipv4(10, 2, 0, 9), .source = ipv4(10, 1, 0, 1)});
  ASSERT_TRUE(routed) << routed.error().message;
  EXPECT_EQ(routed->ifindex, link_.ifindex);
  EXPECT_EQ(routed->next_hop, ipv4(10, 1, 0, 7));

  const auto global6 = host_->find_route({.destination = ipv6(0xfd01, 9)});
  ASSERT_TRUE(global6) << global6.error().message;
  EXPECT_EQ(global6->source, ipv6(0xfd01, 1));
  const auto link_local = host_->find_route({.destination = ipv6(0xfe80, 9), .ifindex = link_.ifindex});
  ASSERT_TRUE(link_local) << link_local.error().message;
  EXPECT_EQ(link_local->source, ipv6(0xfe80, 1));
}

TEST_F(HostInItsOwnNetwork, AskingForANeighbourMakesItPendingAndTheKernelTellsWhenItIsKnown) {
  add_link();
  if (IsSkipped()) return;
  for (const wire::IpAddress& address : {ipv4(10, 1, 0, 9), ipv6(0xfd01, 9), ipv6(0xfe80, 9)}) {
    EXPECT_EQ(host_->neighbor_state(link_.ifindex, address), NeighborState::kUnresolved);
    host_->resolve_neighbor(link_.ifindex, address);
    EXPECT_EQ(host_->neighbor_state(link_.ifindex, address), NeighborState::kPending);
  }
  neighbors_.clear();
  ip("neighbour replace 10.1.0.9 lladdr 52:54:00:77:00:09 dev ucmtest0 nud reachable");
  EXPECT_EQ(std::count(neighbors_.begin(), neighbors_.end(), ipv4(10, 1, 0, 9)), 1);
  EXPECT_EQ(host_->neighbor_state(link_.ifindex, ipv4(10, 1, 0, 9)), NeighborState::kUsable);
}

TEST_F(HostInItsOwnNetwork, PortRulesAreTheSystems) {
  const PortRules rules = host_->port_rules();
  EXPECT_GT(rules.ephemeral_first, 0);
  EXPECT_LT(rules.ephemeral_first, rules.ephemeral_last);
}

}  // namespace
}  // namespace ucm::host
