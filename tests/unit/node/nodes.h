// Two nodes on a network in memory and in simulated time, driven as a program drives them.
#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "net/memory_port.h"
#include "node/core.h"
#include "unit/node/fake_host.h"

namespace ucm::node {

using ipc::CmCall;
using ipc::CmEventType;
using test::FakeHost;

inline constexpr TimeNs kMs = kNanosecondsPerMillisecond;
inline constexpr std::uint16_t kPort = 7174;
inline constexpr SessionId kSession = 5;
inline constexpr LinkId kLinkId = 50;
inline const wire::IpAddress kA = wire::IpAddress::ipv4(0x0a000001);
inline const wire::IpAddress kB = wire::IpAddress::ipv4(0x0a000002);
inline const wire::IpAddress kLoopback = wire::IpAddress::ipv4(0x7f000001);

inline ipc::SocketAddress address(const wire::IpAddress& ip, std::uint16_t port = 0) {
  return {.family = static_cast<std::uint8_t>(ip.is_ipv4() ? 4 : 6), .port = port, .address = ip.bytes};
}

// One node, with everything it told its programs.
struct TestNode {
  TestNode(net::MemoryNetwork& network, const wire::IpAddress& ip, std::uint64_t seed)
      : host(ip),
        port(network.attach({ip}, static_cast<std::uint16_t>(0xC000 + seed))),
        core(*port, host,
             {.deliver_event = [this](LinkId link, const ipc::CmEvent& e) { events.emplace_back(link, e); },
              .deliver_data = [this](std::uint32_t qpn, const wire::DatagramInfo&, Bytes) { data_qpns.push_back(qpn); },
              .owns_qpn = [](SessionId session, std::uint32_t qpn) { return qpn / 100 == session; },
              .failed =
                  [this](const Failure& failure) {
                    failures.push_back(std::string(failure.what) + " " + std::to_string(failure.status) + " of " +
                                       std::to_string(failure.id) + ", " + std::string(failure.state) + ": " +
                                       std::string(failure.why));
                  }},
             RandomKey{seed, seed}) {}

  ipc::CmReply execute(TimeNs now, ipc::CmCommand command, SessionId session = kSession, LinkId link = kLinkId) {
    return core.execute(now, session, link, command);
  }

  FakeHost host;
  std::unique_ptr<net::PacketPort> port;
  std::vector<std::pair<LinkId, ipc::CmEvent>> events;
  std::vector<std::uint32_t> data_qpns;
  std::vector<std::string> failures;
  Core core;
};

class Nodes : public testing::Test {
 protected:
  // Lets both nodes do all they can without time passing.
  void settle() {
    for (int round = 0; round < 20; ++round) {
      for (TestNode* node : {first_, &b_}) {
        node->core.receive(now_);
        next_[node == &b_] = node->core.turn(now_);
      }
    }
  }
  // Time passes in the steps the nodes ask for.
  void run_until(TimeNs end) {
    settle();
    while (true) {
      const TimeNs next = std::min(next_[0], next_[1]);
      if (next > end) break;
      now_ = std::max(now_, next);
      settle();
    }
    now_ = end;
    settle();
  }

  std::uint32_t create(TestNode& node, SessionId session = kSession) {
    return node.execute(now_, {.call = CmCall::kCreateId, .qp_type = 2, .port_space = 0x0106}, session).id;
  }
  int call(TestNode& node, CmCall what, std::uint32_t id) { return node.execute(now_, {.call = what, .id = id}).error; }
  int bind(TestNode& node, std::uint32_t id, const wire::IpAddress& ip, std::uint16_t port = kPort) {
    return node.execute(now_, {.call = CmCall::kBindAddr, .id = id, .source = address(ip, port)}).error;
  }
  std::uint32_t listen(TestNode& node, const wire::IpAddress& ip) {
    const std::uint32_t id = create(node);
    EXPECT_EQ(bind(node, id, ip), 0);
    EXPECT_EQ(call(node, CmCall::kListen, id), 0);
    return id;
  }
  ipc::CmReply resolve(TestNode& node, std::uint32_t id, const wire::IpAddress& to, std::uint32_t timeout_ms = 2000) {
    return node.execute(
        now_, {.call = CmCall::kResolveAddr, .id = id, .timeout_ms = timeout_ms, .destination = address(to, kPort)});
  }
  ipc::CmConnParam conn(std::uint32_t qpn) {
    return {.qp_num = qpn, .responder_resources = 3, .initiator_depth = 4, .retry_count = 6, .rnr_retry_count = 5};
  }
  int connect(TestNode& node, std::uint32_t id, std::uint32_t qpn = 501) {
    return node.execute(now_, {.call = CmCall::kConnect, .id = id, .conn = conn(qpn)}).error;
  }
  std::uint32_t start_connect(TestNode& node, const wire::IpAddress& to) {
    const std::uint32_t id = create(node);
    EXPECT_EQ(resolve(node, id, to).error, 0);
    EXPECT_EQ(node.execute(now_, {.call = CmCall::kResolveRoute, .id = id, .timeout_ms = 2000}).error, 0);
    EXPECT_EQ(connect(node, id), 0);
    return id;
  }
  // Takes the oldest event; fails when it is not of this type.
  ipc::CmEvent expect_event(TestNode& node, CmEventType type) {
    settle();
    EXPECT_FALSE(node.events.empty()) << "no event, wanted " << static_cast<int>(type);
    if (node.events.empty()) return {};
    const ipc::CmEvent event = node.events.front().second;
    EXPECT_EQ(static_cast<int>(event.type), static_cast<int>(type));
    node.events.erase(node.events.begin());
    return event;
  }
  void skip_resolution_events(TestNode& node) {
    expect_event(node, CmEventType::kAddrResolved);
    expect_event(node, CmEventType::kRouteResolved);
  }
  struct Connection {
    std::uint32_t active, passive;
  };
  Connection establish() {
    listen(b_, kB);
    const std::uint32_t active = start_connect(a_, kB);
    skip_resolution_events(a_);
    const std::uint32_t passive = expect_event(b_, CmEventType::kConnectRequest).id;
    EXPECT_EQ(call(b_, CmCall::kRequestTaken, passive), 0);
    EXPECT_EQ(b_.execute(now_, {.call = CmCall::kAccept, .id = passive, .conn = conn(502)}).error, 0);
    expect_event(a_, CmEventType::kConnectResponse);
    EXPECT_EQ(call(a_, CmCall::kEstablish, active), 0);
    expect_event(b_, CmEventType::kEstablished);
    return {active, passive};
  }

  net::MemoryNetwork network_;
  TestNode a_{network_, kA, 1};
  TestNode b_{network_, kB, 2};
  TestNode* first_ = &a_;  // or who has succeeded it
  TimeNs now_ = 1'000'000;
  TimeNs next_[2] = {kNever, kNever};
};

}  // namespace ucm::node
