// What a node does for its programs.
#include "node/core.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "ipc/limits.h"
#include "node/limits.h"
#include "unit/node/nodes.h"
#include "wire/headers.h"
#include "wire/ud_packet.h"

namespace ucm::node {
namespace {

TEST_F(Nodes, AConnectionLivesFromResolveToTimewait) {
  const std::uint32_t listening = listen(b_, kB);
  const std::uint32_t active = start_connect(a_, kB);

  const auto resolved = expect_event(a_, CmEventType::kAddrResolved);
  EXPECT_EQ(resolved.id, active);
  EXPECT_EQ(resolved.path.local.address, kA.bytes);
  EXPECT_EQ(resolved.path.ifindex, FakeHost::kLink);
  const auto route = expect_event(a_, CmEventType::kRouteResolved);
  EXPECT_EQ(route.path.mtu, 3);
  EXPECT_EQ(route.path.packet_lifetime, 16);
  EXPECT_EQ(route.path.flow_label, (route.path.local.port * 31u + kPort) & 0xFFFFF);

  const auto request = expect_event(b_, CmEventType::kConnectRequest);
  EXPECT_EQ(request.listen_id, listening);
  EXPECT_EQ(request.path.remote.address, kA.bytes);
  EXPECT_EQ(request.path.local.port, kPort);
  EXPECT_EQ(request.conn.qp_num, 501u);
  EXPECT_EQ(request.conn.responder_resources, 4);  // swapped
  EXPECT_EQ(request.conn.initiator_depth, 3);
  EXPECT_EQ(request.conn.retry_count, 6);
  EXPECT_EQ(request.conn.private_data_size, 56u);
  EXPECT_TRUE(request.qp.dest_known);
  EXPECT_EQ(request.qp.dest_qpn, 501u);

  EXPECT_EQ(b_.execute(now_, {.call = CmCall::kAccept, .id = request.id, .conn = conn(502)}).error, 0);
  const auto response = expect_event(a_, CmEventType::kConnectResponse);
  EXPECT_EQ(response.conn.qp_num, 502u);
  EXPECT_EQ(response.conn.private_data_size, 196u);
  EXPECT_EQ(response.conn.retry_count, 0);
  EXPECT_EQ(response.qp.rq_psn, request.qp.sq_psn);
  EXPECT_EQ(response.qp.sq_psn, request.qp.rq_psn);
  EXPECT_EQ(call(a_, CmCall::kEstablish, active), 0);
  EXPECT_EQ(expect_event(b_, CmEventType::kEstablished).id, request.id);
  EXPECT_EQ(a_.core.connections().at(0).state, "established");

  EXPECT_EQ(call(a_, CmCall::kDisconnect, active), 0);
  EXPECT_EQ(expect_event(b_, CmEventType::kDisconnected).status, 0);
  EXPECT_EQ(call(b_, CmCall::kDisconnect, request.id), 0);
  expect_event(a_, CmEventType::kDisconnected);
  run_until(now_ + 5000 * kMs);
  expect_event(a_, CmEventType::kTimewaitExit);
  expect_event(b_, CmEventType::kTimewaitExit);
  for (const Node::Count& counted : a_.core.counters()) {
    const bool once = counted.name == "established" || counted.name == "disconnected";
    if (once) {
      EXPECT_EQ(counted.value, 1u) << counted.name;
    }
  }
  a_.core.remove_session(now_, kSession);
  b_.core.remove_session(now_, kSession);
  for (const auto* host : {&a_, &b_}) {
    for (const Node::Count& held : host->core.held()) EXPECT_EQ(held.value, 0u) << held.name;
  }
}

TEST_F(Nodes, ANeighbourThatIsNotThereGivesAddrErrorAtTheTimeout) {
  a_.host.neighbors_default = host::NeighborState::kUnresolved;
  const TimeNs start = now_;
  const std::uint32_t id = create(a_);
  EXPECT_EQ(resolve(a_, id, kB, 2000).error, 0);
  run_until(start + 1999 * kMs);
  EXPECT_TRUE(a_.events.empty());
  EXPECT_GT(a_.host.resolutions, 10);  // asked again and again
  run_until(start + 2000 * kMs);
  EXPECT_EQ(expect_event(a_, CmEventType::kAddrError).status, -ETIMEDOUT);
  // Bound as before: it can try again.
  a_.host.neighbors_default = host::NeighborState::kUsable;
  EXPECT_EQ(resolve(a_, id, kB).error, 0);
  expect_event(a_, CmEventType::kAddrResolved);
}

TEST_F(Nodes, ANeighbourThatAnswersLateResolvesAtOnceWhenTheKernelTells) {
  a_.host.set_neighbor(kB, host::NeighborState::kPending);
  const std::uint32_t first = create(a_), second = create(a_);
  EXPECT_EQ(resolve(a_, first, kB).error, 0);
  EXPECT_EQ(resolve(a_, second, kB).error, 0);
  run_until(now_ + 50 * kMs);
  EXPECT_TRUE(a_.events.empty());
  a_.host.set_neighbor(kB, host::NeighborState::kUsable);
  EXPECT_EQ(expect_event(a_, CmEventType::kAddrResolved).id, first);
  EXPECT_EQ(expect_event(a_, CmEventType::kAddrResolved).id, second);
}

TEST_F(Nodes, ARouteOverAnInterfaceWithoutDeviceGivesAddrErrorNoDevice) {
  TestNode c(network_, wire::IpAddress::ipv4(0x0a000003), 3);
  c.host.route_ifindex = 77;
  c.host.remove_link();
  EXPECT_EQ(resolve(c, create(c), kB).error, 0);
  c.core.turn(now_);
  ASSERT_EQ(c.events.size(), 1u);
  EXPECT_EQ(c.events[0].second.status, -ENODEV);
}

TEST_F(Nodes, AHostThatNeverAnswersIsUnreachableWhenTheAdvertisedBudgetEnds) {
  start_connect(a_, wire::IpAddress::ipv4(0x0a000063));
  skip_resolution_events(a_);
  const TimeNs start = now_;
  // 16 times Linux' interval: 2 * 256 ms (packet lifetime 16) + 4096 ms (response timeout 20).
  const TimeNs budget = 16 * (2 * 256 + 4096) * kMs;
  run_until(start + budget - 100 * kMs);
  EXPECT_TRUE(a_.events.empty());
  run_until(start + budget + 100 * kMs);
  EXPECT_EQ(expect_event(a_, CmEventType::kUnreachable).status, -ETIMEDOUT);
  EXPECT_LE(network_.sent_count(), 16u);
}

TEST_F(Nodes, NobodyListensIsRejectedWithStatus8) {
  start_connect(a_, kB);
  skip_resolution_events(a_);
  const auto rejected = expect_event(a_, CmEventType::kRejected);
  EXPECT_EQ(rejected.status, 8);
  EXPECT_EQ(rejected.conn.private_data_size, 148u);
}

TEST_F(Nodes, AListenerOnALoopbackAddressTakesNoRequestFromOutside) {
  listen(b_, kLoopback);
  start_connect(a_, kB);
  skip_resolution_events(a_);
  EXPECT_EQ(expect_event(a_, CmEventType::kRejected).status, 28);
  EXPECT_TRUE(b_.events.empty());
}

TEST_F(Nodes, ARequestFromOutsideThatClaimsALoopbackDestinationIsRejected) {
  listen(b_, kLoopback);
  // A peer that lies: its header says 127.0.0.1, its packet goes to B.
  cm::Engine liar(cm::Config{.random_key = {9, 9}});
  ASSERT_TRUE(liar.connect(now_, {.path = {.local = kA, .remote = kLoopback},
                                  .ca_guid = 9,
                                  .service_id = wire::ip_service_id(wire::PortSpace::kTcp, kPort),
                                  .params = {.qpn = 17}}));
  const auto packet = liar.poll_packet();
  std::array<std::uint8_t, wire::kGsiPacketSize> bytes;
  wire::DatagramInfo info{.source = kA, .destination = kB, .source_port = a_.port->source_port()};
  wire::emit_gsi_packet(info, 0, packet->mad, bytes);
  const net::Datagram datagram{info, bytes};
  a_.port->send({&datagram, 1});
  settle();
  EXPECT_TRUE(b_.events.empty());
  EXPECT_EQ(b_.core.packet_counters().received, 1u);
}

TEST_F(Nodes, AProgramOfTheHostCannotSpeakForTheNode) {
  listen(b_, kB);
  cm::Engine liar(cm::Config{.random_key = {9, 9}});
  ASSERT_TRUE(liar.connect(now_, {.path = {.local = kB, .remote = kB},
                                  .ca_guid = 9,
                                  .service_id = wire::ip_service_id(wire::PortSpace::kTcp, kPort),
                                  .params = {.qpn = 17}}));
  const auto packet = liar.poll_packet();
  const auto port_of_program = network_.attach({}, 0xC0FF);
  std::array<std::uint8_t, wire::kGsiPacketSize> bytes;
  wire::DatagramInfo info{.source = kB, .destination = kB, .source_port = port_of_program->source_port()};
  wire::emit_gsi_packet(info, 0, packet->mad, bytes);
  const net::Datagram datagram{info, bytes};
  port_of_program->send({&datagram, 1});
  settle();
  EXPECT_TRUE(b_.events.empty());
  EXPECT_EQ(b_.core.packet_counters().not_the_node, 1u);
}

TEST_F(Nodes, EventsOfARequestBeforeItIsAcceptedAreNotDeliveredAndAcceptFails) {
  listen(b_, kB);
  const std::uint32_t active = start_connect(a_, kB);
  const std::uint32_t passive = expect_event(b_, CmEventType::kConnectRequest).id;
  EXPECT_EQ(call(a_, CmCall::kDestroyId, active), 0);  // REJ 4
  settle();
  EXPECT_TRUE(b_.events.empty());
  EXPECT_EQ(b_.execute(now_, {.call = CmCall::kAccept, .id = passive, .conn = conn(502)}).error, EINVAL);
}

TEST_F(Nodes, DestroyingAListenerRejectsWhatItsProgramHasNotRead) {
  const std::uint32_t listening = listen(b_, kB);
  start_connect(a_, kB);
  skip_resolution_events(a_);
  const std::uint32_t passive = expect_event(b_, CmEventType::kConnectRequest).id;
  EXPECT_EQ(b_.core.listeners().at(0).pending, 1u);
  EXPECT_EQ(call(b_, CmCall::kDestroyId, listening), 0);
  EXPECT_EQ(expect_event(a_, CmEventType::kRejected).status, 28);
  EXPECT_EQ(call(b_, CmCall::kDestroyId, passive), ENOENT);
}

TEST_F(Nodes, AProcessThatDiesDisconnectsAndFreesItsPort) {
  establish();
  b_.core.remove_session(now_, kSession);
  EXPECT_EQ(expect_event(a_, CmEventType::kDisconnected).status, 0);
  EXPECT_TRUE(b_.core.listeners().empty());
  listen(b_, kB);
}

TEST_F(Nodes, NoEventOfADestroyedIdIsDelivered) {
  const std::uint32_t id = create(a_);
  EXPECT_EQ(resolve(a_, id, kB).error, 0);
  EXPECT_EQ(call(a_, CmCall::kDestroyId, id), 0);
  settle();
  EXPECT_TRUE(a_.events.empty());
}

TEST_F(Nodes, EventsGoToTheLinkAnIdHasMovedTo) {
  const std::uint32_t id = create(a_);
  EXPECT_EQ(resolve(a_, id, kB).error, 0);
  EXPECT_EQ(a_.execute(now_, {.call = CmCall::kMigrateId, .id = id}, kSession, 51).error, 0);
  settle();
  ASSERT_EQ(a_.events.size(), 1u);
  EXPECT_EQ(a_.events[0].first, 51u);
}

TEST_F(Nodes, UnreadRequestsMoveWithTheirListener) {
  const std::uint32_t listening = listen(b_, kB);
  start_connect(a_, kB);
  const std::uint32_t passive = expect_event(b_, CmEventType::kConnectRequest).id;
  EXPECT_EQ(b_.execute(now_, {.call = CmCall::kMigrateId, .id = listening}, kSession, 51).error, 0);
  b_.core.remove_link(now_, kLinkId);
  EXPECT_EQ(b_.execute(now_, {.call = CmCall::kAccept, .id = passive, .conn = conn(502)}).error, 0);
}

TEST_F(Nodes, RefusalsHaveTheErrorsOfLinux) {
  const std::uint32_t id = create(a_);
  EXPECT_EQ(a_.execute(now_, {.call = CmCall::kCreateId, .port_space = 7}).error, EINVAL);
  EXPECT_EQ(call(a_, CmCall::kConnect, id), EINVAL);
  EXPECT_EQ(call(a_, CmCall::kBindAddr, id), EAFNOSUPPORT);
  EXPECT_EQ(bind(a_, id, kB), EADDRNOTAVAIL);
  EXPECT_EQ(bind(a_, id, kA, 80), EACCES);
  a_.core.allow_low_ports(kSession);
  EXPECT_EQ(bind(a_, id, kA, 80), 0);
  EXPECT_EQ(bind(a_, id, kA, 81), EINVAL);  // bound already
  EXPECT_EQ(resolve(a_, id, wire::IpAddress::ipv4(0x0b000001)).error, ENETUNREACH);
  EXPECT_EQ(resolve(a_, id, kB).error, 0);
  EXPECT_EQ(call(a_, CmCall::kResolveRoute, id), EINVAL);  // no time
  EXPECT_EQ(call(a_, static_cast<CmCall>(99), id), ENOSYS);

  const std::uint32_t taken = create(a_);
  EXPECT_EQ(bind(a_, taken, kA, 80), EADDRINUSE);
}

TEST_F(Nodes, ALinkMakesIdsOfTheNumbersItWasGivenInOrder) {
  const auto granted =
      a_.execute(now_, {.call = CmCall::kCreateId, .qp_type = 2, .port_space = 0x0106, .numbers = 1000});
  ASSERT_EQ(granted.numbers, ipc::kIdNumbersMax);
  const auto make = [&](std::uint32_t number, SessionId session = kSession, LinkId link = kLinkId) {
    ipc::CmCommand command{.call = CmCall::kCreateId, .qp_type = 2, .posted = 1, .id = number, .port_space = 0x0106};
    return a_.execute(now_, command, session, link).error;
  };
  EXPECT_EQ(make(granted.id + 2), ENOMEM) << "not in order";
  EXPECT_EQ(make(granted.id + 1, 6), ENOMEM) << "another process";
  EXPECT_EQ(make(granted.id + 1, kSession, 51), ENOMEM) << "another link";
  for (std::uint32_t i = 1; i <= granted.numbers; ++i) EXPECT_EQ(make(granted.id + i), 0);
  EXPECT_EQ(make(granted.id + granted.numbers + 1), ENOMEM) << "all used";
  EXPECT_EQ(resolve(a_, granted.id + granted.numbers, kB).error, 0);
  EXPECT_EQ(create(a_), granted.id + granted.numbers + 1) << "others go on behind them";
}

TEST_F(Nodes, WhatNobodyWaitsForTellsItsFailureByAnEvent) {
  const std::uint32_t id = create(a_);
  const auto post = [&](ipc::CmCommand command) {
    command.posted = 1;
    command.id = id;
    a_.execute(now_, command);
    settle();
  };
  post({.call = CmCall::kResolveAddr, .timeout_ms = 9, .destination = address(wire::IpAddress::ipv4(0x0b000001), 1)});
  EXPECT_EQ(expect_event(a_, CmEventType::kAddrError).status, -ENETUNREACH);
  EXPECT_EQ(resolve(a_, id, kB).error, 0);
  expect_event(a_, CmEventType::kAddrResolved);
  post({.call = CmCall::kResolveRoute});
  EXPECT_EQ(expect_event(a_, CmEventType::kRouteError).status, -EINVAL);
  post({.call = CmCall::kConnect, .conn = conn(501)});
  EXPECT_EQ(expect_event(a_, CmEventType::kConnectError).status, -EINVAL);
  post({.call = CmCall::kDisconnect});
  EXPECT_TRUE(a_.events.empty());
}

TEST_F(Nodes, AnotherProcessCanNeitherTouchAnIdNorUseAQp) {
  const std::uint32_t id = create(a_);
  EXPECT_EQ(a_.execute(now_, {.call = CmCall::kDestroyId, .id = id}, 6).error, ENOENT);
  EXPECT_EQ(resolve(a_, id, kB).error, 0);
  EXPECT_EQ(a_.execute(now_, {.call = CmCall::kResolveRoute, .id = id, .timeout_ms = 1}).error, 0);
  EXPECT_EQ(connect(a_, id, 601), EINVAL);
  EXPECT_EQ(connect(a_, id, 501), 0);
}

TEST_F(Nodes, AProgramOverALimitGetsAnErrorAndGoesOnWhenItHasGivenBack) {
  Limits limits;
  limits.program.most = {1, 1, 1, 3, 1, 1};
  a_.core.set_limits(limits);
  const std::uint32_t listening = create(a_);
  ASSERT_EQ(bind(a_, listening, kA), 0);
  EXPECT_EQ(call(a_, CmCall::kListen, listening), 0);
  const std::uint32_t second = create(a_);
  ASSERT_EQ(bind(a_, second, kA, kPort + 1), 0);
  EXPECT_EQ(call(a_, CmCall::kListen, second), ENOMEM) << "listeners";
  const std::uint32_t third = create(a_);
  const auto create_another = [&] {
    return a_.execute(now_, {.call = CmCall::kCreateId, .qp_type = 2, .port_space = 0x0106}).error;
  };
  EXPECT_EQ(create_another(), ENOMEM) << "IDs";
  EXPECT_EQ(call(a_, CmCall::kDestroyId, listening), 0);
  EXPECT_EQ(call(a_, CmCall::kListen, second), 0);

  EXPECT_EQ(create_another(), 0);
  EXPECT_EQ(call(a_, CmCall::kDestroyId, third), 0);
  const std::uint32_t asking = start_connect(a_, kB);
  EXPECT_EQ(call(a_, CmCall::kDestroyId, second), 0);
  const std::uint32_t waiting = create(a_);
  EXPECT_EQ(resolve(a_, waiting, kB).error, 0);
  EXPECT_EQ(a_.execute(now_, {.call = CmCall::kResolveRoute, .id = waiting, .timeout_ms = 2000}).error, 0);
  EXPECT_EQ(connect(a_, waiting), EAGAIN) << "connections without an answer";
  settle();  // nobody listens at B: REJ
  EXPECT_EQ(connect(a_, waiting), 0);
  EXPECT_EQ(call(a_, CmCall::kDestroyId, asking), 0);
}

TEST_F(Nodes, WhoConnectsTooFastIsToldToTryAgain) {
  Limits limits;
  limits.program.connects_per_s = 1;
  a_.core.set_limits(limits);
  start_connect(a_, kB);
  const std::uint32_t soon = create(a_);
  EXPECT_EQ(resolve(a_, soon, kB).error, 0);
  EXPECT_EQ(a_.execute(now_, {.call = CmCall::kResolveRoute, .id = soon, .timeout_ms = 2000}).error, 0);
  EXPECT_EQ(connect(a_, soon), EAGAIN);
  now_ += kNanosecondsPerSecond;
  EXPECT_EQ(connect(a_, soon), 0);
}

TEST_F(Nodes, ThePortSpaceDecidesWhichTypesOfQpCanListen) {
  struct Kind {
    std::uint8_t qp_type;
    std::uint16_t port_space;
    int error;
  };
  constexpr Kind kKinds[] = {{2, 0x0106, 0},  {3, 0x0106, EOPNOTSUPP}, {4, 0x0106, EOPNOTSUPP},
                             {4, 0x0111, 0},  {2, 0x0111, EOPNOTSUPP}, {4, 0x0002, 0},
                             {2, 0x013F, 0},  {4, 0x013F, 0},          {3, 0x013F, 0},
                             {10, 0x013F, 0}, {9, 0x013F, EINVAL},     {10, 0x0106, EOPNOTSUPP}};
  for (const Kind& kind : kKinds) {
    const std::uint32_t id =
        a_.execute(now_, {.call = CmCall::kCreateId, .qp_type = kind.qp_type, .port_space = kind.port_space}).id;
    EXPECT_EQ(bind(a_, id, kA), 0);
    EXPECT_EQ(call(a_, CmCall::kListen, id), kind.error) << int{kind.qp_type} << " in " << kind.port_space;
    EXPECT_EQ(call(a_, CmCall::kDestroyId, id), 0);
  }
}

// ---- Datagram service.

class Datagrams : public Nodes {
 protected:
  static constexpr std::uint32_t kQkey = 0x01234567;

