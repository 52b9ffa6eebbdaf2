// Which listener a request is for, and how many requests may wait.
#include <cerrno>

#include "harness.h"

namespace ucm::cm {
namespace {

constexpr auto kAny4 = wire::IpAddress::ipv4_any();
constexpr wire::IpAddress kAny6{};
constexpr auto kLoopback4 = wire::IpAddress::ipv4(0x7f000001);

wire::IpAddress ipv6(std::uint8_t first, std::uint8_t second, std::uint8_t last) {
  wire::IpAddress address;
  address.bytes[0] = first;
  address.bytes[1] = second;
  address.bytes[15] = last;
  return address;
}

class Listener : public CmTest {
 protected:
  // The `user` of the listener that gets a request from `source` to `destination`; 0 when it is rejected.
  std::uint64_t taker(const wire::IpAddress& source, const wire::IpAddress& destination, std::uint32_t ifindex = 0) {
    auto m = req();
    m.local_comm_id = next_comm_id_++;
    m.local_qpn = next_qpn_++;
    m.primary.local_gid = source;
    m.primary.remote_gid = destination;
    const auto ip_version = static_cast<std::uint8_t>(destination.is_ipv4() ? 4 : 6);
    set_addresses(m, {.ip_version = ip_version, .source_port = 1, .source = source, .destination = destination});
    deliver(m, {.local = destination, .remote = source, .ifindex = ifindex});
    const auto list = events();
    if (!list.empty()) return list[0].user;
    EXPECT_EQ(sent<wire::Rej>().reason, wire::RejReason::kConsumerDefined);
    return 0;
  }
  void open(std::uint64_t user, const wire::IpAddress& address, bool family_only = true, std::uint32_t ifindex = 0) {
    ASSERT_TRUE(engine.listen({.service_id = kServiceId,
                               .address = address,
                               .address_family_only = family_only,
                               .ifindex = ifindex,
                               .user = user}));
  }

