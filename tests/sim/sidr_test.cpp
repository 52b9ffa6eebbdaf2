// Whole SIDR exchanges between simulated nodes.
#include <gtest/gtest.h>

#include <map>

#include "sim/simulator.h"

namespace ucm::sim {
namespace {

constexpr std::uint64_t kService = wire::ip_service_id(wire::PortSpace::kUdp, 7174);
constexpr std::uint32_t kQkey = 0x01234567;
constexpr std::uint32_t kServerQpn = 0x55;
constexpr TimeNs kInterval = 4096 * kNanosecondsPerMillisecond;
constexpr TimeNs kMillisecond = kNanosecondsPerMillisecond;
constexpr TimeNs kTrip = 50 * kNanosecondsPerMicrosecond;

using cm::SidrEventType;

// Clients ask from node 0, the server at node 1 answers after a while.
struct Services {
  explicit Services(const LinkOptions& link, std::uint64_t seed = 1) : simulator(seed, link) {
    client = simulator.add_ucm(wire::IpAddress::ipv4(0x0a4d0002));
    server = simulator.add_ucm(wire::IpAddress::ipv4(0x0a4d0001));
    listener = *simulator.engine(server).listen(
        {.service_id = kService, .address = wire::IpAddress::ipv4_any(), .transport = std::nullopt});
    simulator.on_rest = [this](NodeIndex node) {
      while (const auto event = simulator.engine(node).poll_sidr_event()) {
        node == server ? on_request(*event) : on_answer(*event);
      }
    };
  }
  void ask(std::uint64_t user) {
    const auto made = simulator.engine(client).sidr_connect(
        simulator.now(), {.path = {.local = simulator.address(client), .remote = simulator.address(server)},
                          .service_id = kService,
                          .qkey = kQkey,
                          .user = user});
    ASSERT_TRUE(made);
    asked[user] = *made;
    simulator.settle(client);
  }
  void on_request(const cm::SidrEvent& event) {
    ASSERT_EQ(event.type, SidrEventType::kRequest);
    ++requests;
    const cm::SidrId exchange = event.exchange;
    served.push_back(exchange);
    simulator.engine(server).sidr_request_taken(exchange);
    simulator.after(answer_delay, [this, exchange] {
      EXPECT_TRUE(simulator.engine(server).sidr_accept(simulator.now(), exchange, {.qpn = kServerQpn, .qkey = kQkey}));
      simulator.settle(server);
    });
  }
  void on_answer(const cm::SidrEvent& event) {
    EXPECT_FALSE(answers.contains(event.user)) << "two events for one request";
    answers[event.user] = event;
    answered_at[event.user] = simulator.now();
  }
  void expect_nothing_left() {
    for (const auto& [user, id] : asked) simulator.engine(client).sidr_destroy(simulator.now(), id);
    for (const cm::SidrId id : served) simulator.engine(server).sidr_destroy(simulator.now(), id);
    simulator.engine(server).close_listener(simulator.now(), listener);
    for (const NodeIndex node : {client, server}) {
      EXPECT_EQ(simulator.engine(node).usage(), cm::Engine::Usage{});
    }
  }

  Simulator simulator;
  NodeIndex client = 0;
  NodeIndex server = 0;
  cm::ListenerId listener{};
  TimeNs answer_delay = 0;
  int requests = 0;
  std::map<std::uint64_t, cm::SidrId> asked;
  std::vector<cm::SidrId> served;
  std::map<std::uint64_t, cm::SidrEvent> answers;
  std::map<std::uint64_t, TimeNs> answered_at;
};

TEST(Sidr, TakesOneRoundTrip) {
  Services services({.delay = kTrip});
  services.ask(1);
  EXPECT_TRUE(services.simulator.run());
  EXPECT_EQ(services.answered_at[1], 2 * kTrip);
  EXPECT_EQ(services.answers[1].qpn, kServerQpn);
  EXPECT_EQ(services.simulator.sent().size(), 2u);
  services.expect_nothing_left();
}

TEST(Sidr, OneLostMessageIsRepairedWithinMillisecondsAndOneRequestIsSeen) {
  for (const std::uint64_t lost : {0b0100, 0b1000}) {
    Services services({.delay = kTrip, .loss_mask = lost});
    services.ask(0);
    EXPECT_TRUE(services.simulator.run());
    const TimeNs start = services.simulator.now();
    services.ask(1);
    EXPECT_TRUE(services.simulator.run());
    EXPECT_LE(services.answered_at[1], start + 6 * kMillisecond);
    EXPECT_EQ(services.answers[1].type, SidrEventType::kReply);
    EXPECT_EQ(services.requests, 2);
    services.expect_nothing_left();
  }
}

TEST(Sidr, OneLostMessageOfTheFirstContactIsRepairedWithinAThirdOfASecond) {
  for (const std::uint64_t lost : {0b01, 0b10}) {
    Services services({.delay = kTrip, .loss_mask = lost});
    services.ask(1);
    EXPECT_TRUE(services.simulator.run());
    EXPECT_LE(services.answered_at[1], 321 * kMillisecond);
    EXPECT_EQ(services.answers[1].type, SidrEventType::kReply);
    EXPECT_EQ(services.requests, 1);
    services.expect_nothing_left();
  }
}

TEST(Sidr, ASlowServerIsWaitedForAndAskedOnce) {
  Services services({.delay = kTrip});
  services.answer_delay = 15 * kInterval;
  services.ask(1);
  EXPECT_TRUE(services.simulator.run());
  EXPECT_EQ(services.answers[1].type, SidrEventType::kReply);
  EXPECT_EQ(services.requests, 1);
  services.expect_nothing_left();
}

TEST(Sidr, ADeadNetworkIsUnreachableAfterSixteenIntervals) {
  Services services({.loss_per_mille = 1000});
  services.ask(1);
  EXPECT_TRUE(services.simulator.run());
  EXPECT_EQ(services.answered_at[1], 16 * kInterval);
  EXPECT_EQ(services.answers[1].type, SidrEventType::kUnreachable);
  EXPECT_LE(services.simulator.sent().size(), 24u);
  services.expect_nothing_left();
}

TEST(Sidr, ABadNetworkBringsEveryAnswerOnce) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Services services({.delay = kTrip, .jitter = 10 * kTrip, .loss_per_mille = 200, .duplicate_per_mille = 200}, seed);
    for (std::uint64_t user = 0; user < 40; ++user) services.ask(user);
    EXPECT_TRUE(services.simulator.run());
    EXPECT_EQ(services.answers.size(), 40u);
    for (const auto& [user, event] : services.answers) EXPECT_EQ(event.type, SidrEventType::kReply) << user;
    EXPECT_EQ(services.requests, 40);
    services.expect_nothing_left();
  }
}

}  // namespace
}  // namespace ucm::sim
