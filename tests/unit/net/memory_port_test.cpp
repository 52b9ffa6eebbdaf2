#include "net/memory_port.h"

#include <gtest/gtest.h>

namespace ucm::net {
namespace {

const wire::IpAddress kA = wire::IpAddress::ipv4(0x0a000001);
const wire::IpAddress kB = wire::IpAddress::ipv4(0x0a000002);

TEST(MemoryNetwork, DeliversToThePortThatHasTheAddress) {
  MemoryNetwork network;
  const auto a = network.attach({kA}, 0xC00A);
  const auto b = network.attach({kB}, 0xC00B);
  const std::uint8_t payload[] = {1, 2, 3};
  const Datagram datagrams[] = {{{.source = kA, .destination = kB}, payload},
                                {{.source = kA, .destination = wire::IpAddress::ipv4(1)}, payload}};
  a->send(datagrams);

  std::size_t seen = 0;
  const auto sink = [&](const Datagram& d) {
    ++seen;
    EXPECT_EQ(d.info.source, kA);
    EXPECT_EQ(d.info.source_port, 0xC00A);
    EXPECT_TRUE(std::equal(d.payload.begin(), d.payload.end(), std::begin(payload), std::end(payload)));
  };
  EXPECT_EQ(a->receive(sink, 10), 0u);
  EXPECT_EQ(b->receive(sink, 10), 1u);
  EXPECT_EQ(seen, 1u);
  EXPECT_EQ(network.sent_count(), 2u);
  EXPECT_EQ(network.unroutable_count(), 1u);
}

TEST(MemoryNetwork, TheTapLosesAndChangesDatagramsAndReceiveKeepsToItsLimit) {
  MemoryNetwork network;
  const auto a = network.attach({kA}, 0xC00A);
  network.set_tap([](const wire::DatagramInfo&, MemoryNetwork::Payload& payload) {
    payload[0] = static_cast<std::uint8_t>(payload[0] + 100);
    return payload[0] != 101;
  });
  for (std::uint8_t i = 0; i < 4; ++i) {
    const Datagram datagram{{.source = kA, .destination = kA}, Bytes(&i, 1)};
    a->send({&datagram, 1});
  }
  std::vector<std::uint8_t> arrived;
  const auto sink = [&](const Datagram& d) { arrived.push_back(d.payload[0]); };
  EXPECT_EQ(a->receive(sink, 2), 2u);
  EXPECT_EQ(a->receive(sink, 2), 1u);
  EXPECT_EQ(arrived, (std::vector<std::uint8_t>{100, 102, 103}));
}

}  // namespace
}  // namespace ucm::net