 private:
  std::uint32_t next_comm_id_ = 0x5000;
  std::uint32_t next_qpn_ = 0x100;
};

TEST_F(Listener, WildcardTakesEveryAddressOfItsFamily) {
  open(1, kAny4);
  EXPECT_EQ(taker(kPeerAddress, kOwnAddress), 1u);
  EXPECT_EQ(taker(kLoopback4, kLoopback4), 1u);
  EXPECT_EQ(taker(ipv6(0xfd, 1, 1), ipv6(0xfd, 1, 2)), 0u);
}

TEST_F(Listener, Ipv6WildcardTakesIpv4UnlessFamilyOnly) {
  open(1, kAny6, false);
  EXPECT_EQ(taker(kPeerAddress, kOwnAddress), 1u);
  EXPECT_EQ(taker(ipv6(0xfd, 1, 1), ipv6(0xfd, 1, 2)), 1u);
}

TEST_F(Listener, FamilyOnlyIpv6WildcardTakesNoIpv4) {
  open(1, kAny6, true);
  EXPECT_EQ(taker(kPeerAddress, kOwnAddress), 0u);
  EXPECT_EQ(taker(ipv6(0xfd, 1, 1), ipv6(0xfd, 1, 2)), 1u);
}

TEST_F(Listener, AddressTakesOnlyItself) {
  open(1, kOwnAddress);
  EXPECT_EQ(taker(kPeerAddress, kOwnAddress), 1u);
  EXPECT_EQ(taker(kPeerAddress, kStranger), 0u);
}

TEST_F(Listener, MostSpecificOneWinsWhateverTheOrder) {
  open(1, kAny6, false);
  open(2, kOwnAddress);
  open(3, kAny4);
  EXPECT_EQ(taker(kPeerAddress, kOwnAddress), 2u);
  EXPECT_EQ(taker(kPeerAddress, kStranger), 3u);
  EXPECT_EQ(taker(ipv6(0xfd, 1, 1), ipv6(0xfd, 1, 2)), 1u);
}

TEST_F(Listener, OnALoopbackAddressTakesPacketsOfThisHostOnly) {
  open(1, kLoopback4);
  EXPECT_EQ(taker(kLoopback4, kLoopback4), 1u);
  // A request from outside that names the loopback address.
  auto m = req();
  set_addresses(m, {.ip_version = 4, .source_port = 1, .source = kPeerAddress, .destination = kLoopback4});
  deliver(m);
  EXPECT_EQ(sent<wire::Rej>().reason, wire::RejReason::kConsumerDefined);
  EXPECT_TRUE(events().empty());
}

TEST_F(Listener, OnAnIpv6LoopbackAddressLikewise) {
  open(1, ipv6(0, 0, 1));
  EXPECT_EQ(taker(ipv6(0, 0, 1), ipv6(0, 0, 1)), 1u);
  EXPECT_EQ(taker(ipv6(0xfd, 1, 1), ipv6(0xfd, 1, 2)), 0u);
}

TEST_F(Listener, OnALinkLocalAddressTakesItsInterfaceOnly) {
  open(2, ipv6(0xfe, 0x80, 2), true, 2);
  open(3, ipv6(0xfe, 0x80, 2), true, 3);
  EXPECT_EQ(taker(ipv6(0xfe, 0x80, 1), ipv6(0xfe, 0x80, 2), 2), 2u);
  EXPECT_EQ(taker(ipv6(0xfe, 0x80, 1), ipv6(0xfe, 0x80, 2), 3), 3u);
  EXPECT_EQ(taker(ipv6(0xfe, 0x80, 1), ipv6(0xfe, 0x80, 2), 4), 0u);
}

TEST_F(Listener, SameServiceAddressAndInterfaceIsInUseUntilClosed) {
  open(1, kOwnAddress);
  const ListenParams same{.service_id = kServiceId, .address = kOwnAddress};
  const auto second = engine.listen(same);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, EADDRINUSE);
  open(2, kAny4);
  const auto other = engine.listen({.service_id = kServiceId + 1, .address = kOwnAddress});
  ASSERT_TRUE(other);
  engine.close_listener(now, *other);
  EXPECT_TRUE(engine.listen({.service_id = kServiceId + 1, .address = kOwnAddress}));
}

// ---- Backlog.

class Backlog : public Listener {
 protected:
  void send_request(std::uint32_t number) {
    auto m = req();
    m.local_comm_id = 0x7000 + number;
    m.local_qpn = 0x700 + number;
    deliver(m);
  }
};

TEST_F(Backlog, OverflowIsSilentAndARepetitionSucceedsOnceARequestIsTaken) {  // Field case 2.13
  listen(4);
  for (std::uint32_t i = 0; i < 6; ++i) send_request(i);
  const auto waiting = events();
  EXPECT_EQ(waiting.size(), 4u);
  EXPECT_TRUE(packets().empty());
  EXPECT_EQ(engine.counters().backlog_full, 2u);
  EXPECT_EQ(engine.usage().connections, 4u);
  engine.request_taken(now, waiting[1].connection);
  engine.request_taken(now, waiting[1].connection);  // counts once
  send_request(4);
  send_request(5);
  EXPECT_EQ(events().size(), 1u);
  EXPECT_EQ(engine.counters().backlog_full, 3u);
}

TEST_F(Backlog, DestroyingAnUntakenRequestFreesItsPlace) {
  listen(1);
  send_request(0);
  engine.destroy(now, event().connection);
  packets();
  send_request(1);
  EXPECT_EQ(event().type, EventType::kConnectRequest);
}

TEST_F(Backlog, ClosingRejectsWhatIsNotTakenAndKeepsWhatIs) {
  listen(8);
  for (std::uint32_t i = 0; i < 4; ++i) send_request(i);
  const auto taken = engine.poll_event();
  ASSERT_TRUE(taken);
  engine.request_taken(now, taken->connection);
  engine.close_listener(now, listener);
  const auto list = packets();
  EXPECT_EQ(list.size(), 3u);
  for (const auto& packet : list) EXPECT_EQ(header_of(packet).attribute, wire::Attribute::kRej);
  EXPECT_TRUE(events().empty());  // they were not delivered, and never will be
  EXPECT_TRUE(engine.accept(now, taken->connection, accept_params()));
  packets();
  send_request(9);
  EXPECT_EQ(sent<wire::Rej>().reason, wire::RejReason::kInvalidServiceId);
}

TEST_F(Backlog, ZeroCountsAsOne) {  // Field case 2.14
  listen(0);
  send_request(0);
  send_request(1);
  EXPECT_EQ(events().size(), 1u);
}

}  // namespace
}  // namespace ucm::cm
