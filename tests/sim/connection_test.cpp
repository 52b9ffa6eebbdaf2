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
    client = simulator.add_ucm(wire::IpAddress::ipv4(0x0a4d0002));
    server = simulator.add_ucm(wire::IpAddress::ipv4(0x0a4d0001));
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
    EXPECT_EQ(simulator.node(client).usage(), Usage{});
    simulator.node(server).close_listener(simulator.now(), listener);
    EXPECT_EQ(simulator.node(server).usage(), Usage{});
    EXPECT_EQ(applications.violation(), "");
  }

  Simulator simulator;
  Applications applications;
  NodeIndex client = 0;
  NodeIndex server = 0;
  Handle listener = 0;
};

TEST(Connection, TakesOneRoundTripActiveAndOneAndAHalfPassive) {  // Field case 2.25
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

// ---- One message lost. The side that waits for an answer repeats it after a few milliseconds.

struct LostMessage {
  const char* name;
  std::size_t number;  // of the packet, among those of the connection
};

const LostMessage kLostMessages[] = {{"Req", 0}, {"Rep", 1}, {"Rtu", 2}, {"Dreq", 3}, {"Drep", 4}};

constexpr TimeNs kTrip = 50 * kMicrosecond;

class OneLost : public testing::TestWithParam<LostMessage> {
 protected:
  // Connects, holds the connection for a second and disconnects; returns the longer of setting up and taking down, each
  // until both sides know.
  TimeNs time_of(Pair& pair, std::size_t lost) {
    const TimeNs start = pair.simulator.now();
    const std::size_t active = pair.applications.connect(pair.client, pair.server, kPort);
    pair.simulator.link().loss_mask = std::uint64_t{1} << (pair.simulator.sent().size() - 1 + lost);
    EXPECT_TRUE(pair.simulator.run());
    const End& end = pair.applications.ends()[active];
    const End* const peer = pair.applications.peer_of(end);
    EXPECT_TRUE(peer != nullptr && end.established && peer->established && end.disconnected && peer->disconnected);
    if (peer == nullptr || !end.established || !end.disconnected) return kNever;
    EXPECT_EQ(end.status, 0);
    return std::max(std::max(*end.established, *peer->established) - start,
                    *end.disconnected - *end.established - kHeld);
  }
  static constexpr TimeNs kHeld = kSecond;
};

TEST_P(OneLost, IsRepairedWithin20MillisecondsBetweenPeersThatKnowEachOther) {
  Pair pair({.delay = kTrip});
  pair.applications.set_behaviour(pair.client, {.disconnect_delay = kHeld});
  pair.applications.set_behaviour(pair.server, {.disconnect_delay = 10 * kSecond});
  EXPECT_LE(time_of(pair, 64 - 1), 3 * kTrip);  // nothing lost
  EXPECT_LE(time_of(pair, GetParam().number), 6 * kMillisecond);
  pair.expect_nothing_left();
}

TEST_P(OneLost, IsRepairedWithin50MillisecondsOnFirstContact) {  // Field case 2.16
  Pair pair({.delay = kTrip});
  pair.applications.set_behaviour(pair.client, {.disconnect_delay = kHeld});
  EXPECT_LE(time_of(pair, GetParam().number), 50 * kMillisecond);
  pair.expect_nothing_left();
}

INSTANTIATE_TEST_SUITE_P(Each, OneLost, testing::ValuesIn(kLostMessages),
                         [](const auto& lost) { return std::string(lost.param.name); });

TEST(Connection, EveryPairOfLostMessagesIsRepaired) {
  for (unsigned first = 0; first < 10; ++first) {
    for (unsigned second = first + 1; second < 11; ++second) {
      SCOPED_TRACE("lost " + std::to_string(first) + " and " + std::to_string(second));
      Pair pair({.loss_mask = std::uint64_t{1} << first | std::uint64_t{1} << second});
      pair.applications.set_behaviour(pair.client, {.disconnect_delay = 30 * kSecond});
      pair.applications.connect(pair.client, pair.server, kPort);
      EXPECT_TRUE(pair.simulator.run());
      for (const End& end : pair.applications.ends()) {
        EXPECT_TRUE(end.established && end.disconnected);
        EXPECT_FALSE(end.failed);
      }
      pair.expect_nothing_left();
    }
  }
}

TEST(Connection, EveryMessageTwiceMakesNoDifferenceToTheApplications) {
  for (unsigned mask = 1; mask < 64; ++mask) {
    SCOPED_TRACE("twice: " + std::to_string(mask));
    Pair pair({.duplicate_mask = mask});
    pair.applications.set_behaviour(pair.client, {.disconnect_delay = kSecond});
    pair.applications.connect(pair.client, pair.server, kPort);
    EXPECT_TRUE(pair.simulator.run());
    ASSERT_EQ(pair.applications.ends().size(), 2u);
    EXPECT_EQ(pair.applications.ends()[0].events,
              (std::vector{EventType::kConnectResponse, EventType::kDisconnected, EventType::kTimewaitExit}));
    EXPECT_EQ(pair.applications.ends()[1].events, (std::vector{EventType::kConnectRequest, EventType::kEstablished,
                                                               EventType::kDisconnected, EventType::kTimewaitExit}));
    pair.expect_nothing_left();
  }
}

// ---- Slow, unwilling and absent peers. An answer is waited for as long as Linux does (cm-protocol F.3).

constexpr TimeNs kReqInterval = 4608 * kMillisecond;
constexpr TimeNs kRepInterval = 4096 * kMillisecond;

TEST(Connection, ServerThatAcceptsAfterTwentySecondsIsWaitedForWithMra) {  // Field case 1.02
  Pair pair({.delay = kTrip});
  pair.applications.set_behaviour(pair.server, {.accept_delay = 20 * kSecond});
  pair.applications.set_behaviour(pair.client, {.disconnect_delay = kSecond});
  pair.applications.connect(pair.client, pair.server, kPort);
  EXPECT_TRUE(pair.simulator.run());
  ASSERT_EQ(pair.applications.ends().size(), 2u);
  EXPECT_EQ(pair.applications.ends()[0].established, 20 * kSecond + 2 * kTrip);
  EXPECT_EQ(pair.count(Attribute::kReq), 3u);  // the answer to the second one asks for 65 s
  EXPECT_EQ(pair.count(Attribute::kMra), 2u);
  EXPECT_EQ(pair.count(Attribute::kRej), 0u);
  pair.expect_nothing_left();
}

TEST(Connection, ClientThatIsSlowToEstablishGetsFewRepetitionsAndAsksForPatience) {
  Pair pair({.delay = kTrip});
  pair.applications.set_behaviour(pair.client, {.establish_delay = 20 * kSecond, .disconnect_delay = kSecond});
  pair.applications.connect(pair.client, pair.server, kPort);
  EXPECT_TRUE(pair.simulator.run());
  EXPECT_LE(pair.count(Attribute::kRep), 11u);
  EXPECT_EQ(pair.count(Attribute::kMra), pair.count(Attribute::kRep) - 1);
  EXPECT_EQ(pair.applications.ends()[1].established, 20 * kSecond + 3 * kTrip);
  pair.expect_nothing_left();
}

TEST(Connection, NobodyListeningIsReportedAfterOneRoundTrip) {  // Field case 1.23
  Pair pair({.delay = kTrip});
  pair.applications.connect(pair.client, pair.server, kPort + 1);
  EXPECT_TRUE(pair.simulator.run());
  const End& end = pair.applications.ends()[0];
  EXPECT_EQ(end.events, std::vector{EventType::kRejected});
  EXPECT_EQ(end.status, 8);
  EXPECT_EQ(end.failed, 2 * kTrip);
  // Nothing of the refusal is left in the way of the next attempt.
  const TimeNs start = pair.simulator.now();
  const Handle late = pair.applications.listen(pair.server, kPort + 1);
  pair.applications.set_behaviour(pair.client, {.disconnect_delay = kSecond});
  const std::size_t second = pair.applications.connect(pair.client, pair.server, kPort + 1);
  EXPECT_TRUE(pair.simulator.run());
  EXPECT_EQ(pair.applications.ends()[second].established, start + 2 * kTrip);
  pair.simulator.node(pair.server).close_listener(pair.simulator.now(), late);
  pair.expect_nothing_left();
}

TEST(Connection, RejectingServerIsReported) {
  Pair pair({.delay = kTrip});
  pair.applications.set_behaviour(pair.server, {.rejects = true});
  pair.applications.connect(pair.client, pair.server, kPort);
  EXPECT_TRUE(pair.simulator.run());
  EXPECT_EQ(pair.applications.ends()[0].status, 28);
  pair.expect_nothing_left();
}

TEST(Connection, UnreachablePeerIsReportedAfterThe73SecondsOfLinux) {
  Pair pair({.loss_per_mille = 1000});
  pair.applications.connect(pair.client, pair.server, kPort);
  EXPECT_TRUE(pair.simulator.run());
  const End& end = pair.applications.ends()[0];
  EXPECT_EQ(end.events, std::vector{EventType::kUnreachable});
  EXPECT_EQ(end.status, -110);
  EXPECT_EQ(end.failed, 16 * kReqInterval);
  EXPECT_LE(pair.count(Attribute::kReq), 15u);
  pair.expect_nothing_left();
}

TEST(Connection, ClientThatVanishesAfterTheReplyIsReportedToTheServer) {
  Pair pair({.delay = kTrip, .loss_mask = ~std::uint64_t{0b11}});  // REQ and REP arrive, nothing else ever
  pair.applications.connect(pair.client, pair.server, kPort);
  EXPECT_TRUE(pair.simulator.run());
  ASSERT_EQ(pair.applications.ends().size(), 2u);
  EXPECT_EQ(pair.applications.ends()[1].events, (std::vector{EventType::kConnectRequest, EventType::kUnreachable}));
  EXPECT_EQ(pair.applications.ends()[1].failed, kTrip + 16 * kRepInterval);
}

TEST(Connection, ApplicationThatNeverAnswersTheRequestHoldsItUntilTheClientGivesUp) {
  Pair pair({.delay = kTrip});
  pair.applications.set_behaviour(pair.server, {.accept_delay = kNever});
  const std::size_t client = pair.applications.connect(pair.client, pair.server, kPort);
  pair.simulator.after(3 * kSecond, [&] { pair.applications.destroy(client); });
  EXPECT_TRUE(pair.simulator.run());
  EXPECT_EQ(pair.simulator.engine(pair.server).counters().withdrawn, 1u);
  pair.applications.destroy(1);
  pair.expect_nothing_left();
}

TEST(Connection, BacklogOverflowIsRepairedByRepetitionWithoutAnyRejection) {  // Field case 2.13
  Simulator simulator(1, {.delay = kTrip});
  Applications applications(simulator);
  const NodeIndex client = simulator.add_ucm(wire::IpAddress::ipv4(0x0a4d0002));
  const NodeIndex server = simulator.add_ucm(wire::IpAddress::ipv4(0x0a4d0001));
  // Nothing is taken at first: the application sleeps.
  const auto deliver = simulator.on_event;
  std::vector<Event> asleep;
  simulator.on_event = [&](NodeIndex node, const Event& event) {
    if (node == server && simulator.now() < kSecond) return asleep.push_back(event);
    deliver(node, event);
  };
  applications.listen(server, kPort, 4);
  for (int i = 0; i < 12; ++i) applications.connect(client, server, kPort);
  simulator.after(kSecond, [&] {
    for (const auto& event : asleep) deliver(server, event);
  });
  EXPECT_TRUE(simulator.run());
  EXPECT_EQ(asleep.size(), 4u);
  EXPECT_GE(simulator.engine(server).counters().backlog_full, 8u);
  EXPECT_EQ(simulator.engine(client).counters().rejected, 0u);
  EXPECT_EQ(simulator.engine(client).counters().established, 12u);
}

TEST(Connection, AThousandOneAfterTheOtherAndAThousandAtOnceMeetNoRejection) {  // Field case 1.22
  Pair pair({.delay = kTrip});
  pair.simulator.record = false;
  pair.applications.listen(pair.server, kPort + 1, 128);
  pair.applications.set_behaviour(pair.client, {.disconnect_delay = kMillisecond});
  for (int i = 0; i < 1000; ++i) {
    pair.applications.connect(pair.client, pair.server, kPort + 1);
    EXPECT_TRUE(pair.simulator.run());
  }
  for (int i = 0; i < 1000; ++i) pair.applications.connect(pair.client, pair.server, kPort + 1);
  EXPECT_TRUE(pair.simulator.run());
  EXPECT_EQ(pair.simulator.engine(pair.server).counters().established, 2000u);
  EXPECT_EQ(pair.simulator.sent(Attribute::kRej), 0u);
}

// ---- The end.

TEST(Connection, CrossingDisconnectsEndBothSidesOnceAndAtOnce) {
  Pair pair({.delay = kTrip});
  pair.applications.connect(pair.client, pair.server, kPort);
  pair.simulator.after(kSecond, [&] {
    pair.applications.disconnect(0);
    pair.applications.disconnect(1);
  });
  EXPECT_TRUE(pair.simulator.run());
  for (const End& end : pair.applications.ends()) {
    EXPECT_EQ(end.disconnected, kSecond + kTrip);
    EXPECT_EQ(end.status, 0);
  }
  pair.expect_nothing_left();
}

TEST(Connection, QueuesClosedTogetherAreGoneTogether) {  // Field case 3.10
  Pair pair({.delay = kTrip});
  for (int i = 0; i < 128; ++i) pair.applications.connect(pair.client, pair.server, kPort);
  EXPECT_TRUE(pair.simulator.run());
  const TimeNs start = pair.simulator.now();
  for (std::size_t i = 0; i < 128; ++i) pair.applications.disconnect(i);
  EXPECT_TRUE(pair.simulator.run());
  for (const End& end : pair.applications.ends()) {
    ASSERT_TRUE(end.disconnected);
    EXPECT_LE(*end.disconnected, start + 2 * kTrip);
  }
}

TEST(Connection, PeerThatIsDestroyedAnswersTheDisconnectAllTheSame) {  // Field case 3.02
  Pair pair({.delay = kTrip});
  pair.applications.connect(pair.client, pair.server, kPort);
  pair.simulator.after(kSecond, [&] {
    pair.simulator.link(pair.server, pair.client).loss_per_mille = 1000;  // no DREQ ever arrives
    pair.applications.destroy(1);
  });
  pair.simulator.after(200 * kSecond, [&] {
    pair.simulator.heal();
    pair.applications.disconnect(0);
  });
  EXPECT_TRUE(pair.simulator.run());
  EXPECT_EQ(pair.applications.ends()[0].disconnected, 200 * kSecond + 2 * kTrip);
  EXPECT_EQ(pair.applications.ends()[0].status, 0);
  EXPECT_EQ(pair.simulator.engine(pair.server).counters().orphans_given_up, 1u);
  pair.expect_nothing_left();
}

// As rping's client closes: it does not wait for DISCONNECTED, and nothing tells it of the loss.
TEST(Connection, PeerOfWhatIsDestroyedHearsOfItWithinMillisecondsThoughTheDreqIsLost) {  // Field case 3.02
  for (const bool disconnects : {true, false}) {
    for (const std::size_t closing : {0u, 1u}) {
      Pair pair({.delay = kTrip, .loss_mask = 0b1000});
      pair.applications.connect(pair.client, pair.server, kPort);
      pair.simulator.after(kSecond, [&] {
        if (disconnects) pair.applications.disconnect(closing);
        pair.applications.destroy(closing);
      });
      EXPECT_TRUE(pair.simulator.run());
      const End& other = pair.applications.ends()[1 - closing];
      ASSERT_TRUE(other.disconnected);
      EXPECT_LE(*other.disconnected, kSecond + 6 * kMillisecond);
      EXPECT_EQ(other.disconnect_status, 0);
      EXPECT_EQ(pair.count(Attribute::kDreq), 2u);
      EXPECT_EQ(pair.count(Attribute::kDrep), 1u);
      pair.expect_nothing_left();
    }
  }
}

// Between REP and RTU nothing but the REJ says that the server is gone, and nobody answers a REJ.
TEST(Connection, ServerThatIsGoneBeforeRtuIsHeardOfThoughItsRejectionIsLost) {
  Pair pair({.delay = kTrip, .loss_mask = 0b100});
  pair.applications.connect(pair.client, pair.server, kPort);
  pair.simulator.after(kTrip + 1, [&] { pair.applications.destroy(1); });
  EXPECT_TRUE(pair.simulator.run());
  const End& client = pair.applications.ends()[0];
  EXPECT_TRUE(client.established);
  EXPECT_EQ(client.events, (std::vector{EventType::kConnectResponse, EventType::kRejected}));
  ASSERT_TRUE(client.failed);
  EXPECT_LE(*client.failed, 50 * kMillisecond);  // first contact
  pair.expect_nothing_left();
}

TEST(Connection, QuickCloseOfBothEndsTakesNoMorePacketsThanItNeeds) {
  for (const bool at_once : {true, false}) {
    Pair pair({.delay = kTrip});
    pair.applications.connect(pair.client, pair.server, kPort);
    pair.simulator.after(kSecond, [&] {
      pair.applications.disconnect(0);
      pair.applications.destroy(0);
      if (at_once) pair.applications.destroy(1);
    });
    EXPECT_TRUE(pair.simulator.run());
    EXPECT_EQ(pair.count(Attribute::kDreq), at_once ? 2u : 1u);
    EXPECT_EQ(pair.count(Attribute::kDrep), at_once ? 2u : 1u);
    pair.expect_nothing_left();
  }
}

TEST(Connection, DisconnectFromAVanishedPeerIsReportedWhenTheBudgetEnds) {  // Field case 3.06
  Pair pair({.delay = kTrip});
  pair.applications.connect(pair.client, pair.server, kPort);
  pair.simulator.after(kSecond, [&] {
    pair.simulator.link().loss_per_mille = 1000;
    pair.applications.disconnect(0);
  });
  EXPECT_TRUE(pair.simulator.run());
  EXPECT_EQ(pair.applications.ends()[0].disconnected, kSecond + 16 * kReqInterval);
  EXPECT_EQ(pair.applications.ends()[0].events.back(), EventType::kTimewaitExit);
}

// Whatever the moment, destroy leaves nothing behind in the end, here and there.
TEST(Connection, DestroyAtAnyMomentLeavesNothingBehind) {  // Field case 3.13
  for (const std::size_t victim : {0u, 1u}) {
    for (int moment = 0; moment < 24; ++moment) {
      SCOPED_TRACE("end " + std::to_string(victim) + ", moment " + std::to_string(moment));
      Pair pair({.delay = kTrip});
      pair.applications.set_behaviour(pair.server, {.accept_delay = 100 * kMicrosecond});
      pair.applications.set_behaviour(pair.client,
                                      {.establish_delay = 100 * kMicrosecond, .disconnect_delay = 200 * kMicrosecond});
      pair.applications.connect(pair.client, pair.server, kPort);
      pair.simulator.after(moment * 50 * kMicrosecond + 1, [&] {
        if (victim < pair.applications.ends().size()) pair.applications.destroy(victim);
      });
      EXPECT_TRUE(pair.simulator.run());
      for (std::size_t i = 0; i < pair.applications.ends().size(); ++i) pair.applications.destroy(i);
      pair.expect_nothing_left();
    }
  }
}

TEST(Connection, RestartedPeerThatReusesItsQpIsToldAndTheOldConnectionEnds) {  // Field case 1.03
  Pair pair({.delay = kTrip});
  pair.applications.connect(pair.client, pair.server, kPort);
  EXPECT_TRUE(pair.simulator.run());
  pair.applications.crash(pair.client);
  pair.applications.restart(pair.client);
  const std::size_t second = pair.applications.connect(pair.client, pair.server, kPort);
  EXPECT_TRUE(pair.simulator.run());
  EXPECT_EQ(pair.applications.ends()[second].local_qpn, pair.applications.ends()[0].local_qpn);
  EXPECT_EQ(pair.applications.ends()[second].events, std::vector{EventType::kRejected});
  EXPECT_EQ(pair.applications.ends()[second].status, 10);
  EXPECT_TRUE(pair.applications.ends()[1].disconnected);
  pair.expect_nothing_left();
}

}  // namespace
}  // namespace ucm::sim