  std::uint32_t create_datagram(TestNode& node) {
    return node.execute(now_, {.call = CmCall::kCreateId, .qp_type = 4, .port_space = 0x0111}).id;
  }
  std::uint32_t listen_for_datagrams() {
    const std::uint32_t id = create_datagram(b_);
    EXPECT_EQ(bind(b_, id, kB), 0);
    EXPECT_EQ(call(b_, CmCall::kListen, id), 0);
    return id;
  }
  static ipc::CmConnParam datagram(std::uint32_t qpn, std::uint8_t first_byte) {
    ipc::CmConnParam conn{.qp_num = qpn, .qkey = kQkey, .private_data_size = 1};
    conn.private_data[0] = first_byte;
    return conn;
  }
  std::uint32_t ask() {
    const std::uint32_t id = create_datagram(a_);
    EXPECT_EQ(resolve(a_, id, kB).error, 0);
    EXPECT_EQ(a_.execute(now_, {.call = CmCall::kResolveRoute, .id = id, .timeout_ms = 2000}).error, 0);
    EXPECT_EQ(a_.execute(now_, {.call = CmCall::kConnect, .id = id, .conn = datagram(0, 0x77)}).error, 0);
    skip_resolution_events(a_);
    return id;
  }
  std::uint32_t be_asked() {
    const auto request = expect_event(b_, CmEventType::kConnectRequest);
    EXPECT_EQ(call(b_, CmCall::kRequestTaken, request.id), 0);
    return request.id;
  }
};

TEST_F(Datagrams, AcceptTellsTheQpAndOnlyTheActiveSideHearsOfIt) {
  const std::uint32_t listening = listen_for_datagrams();
  const std::uint32_t active = ask();
  const auto request = expect_event(b_, CmEventType::kConnectRequest);
  EXPECT_EQ(request.listen_id, listening);
  EXPECT_EQ(request.path.remote.address, kA.bytes);
  EXPECT_EQ(request.path.local.port, kPort);
  EXPECT_EQ(request.path.ifindex, FakeHost::kLink);
  EXPECT_EQ(request.conn.private_data_size, 180u);
  EXPECT_EQ(request.conn.private_data[0], 0x77);
  EXPECT_EQ(request.conn.qp_num, 0u);
  EXPECT_EQ(b_.core.listeners().at(0).pending, 1u);
  EXPECT_EQ(call(b_, CmCall::kRequestTaken, request.id), 0);
  EXPECT_EQ(b_.core.listeners().at(0).pending, 0u);

  EXPECT_EQ(b_.execute(now_, {.call = CmCall::kAccept, .id = request.id, .conn = datagram(502, 0x88)}).error, 0);
  const auto answer = expect_event(a_, CmEventType::kEstablished);
  EXPECT_EQ(answer.id, active);
  EXPECT_EQ(answer.status, 0);
  EXPECT_EQ(answer.conn.qp_num, 502u);
  EXPECT_EQ(answer.conn.qkey, kQkey);
  EXPECT_EQ(answer.conn.private_data_size, 136u);
  EXPECT_EQ(answer.conn.private_data[0], 0x88);
  EXPECT_TRUE(b_.events.empty());

  // There is no connection to end.
  EXPECT_EQ(call(a_, CmCall::kDisconnect, active), 0);
  EXPECT_EQ(call(a_, CmCall::kEstablish, active), EINVAL);
  EXPECT_EQ(call(a_, CmCall::kNotify, active), EINVAL);
  run_until(now_ + 100'000 * kMs);
  EXPECT_TRUE(a_.events.empty());
  EXPECT_TRUE(b_.events.empty());
  EXPECT_EQ(network_.sent_count(), 2u);
}

TEST_F(Datagrams, RefusalsAreUnreachableWithTheStatusOfTheAnswer) {
  ask();
  EXPECT_EQ(expect_event(a_, CmEventType::kUnreachable).status, 1);  // nobody listens

  const std::uint32_t listening = listen_for_datagrams();
  ask();
  EXPECT_EQ(b_.execute(now_, {.call = CmCall::kReject, .id = be_asked(), .conn = datagram(0, 0x99)}).error, 0);
  const auto rejected = expect_event(a_, CmEventType::kUnreachable);
  EXPECT_EQ(rejected.status, 2);
  EXPECT_EQ(rejected.conn.private_data_size, 136u);
  EXPECT_EQ(rejected.conn.private_data[0], 0x99);

  ask();
  EXPECT_EQ(call(b_, CmCall::kDestroyId, be_asked()), 0);
  EXPECT_EQ(expect_event(a_, CmEventType::kUnreachable).status, 2);

  ask();
  expect_event(b_, CmEventType::kConnectRequest);
  EXPECT_EQ(call(b_, CmCall::kDestroyId, listening), 0);
  EXPECT_EQ(expect_event(a_, CmEventType::kUnreachable).status, 2);
}

TEST_F(Datagrams, ASilentHostIsUnreachableAfterSixteenTries) {
  network_.set_tap([](const wire::DatagramInfo&, net::MemoryNetwork::Payload&) { return false; });
  const TimeNs start = now_;
  ask();
  run_until(start + 16 * 4096 * kMs - 1);
  EXPECT_TRUE(a_.events.empty());
  run_until(start + 16 * 4096 * kMs);
  EXPECT_EQ(expect_event(a_, CmEventType::kUnreachable).status, -ETIMEDOUT);
}

TEST_F(Datagrams, AnotherQkeyThanTheOwnIsAnAddressError) {
  listen_for_datagrams();
  ask();
  auto conn = datagram(502, 0);
  conn.qkey = 1;
  EXPECT_EQ(b_.execute(now_, {.call = CmCall::kAccept, .id = be_asked(), .conn = conn}).error, 0);
  const ipc::CmEvent told = expect_event(a_, CmEventType::kAddrError);
  EXPECT_EQ(told.status, -EINVAL);
  EXPECT_EQ(told.conn.private_data_size, 136);  // of the answer  // Linux: same
}

TEST_F(Datagrams, AcceptWithTooMuchDataOrAForeignQpFails) {
  listen_for_datagrams();
  ask();
  const std::uint32_t passive = be_asked();
  EXPECT_EQ(b_.execute(now_, {.call = CmCall::kAccept, .id = passive, .conn = datagram(602, 0)}).error, EINVAL);
  auto conn = datagram(502, 0);
  conn.private_data_size = 137;
  EXPECT_EQ(b_.execute(now_, {.call = CmCall::kAccept, .id = passive, .conn = conn}).error, EINVAL);
  EXPECT_EQ(expect_event(a_, CmEventType::kUnreachable).status, 2);
}

TEST_F(Datagrams, AConnectionAndADatagramServiceShareAPortNumber) {
  listen(b_, kB);
  listen_for_datagrams();
  ask();
  const std::uint32_t datagram_request = be_asked();
  start_connect(a_, kB);
  EXPECT_NE(expect_event(b_, CmEventType::kConnectRequest).id, datagram_request);
}

TEST_F(Nodes, ADeviceThatGoesIsToldOncePerId) {
  const std::uint32_t id = create(a_);
  EXPECT_EQ(bind(a_, id, kA), 0);
  a_.host.remove_link();
  EXPECT_EQ(expect_event(a_, CmEventType::kDeviceRemoval).id, id);
  EXPECT_EQ(resolve(a_, id, kB).error, 0);
  EXPECT_EQ(expect_event(a_, CmEventType::kAddrError).status, -ENODEV);
}

TEST_F(Nodes, EveryBadPacketIsCountedAndDataGoesToItsQp) {
  const auto send = [&](Bytes payload) {
    const net::Datagram datagram{{.source = kA, .destination = kB}, payload};
    a_.port->send({&datagram, 1});
    settle();
  };
  std::array<std::uint8_t, 20> bytes{};
  wire::Bth{.opcode = wire::Opcode::kRcSendOnly, .destination_qpn = 77}.emit(bytes);
  send(Bytes(bytes).first(15));
  EXPECT_EQ(b_.core.packet_counters().short_packet, 1u);
  send(bytes);
  EXPECT_EQ(b_.data_qpns, std::vector<std::uint32_t>{77});
  wire::Bth{.opcode = wire::Opcode::kUdSendOnly, .destination_qpn = 1}.emit(bytes);
  send(bytes);
  EXPECT_EQ(b_.core.packet_counters().bad_icrc + b_.core.packet_counters().bad_gsi, 1u);
}

TEST_F(Nodes, AConnectionSurvivesAFaultyNetwork) {
  int count = 0;
  network_.set_tap([&](const wire::DatagramInfo&, net::MemoryNetwork::Payload&) { return ++count % 2 == 0; });
  listen(b_, kB);
  start_connect(a_, kB);
  skip_resolution_events(a_);
  run_until(now_ + 6000 * kMs);
  expect_event(b_, CmEventType::kConnectRequest);
}

TEST_F(Datagrams, AJoinIsAnsweredWithTheGroup) {
  const std::uint32_t id = create_datagram(a_);
  const auto group = [](const wire::IpAddress& address) {
    return ipc::SocketAddress{.family = static_cast<std::uint8_t>(address.is_ipv4() ? 4 : 6), .address = address.bytes};
  };
  const auto join = [&](std::uint32_t number, const wire::IpAddress& address) {
    return a_
        .execute(now_, {.call = CmCall::kJoinMulticast, .id = number, .destination = group(address), .multicast = 77})
        .error;
  };
  const auto kGroup = wire::IpAddress::ipv4(0xEF010203);
  EXPECT_EQ(join(id, kGroup), EINVAL) << "no device yet";
  ASSERT_EQ(bind(a_, id, kA), 0);
  EXPECT_EQ(join(id, kB), EINVAL) << "no group";
  EXPECT_EQ(join(id, wire::IpAddress::ipv4_any()), EINVAL);
  wire::IpAddress ipv6{};
  ipv6.bytes[0] = 0xff;
  EXPECT_EQ(join(id, ipv6), 524);  // Linux: ENOTSUPP
  ASSERT_EQ(join(id, kGroup), 0);
  const auto joined = expect_event(a_, CmEventType::kMulticastJoin);
  EXPECT_EQ(joined.id, id);
  EXPECT_EQ(joined.multicast, 77u);
  EXPECT_EQ(joined.path.remote.address, kGroup.bytes);
  EXPECT_EQ(joined.path.local.address, kA.bytes);
  EXPECT_EQ(joined.path.hop_limit, 64);

  const std::uint32_t connected = create(a_);
  ASSERT_EQ(bind(a_, connected, kA), 0);
  EXPECT_EQ(join(connected, kGroup), EINVAL) << "a reliable connection";  // case 6.04
}

TEST_F(Nodes, EveryFailureIsToldWithItsReason) {
  const std::uint32_t id = create(a_);
  const std::string number = std::to_string(id);
  EXPECT_EQ(call(a_, CmCall::kDisconnect, id), EINVAL);
  EXPECT_EQ(a_.failures.back(), "disconnect 22 of " + number + ", idle: not in this state");
  EXPECT_EQ(call(a_, CmCall::kDisconnect, 4711), ENOENT);
  EXPECT_EQ(a_.failures.back(), "disconnect 2 of 0, : no such ID");

  const std::uint32_t refused = start_connect(a_, kB);
  skip_resolution_events(a_);
  expect_event(a_, CmEventType::kRejected);
  EXPECT_EQ(a_.failures.back(), "REJECTED 8 of " + std::to_string(refused) + ", connect: nobody listens");
  EXPECT_EQ(a_.failures.size(), 3u) << "what succeeds is a failure";
}

TEST_F(Nodes, ARecordingBeginsWithoutConnectionsAndKeepsListeners) {
  std::size_t records = 0;
  const auto sink = [&](Bytes) {
    ++records;
    return true;
  };
  const Connection first = establish();
  const auto refused = b_.core.record_engine(now_, sink);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EBUSY);
  EXPECT_EQ(records, 0u);
  EXPECT_EQ(call(a_, CmCall::kDestroyId, first.active), 0);
  expect_event(b_, CmEventType::kDisconnected);
  EXPECT_EQ(call(b_, CmCall::kDestroyId, first.passive), 0);
  run_until(now_ + 100'000 * kMs);
  const auto counted = [&] {
    std::uint64_t sum = 0;
    for (const Node::Count& count : b_.core.counters()) sum += count.value;
    return sum;
  };
  const std::uint64_t before = counted();
  ASSERT_TRUE(b_.core.record_engine(now_, sink));
  EXPECT_EQ(counted(), before);
  EXPECT_EQ(records, 2u) << "a start and a listener";

  start_connect(a_, kB);
  skip_resolution_events(a_);
  const std::uint32_t passive = expect_event(b_, CmEventType::kConnectRequest).id;
  EXPECT_EQ(call(b_, CmCall::kRequestTaken, passive), 0);
  EXPECT_GT(records, 4u);
}

}  // namespace
}  // namespace ucm::node
