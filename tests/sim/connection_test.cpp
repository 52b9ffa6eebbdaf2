// Whole connections between simulated nodes.
#include <gtest/gtest.h>

#include "cm/engine.h"
#include "sim/application.h"
#include "sim/simulator.h"

namespace ucm::sim {
namespace {

constexpr TimeNs kMicrosecond = kNanosecondsPerMicrosecond;
constexpr TimeNs kMillisecond = kNanosecondsPerMillisecond;
constexpr TimeNs kSecond = kNanosecondsPerSecond;
constexpr std::uint16_t kPort = 7174;

using wire::Attribute;

// A client at node 0 and a server at node 1.
struct Pair {
  explicit Pair(const LinkOptions& link, std::uint64_t seed = 1) : simulator(seed, link), applications(simulator) {
    client = simulator.add_node(wire::IpAddress::ipv4(0x0a4d0002));
    server = simulator.add_node(wire::IpAddress::ipv4(0x0a4d0001));
    listener = applications.listen(server, kPort);
  }
  std::vector<Attribute> messages() const {
    std::vector<Attribute> list;
    for (const SentPacket& packet : simulator.sent()) list.push_back(packet.attribute);
    return list;
  }
  std::size_t count(Attribute attribute) const {
    std::size_t n = 0;
    for (const SentPacket& packet : simulator.sent()) n += packet.attribute == attribute;
    return n;
  }
  // All there was is gone, but for the listener.
  void expect_nothing_left() {
    EXPECT_EQ(simulator.engine(client).usage(), cm::Engine::Usage{});
    simulator.engine(server).close_listener(simulator.now(), listener);
    EXPECT_EQ(simulator.engine(server).usage(), cm::Engine::Usage{});
    EXPECT_EQ(applications.violation(), "");
  }

  Simulator simulator;
  Applications applications;
  NodeIndex client = 0;
  NodeIndex server = 0;
  cm::ListenerId listener{};
};

TEST(Connection, TakesOneRoundTripActiveAndOneAndAHalfPassive) {
  Pair pair({.delay = 50 * kMicrosecond});
  pair.applications.set_behaviour(pair.client, {.disconnect_delay = kSecond});
  pair.applications.connect(pair.client, pair.server, kPort);
  EXPECT_TRUE(pair.simulator.run());
  const auto& ends = pair.applications.ends();
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_EQ(ends[0].established, 100 * kMicrosecond);
  EXPECT_EQ(ends[1].established, 150 * kMicrosecond);
  EXPECT_EQ(ends[1].disconnected, kSecond + 150 * kMicrosecond);
  EXPECT_EQ(ends[0].disconnected, kSecond + 200 * kMicrosecond);
  EXPECT_EQ(pair.messages(),
            (std::vector{Attribute::kReq, Attribute::kRep, Attribute::kRtu, Attribute::kDreq, Attribute::kDrep}));
  // TIMEWAIT_EXIT after 2^(17-8) ms, the ACK timeout for packet lifetime 16 and an ACK delay of 15.
  EXPECT_EQ(pair.simulator.now(), kSecond + 200 * kMicrosecond + 512 * kMillisecond);
  pair.expect_nothing_left();
}

}  // namespace
}  // namespace ucm::sim
