// UCM's engine and a Linux peer, in both roles and with both ages of Linux, over networks good and bad.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>

#include "sim/application.h"
#include "sim/wrapped.h"

namespace ucm::sim {
namespace {

using wire::Attribute;

constexpr TimeNs kMicrosecond = kNanosecondsPerMicrosecond;
constexpr TimeNs kMillisecond = kNanosecondsPerMillisecond;
constexpr TimeNs kSecond = kNanosecondsPerSecond;
constexpr TimeNs kTrip = 50 * kMicrosecond;
constexpr std::uint16_t kPort = 7174;
constexpr TimeNs kLinuxRepInterval = 4352 * kMillisecond;  // with the timer wheel

struct Roles {
  bool linux_is_server;
  std::uint8_t packet_lifetime;
};

std::ostream& operator<<(std::ostream& out, const Roles& roles) {
  return out << (roles.linux_is_server ? "UcmTo" : "From") << (roles.packet_lifetime == 18 ? "Older" : "Newer")
             << "Linux" << (roles.linux_is_server ? "" : "ToUcm");
}

struct Mixed {
  Mixed(const Roles& roles, const LinkOptions& link, std::uint64_t seed = 1)
      : simulator(seed, link), programs(simulator) {
    const auto client_address = wire::IpAddress::ipv4(0x0a4d0002), server_address = wire::IpAddress::ipv4(0x0a4d0001);
    const LinuxConfig config{.packet_lifetime = roles.packet_lifetime};
    client = roles.linux_is_server ? simulator.add_ucm(client_address) : simulator.add_linux(client_address, config);
    server = roles.linux_is_server ? simulator.add_linux(server_address, config) : simulator.add_ucm(server_address);
    programs.listen(server, kPort);
  }
  // Everything to its end; both sides agree and nothing is left.
  void run() {
    EXPECT_TRUE(simulator.run(10'000 * kSecond));
    programs.finish();
    EXPECT_EQ(programs.violation(), "");
  }
  // Of the active end.
  TimeNs setup() const { return *programs.ends()[0].established - programs.ends()[0].started; }

  Simulator simulator;
  Applications programs;
  NodeIndex client = 0;
  NodeIndex server = 0;
};

class Interop : public testing::TestWithParam<Roles> {};

std::vector<Attribute> messages(const Simulator& simulator) {
  std::vector<Attribute> list;
  for (const SentPacket& packet : simulator.sent()) list.push_back(packet.attribute);
  return list;
}

TEST_P(Interop, FiveMessagesAreAConnectionAndWhatUcmHearsNoAnswerToComesTwice) {
  Mixed mixed(GetParam(), {.delay = kTrip});
  mixed.programs.set_behaviour(mixed.client, {.disconnect_delay = kSecond});
  mixed.programs.connect(mixed.client, mixed.server, kPort);
  mixed.run();
  std::vector expected{Attribute::kReq, Attribute::kRep, Attribute::kRtu, Attribute::kDreq, Attribute::kDrep};
  const bool ucm_is_client = GetParam().linux_is_server;
  expected.insert(ucm_is_client ? expected.begin() + 2 : expected.end(),
                  ucm_is_client ? Attribute::kRtu : Attribute::kDrep);
  EXPECT_EQ(messages(mixed.simulator), expected);
  EXPECT_EQ(mixed.setup(), 2 * kTrip);
  for (const End& end : mixed.programs.ends()) {
    EXPECT_EQ(end.events.back(), EventType::kTimewaitExit);
  }
}

TEST_P(Interop, ServerDisconnectsFirst) {
  Mixed mixed(GetParam(), {.delay = kTrip});
  mixed.programs.set_behaviour(mixed.server, {.disconnect_delay = kSecond});
  mixed.programs.connect(mixed.client, mixed.server, kPort);
  mixed.run();
  for (const End& end : mixed.programs.ends()) EXPECT_EQ(end.events.back(), EventType::kTimewaitExit);
}

TEST_P(Interop, BothDisconnectAtOnce) {
  Mixed mixed(GetParam(), {.delay = kTrip});
  mixed.programs.set_behaviour(mixed.client, {.disconnect_delay = kSecond});
  mixed.programs.set_behaviour(mixed.server, {.disconnect_delay = kSecond});
  mixed.programs.connect(mixed.client, mixed.server, kPort);
  mixed.run();
  for (const End& end : mixed.programs.ends()) {
    EXPECT_EQ(end.events.back(), EventType::kTimewaitExit);
    EXPECT_LE(*end.disconnected, kSecond + 6 * kTrip);
  }
}

TEST_P(Interop, RejectionAndNoListenerAreReported) {
  Mixed mixed(GetParam(), {.delay = kTrip});
  mixed.programs.set_behaviour(mixed.client, {.destroys_when_over = false});
  mixed.programs.set_behaviour(mixed.server, {.rejects = true});
  const std::size_t rejected = mixed.programs.connect(mixed.client, mixed.server, kPort);
  const std::size_t refused = mixed.programs.connect(mixed.client, mixed.server, kPort + 1);
  EXPECT_TRUE(mixed.simulator.run());
  EXPECT_EQ(mixed.programs.ends()[rejected].status, 28);
  EXPECT_EQ(mixed.programs.ends()[refused].status, 8);
  mixed.run();
}

TEST_P(Interop, EitherSideMayDestroyAtAnyMoment) {
  for (const std::size_t victim : {0u, 1u}) {
    for (int moment = 0; moment < 24; ++moment) {
      SCOPED_TRACE("end " + std::to_string(victim) + ", moment " + std::to_string(moment));
      Mixed mixed(GetParam(), {.delay = kTrip});
      mixed.programs.set_behaviour(mixed.server, {.accept_delay = 100 * kMicrosecond});
      mixed.programs.set_behaviour(mixed.client,
                                   {.establish_delay = 100 * kMicrosecond, .disconnect_delay = 200 * kMicrosecond});
      mixed.programs.connect(mixed.client, mixed.server, kPort);
      mixed.simulator.after(moment * kTrip + 1, [&] {
        if (victim < mixed.programs.ends().size()) mixed.programs.destroy(victim);
      });
      mixed.run();
    }
  }
}

// ---- Loss.

void lose_and_expect_connection(const Roles& roles, std::uint64_t mask, TimeNs accept_delay, TimeNs establish_delay) {
  Mixed mixed(roles, {.delay = kTrip, .loss_mask = mask});
  mixed.programs.set_behaviour(mixed.server, {.accept_delay = accept_delay});
  // Longer than the two intervals of 66 s that MRA asks of Linux.
  mixed.programs.set_behaviour(mixed.client, {.establish_delay = establish_delay, .disconnect_delay = 300 * kSecond});
  mixed.programs.connect(mixed.client, mixed.server, kPort);
  mixed.run();
  ASSERT_EQ(mixed.programs.ends().size(), 2u);
  for (const End& end : mixed.programs.ends()) {
    EXPECT_TRUE(end.established && end.disconnected);
    EXPECT_FALSE(end.failed);
  }
}

TEST_P(Interop, EveryLostPacketIsRepaired) {
  for (unsigned lost = 0; lost < 8; ++lost) {
    SCOPED_TRACE("lost " + std::to_string(lost));
    lose_and_expect_connection(GetParam(), std::uint64_t{1} << lost, 0, 0);
  }
}

TEST_P(Interop, EveryPairOfLostPacketsIsRepaired) {
  for (unsigned first = 0; first < 12; ++first) {
    for (unsigned second = first + 1; second < 13; ++second) {
      SCOPED_TRACE("lost " + std::to_string(first) + " and " + std::to_string(second));
      lose_and_expect_connection(GetParam(), std::uint64_t{1} << first | std::uint64_t{1} << second, 0, 0);
    }
  }
}

TEST_P(Interop, EveryPairOfLostPacketsIsRepairedWithSlowPrograms) {
  for (unsigned first = 0; first < 12; ++first) {
    for (unsigned second = first + 1; second < 13; ++second) {
      SCOPED_TRACE("lost " + std::to_string(first) + " and " + std::to_string(second));
      lose_and_expect_connection(GetParam(), std::uint64_t{1} << first | std::uint64_t{1} << second, 9 * kSecond, 0);
      lose_and_expect_connection(GetParam(), std::uint64_t{1} << first | std::uint64_t{1} << second, 0, 9 * kSecond);
    }
  }
}

TEST_P(Interop, ABadNetworkConnectsAllAndReportsEveryEnd) {
  for (const std::uint32_t loss : {10u, 100u}) {
    SCOPED_TRACE("loss per mille: " + std::to_string(loss));
    Mixed mixed(GetParam(), {.delay = kTrip, .jitter = 10 * kTrip, .loss_per_mille = loss, .duplicate_per_mille = 50},
                loss);
    mixed.programs.set_behaviour(mixed.client, {.disconnect_delay = 100 * kSecond});
    for (int i = 0; i < 300; ++i) {
      mixed.simulator.after(i * kMillisecond, [&] { mixed.programs.connect(mixed.client, mixed.server, kPort); });
    }
    mixed.run();
    std::size_t established = 0;
    for (const End& end : mixed.programs.ends()) established += end.active && end.established;
    EXPECT_EQ(established, 300u);
  }
}

TEST_P(Interop, DuplicatesMakeNoDifferenceToThePrograms) {
  for (unsigned mask = 1; mask < 128; ++mask) {
    SCOPED_TRACE("twice: " + std::to_string(mask));
    Mixed mixed(GetParam(), {.delay = kTrip, .duplicate_mask = mask});
    mixed.programs.set_behaviour(mixed.client, {.disconnect_delay = kSecond});
    mixed.programs.connect(mixed.client, mixed.server, kPort);
    mixed.run();
    ASSERT_EQ(mixed.programs.ends().size(), 2u);
    for (const End& end : mixed.programs.ends()) EXPECT_EQ(end.events.back(), EventType::kTimewaitExit);
  }
}

TEST_P(Interop, SlowProgramsAreWaitedFor) {
  Mixed mixed(GetParam(), {.delay = kTrip});
  mixed.programs.set_behaviour(mixed.server, {.accept_delay = 70 * kSecond});
  mixed.programs.set_behaviour(mixed.client, {.establish_delay = 70 * kSecond, .disconnect_delay = kSecond});
  mixed.programs.connect(mixed.client, mixed.server, kPort);
  mixed.run();
  EXPECT_EQ(mixed.setup(), 140 * kSecond + 2 * kTrip);
  EXPECT_GE(mixed.simulator.sent(Attribute::kMra), 2u);
}

TEST_P(Interop, RestartedClientThatReusesItsQpIsToldAndTheOldConnectionEnds) {
  Mixed mixed(GetParam(), {.delay = kTrip});
  mixed.programs.connect(mixed.client, mixed.server, kPort);
  EXPECT_TRUE(mixed.simulator.run());
  mixed.programs.crash(mixed.client);
  mixed.programs.restart(mixed.client);
  const std::size_t second = mixed.programs.connect(mixed.client, mixed.server, kPort);
  EXPECT_TRUE(mixed.simulator.run());
  EXPECT_EQ(mixed.programs.ends()[second].status, 10);
  EXPECT_TRUE(mixed.programs.ends()[1].disconnected);
  mixed.run();
}

TEST_P(Interop, DeadPeerIsReportedWhenItsOwnBudgetEnds) {
  Mixed mixed(GetParam(), {.loss_per_mille = 1000});
  mixed.programs.connect(mixed.client, mixed.server, kPort);
  EXPECT_TRUE(mixed.simulator.run());
  const TimeNs interval = !GetParam().linux_is_server ? (GetParam().packet_lifetime == 18 ? 6400 : 4864) : 4608;
  EXPECT_GE(*mixed.programs.ends()[0].failed, 15 * interval * kMillisecond);
  EXPECT_LE(*mixed.programs.ends()[0].failed, 16 * interval * kMillisecond);
  mixed.run();
}

INSTANTIATE_TEST_SUITE_P(Of, Interop,
                         testing::Values(Roles{true, kLinuxOlderLifetime}, Roles{true, kLinuxNewerLifetime},
                                         Roles{false, kLinuxOlderLifetime}, Roles{false, kLinuxNewerLifetime}),
                         testing::PrintToStringParamName());

// ---- What a lost message costs. UCM repairs its own; what Linux sends comes at Linux' pace.

struct Lost {
  const char* name;
  Roles roles;
  unsigned number;  // of the packet; 3 is the second RTU or the DREQ
  TimeNs at_most;   // until both sides know that they are connected, and from disconnect() to its end
};

std::ostream& operator<<(std::ostream& out, const Lost& lost) { return out << lost.name; }

class OneLostWithLinux : public testing::TestWithParam<Lost> {};

TEST_P(OneLostWithLinux, IsRepairedInTime) {
  const Lost& lost = GetParam();
  Mixed mixed(lost.roles, {.delay = kTrip, .loss_mask = std::uint64_t{1} << lost.number});
  mixed.programs.set_behaviour(mixed.client, {.disconnect_delay = 20 * kSecond});
  mixed.programs.connect(mixed.client, mixed.server, kPort);
  mixed.run();
  ASSERT_EQ(mixed.programs.ends().size(), 2u);
  const End& active = mixed.programs.ends()[0];
  const End& passive = mixed.programs.ends()[1];
  EXPECT_LE(std::max(*active.established, *passive.established), lost.number < 3 ? lost.at_most : 3 * kTrip);
  EXPECT_LE(*active.disconnected - *active.disconnecting, lost.number < 3 ? 2 * kTrip : lost.at_most);
}

constexpr Roles kToLinux{true, kLinuxNewerLifetime};
constexpr Roles kFromLinux{false, kLinuxNewerLifetime};

INSTANTIATE_TEST_SUITE_P(Of, OneLostWithLinux,
                         testing::Values(Lost{"ReqToLinux", kToLinux, 0, 50 * kMillisecond},
                                         Lost{"RepOfLinux", kToLinux, 1, kLinuxRepInterval + 10 * kTrip},
                                         Lost{"RtuToLinux", kToLinux, 2, 50 * kMillisecond},
                                         Lost{"DreqToLinux", kToLinux, 4, 50 * kMillisecond},
                                         Lost{"DrepOfLinux", kToLinux, 5, 50 * kMillisecond},
                                         Lost{"ReqOfLinux", kFromLinux, 0, 4864 * kMillisecond + 10 * kTrip},
                                         Lost{"RepToLinux", kFromLinux, 1, 50 * kMillisecond},
                                         Lost{"RtuOfLinux", kFromLinux, 2, 50 * kMillisecond},
                                         Lost{"DreqOfLinux", kFromLinux, 3, 4864 * kMillisecond + 10 * kTrip},
                                         Lost{"DrepToLinux", kFromLinux, 4, 50 * kMillisecond}),
                         testing::PrintToStringParamName());

// ---- Linux works on packets on several processors at once.

// Every other packet is for a worker that comes to it so much later.
class LateWorker : public Wrapped {
 public:
  LateWorker(std::unique_ptr<Node> node, TimeNs delay) : Wrapped(std::move(node)), delay_(delay) {}
  void on_packet(TimeNs now, const wire::IpAddress& from, Bytes mad) override {
    if (packets_++ % 2 == 0) return Wrapped::on_packet(now, from, mad);
    Packet late{.from = from};
    std::copy(mad.begin(), mad.end(), late.mad.begin());
    late_.emplace_back(now + delay_, late);
  }
  void on_deadline(TimeNs now) override {
    for (; !late_.empty() && late_.front().first <= now; late_.pop_front()) {
      Wrapped::on_packet(now, late_.front().second.from, late_.front().second.mad);
    }
    Wrapped::on_deadline(now);
  }
  TimeNs next_deadline() const override {
    return std::min(Wrapped::next_deadline(), late_.empty() ? kNever : late_.front().first);
  }

 private:
  TimeNs delay_;
  std::size_t packets_ = 0;
  std::deque<std::pair<TimeNs, Packet>> late_;
};

// The REQ that UCM repeated comes to a worker when the connection is over, and is a new one for Linux, whose program
// accepts it. It hears at once that there is nobody, not after a minute.
TEST(InteropWorkers, RepeatedRequestTakenForANewOneIsRejectedWhenAnswered) {
  Simulator simulator(1, {.delay = kTrip});
  Applications programs(simulator);
  const NodeIndex client = simulator.add_ucm(wire::IpAddress::ipv4(0x0a4d0002));
  const auto address = wire::IpAddress::ipv4(0x0a4d0001);
  const NodeIndex server = simulator.add_node(address, [&](std::uint64_t seed) {
    const LinuxConfig config{.address = address, .guid = simulator.guid(1), .seed = seed};
    return std::make_unique<LateWorker>(std::make_unique<LinuxPeer>(config), kSecond);
  });
  programs.listen(server, kPort);
  programs.set_behaviour(server, {.accept_delay = 50 * kMillisecond});
  programs.set_behaviour(client, {.disconnect_delay = 100 * kMillisecond});
  programs.connect(client, server, kPort);
  EXPECT_TRUE(simulator.run());
  ASSERT_EQ(programs.ends().size(), 3u);
  const End& taken_for_new = programs.ends()[2];
  EXPECT_TRUE(programs.ends()[1].disconnected);
  ASSERT_TRUE(taken_for_new.accepted && taken_for_new.failed);
  EXPECT_EQ(taken_for_new.status, 6);
  EXPECT_LE(*taken_for_new.failed, *taken_for_new.accepted + 2 * kTrip + kSecond);  // the REJ's worker is the late one
  programs.finish();
  EXPECT_EQ(programs.violation(), "");
}

}  // namespace
}  // namespace ucm::sim
