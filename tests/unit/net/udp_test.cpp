// Real sockets on a loopback interface of the test's own. Delivery over loopback is complete when a send returns, so
// nothing waits.
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "net/port_holder.h"
#include "net/socket_address.h"
#include "net/udp_port.h"
#include "unit/private_network.h"

namespace ucm::net {
namespace {

wire::IpAddress ip(const char* text) {
  in6_addr address6;
  if (inet_pton(AF_INET6, text, &address6) == 1) return from_in6_addr(address6);
  in_addr address4{};
  inet_pton(AF_INET, text, &address4);
  return from_in_addr(address4);
}

class Udp : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::enter_private_network()) GTEST_SKIP() << "no network namespace of one's own here";
    auto opened = UdpPort::open();
    ASSERT_TRUE(opened) << opened.error().message;
    port_ = std::move(*opened);
  }

  struct Received {
    wire::DatagramInfo info;
    std::vector<std::uint8_t> payload;
  };
  std::vector<Received> receive_all() {
    std::vector<Received> all;
    const auto sink = [&](const Datagram& d) { all.push_back({d.info, {d.payload.begin(), d.payload.end()}}); };
    while (port_->receive(sink, 100) != 0) {
    }
    return all;
  }

  std::unique_ptr<UdpPort> port_;
};

TEST_F(Udp, CarriesAddressesTrafficClassAndHopLimitOfBothFamilies) {
  const std::uint8_t payload[] = {1, 2, 3, 4};
  const Datagram datagrams[] = {
      {{.source = ip("127.0.0.2"), .destination = ip("127.0.0.3"), .traffic_class = 0x6A, .hop_limit = 33}, payload},
      {{.source = ip("::1"), .destination = ip("::1"), .traffic_class = 0x68, .hop_limit = 7}, payload}};
  port_->send(datagrams);

  auto received = receive_all();
  ASSERT_EQ(received.size(), 2u);
  if (!received[0].info.source.is_ipv4()) std::swap(received[0], received[1]);
  for (int i = 0; i < 2; ++i) {
    const wire::DatagramInfo& info = received[i].info;
    EXPECT_EQ(to_string(info.source), to_string(datagrams[i].info.source));
    EXPECT_EQ(to_string(info.destination), to_string(datagrams[i].info.destination));
    EXPECT_EQ(info.source_port, port_->source_port());
    EXPECT_EQ(info.traffic_class, datagrams[i].info.traffic_class);
    EXPECT_EQ(info.hop_limit, datagrams[i].info.hop_limit);
    EXPECT_EQ(info.ifindex, 1u);
    EXPECT_EQ(received[i].payload, std::vector<std::uint8_t>(std::begin(payload), std::end(payload)));
  }
  EXPECT_GE(port_->source_port(), wire::kRoceSourcePortMin);
}

TEST_F(Udp, ABatchLongerThanASystemCallArrivesInOrder) {
  std::vector<std::array<std::uint8_t, 1>> payloads(100);
  std::vector<Datagram> datagrams;
  for (std::size_t i = 0; i < payloads.size(); ++i) {
    payloads[i][0] = static_cast<std::uint8_t>(i);
    datagrams.push_back({{.source = ip("127.0.0.1"), .destination = ip("127.0.0.1")}, payloads[i]});
  }
  port_->send(datagrams);
  const auto received = receive_all();
  ASSERT_EQ(received.size(), payloads.size());
  for (std::size_t i = 0; i < received.size(); ++i) EXPECT_EQ(received[i].payload[0], i);
  EXPECT_EQ(port_->send_counters().sent, 100u);
}

TEST_F(Udp, ADatagramThatCannotBeSentIsCountedAndTheOthersStillGo) {
  const std::uint8_t payload[] = {1};
  const Datagram datagrams[] = {
      {{.source = ip("127.0.0.1"), .destination = ip("127.0.0.1")}, payload},
      {{.source = ip("10.99.0.1"), .destination = ip("127.0.0.1")}, payload},  // no such source
      {{.source = ip("127.0.0.1"), .destination = ip("10.99.0.1")}, payload},  // no route
      {{.source = ip("127.0.0.1"), .destination = ip("127.0.0.9")}, payload}};
  UdpSender sender(port_->send_sockets());
  EXPECT_EQ(sender.send(datagrams), 4u);
  EXPECT_EQ(sender.counters().sent, 2u);
  EXPECT_EQ(sender.counters().refused, 2u);
  EXPECT_EQ(receive_all().size(), 2u);
}

TEST_F(Udp, ADatagramLongerThanAnyRocePacketIsDropped) {
  const std::vector<std::uint8_t> payload(5000);
  const Datagram datagram{{.source = ip("127.0.0.1"), .destination = ip("127.0.0.1")}, payload};
  port_->send({&datagram, 1});
  EXPECT_TRUE(receive_all().empty());
  EXPECT_EQ(port_->receive_counters().truncated, 1u);
}

TEST_F(Udp, NothingIsEverReceivedOnTheSendSockets) {
  const std::uint8_t payload[] = {1};
  const Datagram datagram{
      {.source = ip("127.0.0.1"), .destination = ip("127.0.0.1"), .destination_port = port_->source_port()}, payload};
  port_->send({&datagram, 1});
  EXPECT_EQ(port_->send_counters().sent, 1u);
  std::uint8_t byte;
  EXPECT_EQ(recv(port_->send_sockets().ipv4, &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(Udp, LinuxSendsIdentificationZero) {
  const auto identification = probe_ipv4_identification();
  if (!identification) GTEST_SKIP() << identification.error().message;
  EXPECT_EQ(*identification, 0);
}

TEST_F(Udp, WhenThePortIsTakenTheMessageSaysByWhom) {
  const auto second = UdpPort::open();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, EADDRINUSE);
  EXPECT_NE(second.error().message.find("process " + std::to_string(getpid()) + " (unit_net)"), std::string::npos)
      << second.error().message;
}

}  // namespace
}  // namespace ucm::net
