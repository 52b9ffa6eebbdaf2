// A node that dies, and the next one, which goes on with what the journal has.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "unit/node/nodes.h"

namespace ucm::node {
namespace {

class Successors : public Nodes {
 protected:
  Successors() { a_.core.keep_in(journal_); }

  static bool everywhere(SessionId, LinkId) { return true; }

  // Node a is dead, and this one goes on.
  TestNode& succeed(const std::function<bool(SessionId, LinkId)>& has_link = everywhere) {
    kept_.emplace(Journal::open(ipc::FileDescriptor(dup(journal_.descriptor()))).value());
    successor_.emplace(network_, kA, 3);
    successor_->core.keep_in(*kept_);
    EXPECT_TRUE(successor_->core.restore(now_, has_link));
    first_ = &*successor_;
    return *successor_;
  }
  static bool holds_nothing(const TestNode& node) {
    return std::ranges::all_of(node.core.held(), [](const Node::Count& count) { return count.value == 0; });
  }

  Journal journal_ = Journal::create().value();
  std::optional<Journal> kept_;
  std::optional<TestNode> successor_;
};

TEST_F(Successors, AnEstablishedConnectionLivesOnAndEndsAsAnyOther) {
  const Connection connection = establish();
  TestNode& a = succeed();
  ASSERT_EQ(a.core.connections().size(), 1u);
  EXPECT_EQ(a.core.connections()[0].state, "established");
  EXPECT_EQ(a.core.connections()[0].qpn, 501u);
  EXPECT_EQ(a.core.connections()[0].peer_qpn, 502u);
  EXPECT_EQ(call(b_, CmCall::kDisconnect, connection.passive), 0);
  EXPECT_EQ(expect_event(a, CmEventType::kDisconnected).id, connection.active);
  EXPECT_EQ(call(a, CmCall::kDisconnect, connection.active), 0);
  expect_event(b_, CmEventType::kDisconnected);
  run_until(now_ + 5000 * kMs);
  expect_event(a, CmEventType::kTimewaitExit);
  EXPECT_EQ(call(a, CmCall::kDestroyId, connection.active), 0);
  settle();
  EXPECT_TRUE(holds_nothing(a));
  EXPECT_EQ(kept_->size(), 0u);
}

TEST_F(Successors, AListenerKeepsItsPortAndTakesRequests) {
  const std::uint32_t listening = listen(a_, kA);
  settle();
  TestNode& a = succeed();
  const std::uint32_t other = create(a);
  EXPECT_EQ(bind(a, other, kA), EADDRINUSE);
  start_connect(b_, kA);
  const auto request = expect_event(a, CmEventType::kConnectRequest);
  EXPECT_EQ(request.listen_id, listening);
  EXPECT_NE(request.id, listening);
}

TEST_F(Successors, AnUnansweredRequestIsRepeatedAndItsReplyTaken) {
  listen(b_, kB);
  network_.set_tap([](const wire::DatagramInfo&, auto&) { return false; });
  const std::uint32_t active = start_connect(a_, kB);
  skip_resolution_events(a_);
  TestNode& a = succeed();
  network_.set_tap({});
  run_until(now_ + 5000 * kMs);
  const std::uint32_t passive = expect_event(b_, CmEventType::kConnectRequest).id;
  EXPECT_EQ(b_.execute(now_, {.call = CmCall::kAccept, .id = passive, .conn = conn(502)}).error, 0);
  EXPECT_EQ(expect_event(a, CmEventType::kConnectResponse).id, active);
  EXPECT_EQ(call(a, CmCall::kEstablish, active), 0);
  expect_event(b_, CmEventType::kEstablished);
}

TEST_F(Successors, ARequestThatTheProgramHasBeenToldOfCanBeAccepted) {
  listen(a_, kA);
  const std::uint32_t active = start_connect(b_, kA);
  skip_resolution_events(b_);
  const std::uint32_t passive = expect_event(a_, CmEventType::kConnectRequest).id;
  TestNode& a = succeed();
  EXPECT_EQ(call(a, CmCall::kRequestTaken, passive), 0);
  EXPECT_EQ(a.execute(now_, {.call = CmCall::kAccept, .id = passive, .conn = conn(502)}).error, 0);
  settle();
  expect_event(b_, CmEventType::kConnectResponse);
  EXPECT_EQ(call(b_, CmCall::kEstablish, active), 0);
  EXPECT_EQ(expect_event(a, CmEventType::kEstablished).id, passive);
}

TEST_F(Successors, AnEventOfACommittedCallIsToldThoughItsNodeDied) {
  const std::uint32_t id = create(a_);
  EXPECT_EQ(resolve(a_, id, kB).error, 0);
  a_.core.commit();  // as before the reply to the call
  TestNode& a = succeed();
  EXPECT_EQ(expect_event(a, CmEventType::kAddrResolved).id, id);
  EXPECT_TRUE(a.events.empty());
  EXPECT_EQ(kept_->size(), 1u);  // the ID
}

TEST_F(Successors, ACallThatWasNotCommittedHasNotHappened) {
  a_.core.commit();
  create(a_);
  TestNode& a = succeed();
  EXPECT_TRUE(holds_nothing(a));
}

TEST_F(Successors, AnOrphanGoesOnAskingForItsDisconnection) {
  const Connection connection = establish();
  network_.set_tap([](const wire::DatagramInfo&, auto&) { return false; });
  EXPECT_EQ(call(a_, CmCall::kDestroyId, connection.active), 0);
  settle();
  TestNode& a = succeed();
  network_.set_tap({});
  run_until(now_ + 5000 * kMs);
  expect_event(b_, CmEventType::kDisconnected);
  EXPECT_EQ(call(b_, CmCall::kDisconnect, connection.passive), 0);
  run_until(now_ + 5000 * kMs);
  EXPECT_TRUE(holds_nothing(a));
  EXPECT_EQ(kept_->size(), 0u);
}

TEST_F(Successors, WhatHasLostItsLinkIsEnded) {
  const Connection connection = establish();
  TestNode& a = succeed([](SessionId, LinkId) { return false; });
  EXPECT_EQ(expect_event(b_, CmEventType::kDisconnected).id, connection.passive);
  EXPECT_EQ(call(b_, CmCall::kDisconnect, connection.passive), 0);
  run_until(now_ + 5000 * kMs);
  EXPECT_TRUE(holds_nothing(a));
}

TEST_F(Successors, ADatagramQuestionEndsInAnEvent) {
  const std::uint32_t id = a_.execute(now_, {.call = CmCall::kCreateId, .qp_type = 4, .port_space = 0x0111}).id;
  EXPECT_EQ(resolve(a_, id, kB).error, 0);
  EXPECT_EQ(a_.execute(now_, {.call = CmCall::kResolveRoute, .id = id, .timeout_ms = 2000}).error, 0);
  skip_resolution_events(a_);
  network_.set_tap([](const wire::DatagramInfo&, auto&) { return false; });
  EXPECT_EQ(connect(a_, id), 0);
  settle();
  TestNode& a = succeed();
  EXPECT_EQ(expect_event(a, CmEventType::kUnreachable).status, -ETIMEDOUT);
}

TEST_F(Successors, ContradictionsAreRefused) {
  establish();
  Journal broken = Journal::open(ipc::FileDescriptor(dup(journal_.descriptor()))).value();
  std::optional<ConnectionCell> connection;
  broken.for_each<ConnectionCell>([&](Journal::Cell, const ConnectionCell& record) { connection = record; });
  ASSERT_TRUE(connection);
  broken.put(Journal::kNone, *connection);  // the same comm ID twice
  broken.commit();
  TestNode next(network_, kA, 3);
  next.core.keep_in(broken);
  const auto restored = next.core.restore(now_, everywhere);
  ASSERT_FALSE(restored);
  EXPECT_EQ(restored.error().code, EPROTO);
}

}  // namespace
}  // namespace ucm::node
