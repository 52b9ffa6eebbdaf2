#include "node/port_space.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace ucm::node {
namespace {

constexpr std::uint16_t kTcp = 0x0106;
constexpr std::uint16_t kUdp = 0x0111;
const wire::IpAddress kAny4 = wire::IpAddress::ipv4_any();
const wire::IpAddress kAny6{};
const wire::IpAddress kA = wire::IpAddress::ipv4(0x0a000001);
const wire::IpAddress kB = wire::IpAddress::ipv4(0x0a000002);
const wire::IpAddress kLoopback = wire::IpAddress::ipv4(0x7f000001);

wire::IpAddress ipv6(std::uint8_t last) {
  wire::IpAddress address;
  address.bytes[0] = 0xfd;
  address.bytes[15] = last;
  return address;
}

int code(const Result<void>& result) { return result ? 0 : result.error().code; }

struct PairCase {
  const char* what;
  PortClaim first, second;
  int expected;
};

TEST(PortSpaces, WhoMaySharesAPortWithWhom) {
  const PairCase cases[] = {
      {"the same address", {.source = kA}, {.source = kA}, EADDRINUSE},
      {"different addresses", {.source = kA}, {.source = kB}, 0},
      {"a wildcard after an address", {.source = kA}, {.source = kAny4}, EADDRNOTAVAIL},
      {"an address after a wildcard", {.source = kAny4}, {.source = kA}, EADDRNOTAVAIL},
      {"two wildcards", {.source = kAny4}, {.source = kAny4}, EADDRNOTAVAIL},
      {"a loopback address is no wildcard", {.source = kLoopback}, {.source = kA}, 0},
      {"loopback address and wildcard", {.source = kLoopback}, {.source = kAny4}, EADDRNOTAVAIL},
      {"both reuse", {.source = kA, .reuse_address = true}, {.source = kA, .reuse_address = true}, 0},
      {"one reuses", {.source = kA, .reuse_address = true}, {.source = kA}, EADDRINUSE},
      {"wildcards of both families", {.source = kAny4, .family_only = true}, {.source = kAny6}, EADDRNOTAVAIL},
      {"wildcards of both families, each for its own",
       {.source = kAny4, .family_only = true},
       {.source = kAny6, .family_only = true},
       0},
      {"addresses of both families", {.source = kA}, {.source = ipv6(1)}, 0},
  };
  for (const PairCase& c : cases) {
    PortSpaces ports;
    ASSERT_EQ(code(ports.bind(kTcp, 1, 7174, c.first)), 0) << c.what;
    EXPECT_EQ(code(ports.bind(kTcp, 2, 7174, c.second)), c.expected) << c.what;
    EXPECT_EQ(code(ports.bind(kTcp, 3, 7175, c.second)), 0) << c.what << ", on another port";
    EXPECT_EQ(code(ports.bind(kUdp, 4, 7174, c.second)), 0) << c.what << ", in another space";
  }
}

TEST(PortSpaces, AReleasedPortIsFree) {
  PortSpaces ports;
  ASSERT_TRUE(ports.bind(kTcp, 1, 7174, {.source = kA}));
  ports.release(1);
  ports.release(1);
  EXPECT_TRUE(ports.bind(kTcp, 2, 7174, {.source = kA}));
}

TEST(PortSpaces, ASharedPortCannotBeListenedOn) {
  PortSpaces ports;
  ASSERT_TRUE(ports.bind(kTcp, 1, 7174, {.source = kA, .reuse_address = true}));
  EXPECT_EQ(code(ports.check_listen(1)), 0);
  ASSERT_TRUE(ports.bind(kTcp, 2, 7174, {.source = kA, .reuse_address = true}));
  EXPECT_EQ(code(ports.check_listen(1)), EADDRINUSE);
}

TEST(PortSpaces, AnEphemeralPortIsTakenFromTheRangeAndNotTwiceInARow) {
  PortSpaces ports;
  const auto first = ports.bind_ephemeral(kTcp, 1, {40000, 40003}, 2, {.source = kA});
  EXPECT_EQ(first.value(), 40002);
  ports.release(1);
  EXPECT_EQ(ports.bind_ephemeral(kTcp, 2, {40000, 40003}, 2, {.source = kA}).value(), 40003);
  EXPECT_EQ(ports.bind_ephemeral(kTcp, 3, {40000, 40003}, 3, {.source = kA}).value(), 40000);
}

TEST(PortSpaces, AFullRangeIsSharedByThoseWhoGoElsewhere) {
  PortSpaces ports;
  const PortClaim to_b{.source = kA, .destination = kB, .destination_port = 7174};
  for (PortSpaces::Owner owner = 0; owner < 4; ++owner) {
    ASSERT_TRUE(ports.bind_ephemeral(kTcp, owner, {40000, 40003}, 0, to_b));
  }
  EXPECT_EQ(ports.bind_ephemeral(kTcp, 4, {40000, 40003}, 0, to_b).error().code, EADDRNOTAVAIL);
  PortClaim elsewhere = to_b;
  elsewhere.destination_port = 7175;
  EXPECT_TRUE(ports.bind_ephemeral(kTcp, 5, {40000, 40003}, 0, elsewhere));
}

TEST(PortSpaces, AWildcardThatBecameAnAddressConflictsAsThatAddress) {
  PortSpaces ports;
  ASSERT_TRUE(ports.bind(kTcp, 1, 7174, {.source = kAny4}));
  ports.update(1, {.source = kA});
  EXPECT_EQ(code(ports.bind(kTcp, 2, 7174, {.source = kB})), 0);
  EXPECT_EQ(code(ports.bind(kTcp, 3, 7174, {.source = kA})), EADDRINUSE);
}

}  // namespace
}  // namespace ucm::node
