// The end of a connection, from both sides, and what comes after it.
#include <cerrno>

#include "harness.h"

namespace ucm::cm {
namespace {

class Disconnect : public CmTest, public testing::WithParamInterface<bool> {
 protected:
  bool active() const { return GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(BothRoles, Disconnect, testing::Bool(),
                         [](const auto& role) { return std::string(role.param ? "Active" : "Passive"); });

TEST_P(Disconnect, SendsDreqForThePeersQpAndReportsTheAnswerThenTheEndOfTimewait) {
  reach(State::kEstablished, active());
  engine.disconnect(now, id);
  wire::MadHeader header;
  const auto m = sent<wire::Dreq>(&header);
  EXPECT_EQ(m.local_comm_id, own_comm_id);
  EXPECT_EQ(m.remote_comm_id, kPeerCommId);
  EXPECT_EQ(m.remote_qpn, kPeerQpn);
  EXPECT_EQ(header.transaction_id >> 32, 2u);  // a transaction of our own
  deliver(answer<wire::Drep>());
  auto e = event();
  EXPECT_EQ(e.type, EventType::kDisconnected);
  EXPECT_EQ(e.status, 0);
  EXPECT_EQ(e.user, kUser);
  // Timewait is the ACK timeout: 2^(t-8) ms of exponent 17 (REP: lifetime 16, ACK delay 15) or 19 (from the REQ).
  const TimeNs timewait = (active() ? 512 : 2048) * kMillisecond;
  EXPECT_EQ(engine.next_deadline(), now + timewait);
  advance(timewait);
  EXPECT_EQ(event().type, EventType::kTimewaitExit);
  EXPECT_EQ(state(), State::kIdle);
  EXPECT_EQ(engine.next_deadline(), kNever);
  engine.destroy(now, id);
  expect_silence();
  engine.close_listener(now, listener);
  EXPECT_EQ(engine.usage(), Engine::Usage{});
}

TEST_P(Disconnect, DreqIsRepeatedUntilTheSidesOwnBudgetEndsAndItsTimeoutReported) {  // Field case 3.07
  reach(State::kEstablished, active());
  engine.disconnect(now, id);
  const auto first = packets();
  const TimeNs start = now;
  const TimeNs give_up_at = start + 16 * (active() ? 4608 : 4096) * kMillisecond;
  while (engine.next_deadline() < give_up_at) {
    now = engine.next_deadline();
    engine.on_deadline(now);
    const auto again = packets();
    ASSERT_EQ(again.size(), 1u);
    EXPECT_EQ(again[0].mad, first[0].mad);
  }
  EXPECT_EQ(engine.next_deadline(), give_up_at);
  now = engine.next_deadline();
  engine.on_deadline(now);
  const auto e = event();
  EXPECT_EQ(e.type, EventType::kDisconnected);
  EXPECT_EQ(e.status, -ETIMEDOUT);
  EXPECT_EQ(state(), State::kTimewait);
  advance(10 * kSecond);
  EXPECT_EQ(event().type, EventType::kTimewaitExit);
}

TEST_F(CmTest, ReplyRepeatedAfterDisconnectSaysThatRtuAndDreqWereLostSoTheDreqIsSentAtOnce) {
  reach(State::kEstablished, true);
  engine.disconnect(now, id);
  const auto first = packets();
  deliver(rep());
  const auto again = packets();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].mad, first[0].mad);
  EXPECT_EQ(state(), State::kDreqSent);
}

TEST_P(Disconnect, PeersDreqIsReportedAndAnsweredWhenTheApplicationAsks) {
  reach(State::kEstablished, active());
  deliver(dreq());
  const auto e = event();
  EXPECT_EQ(e.type, EventType::kDisconnected);
  EXPECT_EQ(e.status, 0);
  EXPECT_TRUE(packets().empty());
  deliver(dreq());  // Linux: the repetition waits for the application as well
  expect_silence();
  engine.disconnect(now, id);
  wire::MadHeader header;
  const auto m = sent<wire::Drep>(&header);
  EXPECT_EQ(header.transaction_id, kPeerTid);
  EXPECT_EQ(m.local_comm_id, own_comm_id);
  EXPECT_EQ(m.remote_comm_id, kPeerCommId);
  EXPECT_EQ(state(), State::kTimewait);
}

// It would ask for a lost one after four seconds.
TEST_P(Disconnect, DrepIsSentASecondTimeToAForeignPeer) {
  reach(State::kDreqReceived, active());
  engine.disconnect(now, id);
  const auto drep = packets().at(0);
  engine.destroy(now, id);
  expect_again(drep);
}

TEST_P(Disconnect, CrossingDreqsAnswerIsSentASecondTimeToAForeignPeer) {
  reach(State::kDreqSent, active());
  deliver(dreq());
  expect_again(packets().at(0));
}

TEST_P(Disconnect, RepeatedDreqIsAnsweredInTimewaitInIdleAndAfterDestroy) {  // Field case 3.01
  reach(State::kDreqReceived, active());
  engine.disconnect(now, id);
  const auto first = packets();
  deliver(dreq());
  EXPECT_EQ(packets().at(0).mad, first.at(0).mad);
  advance(10 * kSecond);
  EXPECT_EQ(state(), State::kIdle);
  drain();
  deliver(dreq());
  EXPECT_EQ(packets().at(0).mad, first.at(0).mad);
  engine.destroy(now, id);
  deliver(dreq());
  EXPECT_EQ(packets().at(0).mad, first.at(0).mad);
  EXPECT_TRUE(events().empty());
}

TEST_P(Disconnect, CrossingDreqIsAnsweredAtOnceAndReportedOnce) {
  reach(State::kDreqSent, active());
  deliver(dreq());
  EXPECT_EQ(event().type, EventType::kDisconnected);
  sent<wire::Drep>();
  EXPECT_EQ(state(), State::kTimewait);
  deliver(answer<wire::Drep>());
  expect_silence();
}

TEST_P(Disconnect, DreqForAnotherQpIsDropped) {
  reach(State::kEstablished, active());
  auto m = dreq();
  m.remote_qpn = kOwnQpn + 1;
  deliver(m);
  expect_silence();
  EXPECT_EQ(engine.counters().wrong_qpn, 1u);
  EXPECT_EQ(state(), State::kEstablished);
}

TEST_P(Disconnect, SecondDisconnectSendsNothing) {
  reach(State::kDreqSent, active());
  engine.disconnect(now, id);
  expect_silence();
}

TEST_P(Disconnect, DestroyAnswersAWaitingDreq) {
  reach(State::kDreqReceived, active());
  engine.destroy(now, id);
  sent<wire::Drep>();
}

// ---- Orphans: destroyed, and not yet disconnected.

TEST_P(Disconnect, DestroyOfAnEstablishedConnectionSendsOneDreqAndItsAnswerEndsAll) {  // Field case 3.03
  reach(State::kEstablished, active());
  engine.destroy(now, id);
  sent<wire::Dreq>();
  EXPECT_EQ(engine.state(id), std::nullopt);
  engine.close_listener(now, listener);
  EXPECT_EQ(engine.usage(),
            (Engine::Usage{.connections = 1, .orphans = 1, .comm_ids = 1, .exchanges = 1, .timers = 1}));
  deliver(answer<wire::Drep>());
  expect_silence();
  EXPECT_EQ(engine.usage(), Engine::Usage{});
  EXPECT_EQ(engine.next_deadline(), kNever);
}

TEST_P(Disconnect, DreqIsRepeatedAfterDestroyUntilItIsAnswered) {  // Field case 3.02
  reach(State::kEstablished, active());
  engine.destroy(now, id);
  const auto first = packets();
  ASSERT_EQ(first.size(), 1u);
  TimeNs wait = 0;
  for (int i = 0; i < 3; ++i) {
    EXPECT_GT(engine.next_deadline() - now, wait);
    wait = engine.next_deadline() - now;
    advance(wait);
    const auto again = packets();
    ASSERT_EQ(again.size(), 1u);
    EXPECT_EQ(again[0].mad, first[0].mad);
  }
  deliver(answer<wire::Drep>());
  expect_silence();
  EXPECT_EQ(engine.usage().connections, 0u);
  EXPECT_EQ(engine.next_deadline(), kNever);
}

TEST_P(Disconnect, DestroyAfterDisconnectSendsNothingMoreAndKeepsTheBudget) {
  reach(State::kEstablished, active());
  engine.disconnect(now, id);
  const auto first = packets();
  const TimeNs give_up_at = now + 16 * (active() ? 4608 : 4096) * kMillisecond;
  now += kMillisecond;
  engine.destroy(now, id);
  expect_silence();
  while (engine.next_deadline() < give_up_at) {
    advance(engine.next_deadline() - now);
    const auto again = packets();
    ASSERT_EQ(again.size(), 1u);
    EXPECT_EQ(again[0].mad, first.at(0).mad);
  }
  EXPECT_EQ(engine.next_deadline(), give_up_at);
  advance(give_up_at - now);
  expect_silence();
  EXPECT_EQ(engine.usage().connections, 0u);
  EXPECT_EQ(engine.counters().orphans_given_up, 1u);
  EXPECT_EQ(engine.counters().disconnect_timeouts, 0u);  // nobody was told of one
}

TEST_P(Disconnect, PeersDreqCrossingThatOfAnOrphanIsAnsweredAndEndsIt) {
  reach(State::kOrphaned, active());
  deliver(dreq());
  const auto first = packets();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(header_of(first[0]).attribute, wire::Attribute::kDrep);
  EXPECT_EQ(engine.usage().connections, 0u);
  deliver(dreq());  // its answer was lost
  EXPECT_EQ(packets().at(0).mad, first[0].mad);
  EXPECT_TRUE(events().empty());
}

TEST_P(Disconnect, OrphanIsInTheWayOfNoNewConnectionWithItsQp) {
  reach(State::kOrphaned, active());
  if (listener == ListenerId{}) listen();
  auto m = req();
  m.local_comm_id = kPeerCommId + 1;
  deliver(m);
  EXPECT_EQ(event().type, EventType::kConnectRequest);
  connect();
  auto n = rep();
  n.local_comm_id = kPeerCommId + 2;
  n.local_qpn = kPeerQpn + 1;
  deliver(n);
  EXPECT_EQ(event().type, EventType::kConnectResponse);
  EXPECT_EQ(engine.usage().orphans, 1u);
  EXPECT_EQ(engine.counters().rejected_stale, 0u);
  advance(engine.next_deadline() - now);
  EXPECT_EQ(header_of(packets().at(0)).attribute, wire::Attribute::kDreq);
}

TEST_F(CmTest, OrphanWhoseRequestWasNeverTakenFreesItsPlaceInTheBacklog) {
  listen(1);
  deliver(req());
  id = event().connection;  // and no request_taken()
  accept();
  deliver(answer<wire::Rtu>());
  EXPECT_EQ(event().type, EventType::kEstablished);
  EXPECT_EQ(engine.usage().requests, 1u);
  engine.destroy(now, id);
  EXPECT_EQ(engine.usage().orphans, 1u);
  EXPECT_EQ(engine.usage().requests, 0u);
  engine.close_listener(now, listener);
  EXPECT_EQ(engine.usage().orphans, 1u);
}

TEST_P(Disconnect, CopyOfAnEngineWithAnOrphanGoesOnLikeIt) {
  reach(State::kOrphaned, active());
  Engine copy = engine;
  EXPECT_EQ(copy.state_hash(), engine.state_hash());
  const TimeNs deadline = engine.next_deadline();
  engine.on_deadline(deadline);
  EXPECT_NE(copy.state_hash(), engine.state_hash());
  copy.on_deadline(deadline);
  EXPECT_EQ(copy.state_hash(), engine.state_hash());
  EXPECT_EQ(copy.poll_packet()->mad, engine.poll_packet()->mad);
}

TEST_P(Disconnect, MessageAboutAnotherPathHoldsNothing) {  // Field case 1.19
  reach(State::kEstablished, active());
  auto lap = mad_of(dreq());
  store_be16(&lap[16], static_cast<std::uint16_t>(wire::Attribute::kLap));
  engine.on_packet(now, kFromPeer, lap);
  expect_silence();
  EXPECT_EQ(engine.counters().unsupported, 1u);
  engine.disconnect(now, id);
  sent<wire::Dreq>();
  deliver(answer<wire::Drep>());
  EXPECT_EQ(event().type, EventType::kDisconnected);
  engine.destroy(now, id);
  EXPECT_EQ(engine.usage().connections, 0u);
}

TEST_P(Disconnect, QpNumberIsFreeForTheNextConnectionRightAfterDrep) {  // Field case 1.24
  reach(State::kTimewait, active());
  if (listener == ListenerId{}) listen();
  auto m = req();
  m.local_comm_id = kPeerCommId + 1;
  deliver(m);
  EXPECT_EQ(event().type, EventType::kConnectRequest);
}

TEST(DisconnectAnswer, DreqOfAnUnknownConnectionIsAnsweredWithIdsSwapped) {
  Engine engine({.random_key = {1, 2}});
  wire::Dreq m;
  m.local_comm_id = 0x11111111;
  m.remote_comm_id = 0x22222222;
  engine.on_packet(0, kFromPeer, mad_of(m));
  const auto packet = engine.poll_packet();
  ASSERT_TRUE(packet);
  EXPECT_EQ(header_of(*packet).transaction_id, kPeerTid);
  EXPECT_EQ(packet->path.remote, kPeerAddress);
  const auto answer = *wire::Drep::parse(Bytes(packet->mad).subspan(wire::MadHeader::kSize));
  EXPECT_EQ(answer.local_comm_id, 0x22222222u);
  EXPECT_EQ(answer.remote_comm_id, 0x11111111u);
  EXPECT_EQ(engine.counters().unknown_dreqs_answered, 1u);
  EXPECT_EQ(engine.usage(), Engine::Usage{});
}

// ---- Handles.

TEST_P(Disconnect, HandleIsInvalidAfterDestroyAndNeverTheNextConnections) {
  reach(State::kEstablished, active());
  engine.destroy(now, id);
  EXPECT_EQ(engine.state(id), std::nullopt);  // though something of it is left
  EXPECT_EQ(engine.establish(now, id).error().code, EINVAL);
  deliver(answer<wire::Drep>());
  drain();
  const ConnectionId old = id;
  reach(State::kEstablished, active());  // takes the same slot
  EXPECT_NE(old, id);
  EXPECT_EQ(engine.state(old), std::nullopt);
  EXPECT_EQ(engine.qp_parameters(old), std::nullopt);
  engine.disconnect(now, old);
  engine.destroy(now, old);
  engine.request_taken(now, old);
  engine.set_user(old, 1);
  EXPECT_EQ(engine.establish(now, old).error().code, EINVAL);
  EXPECT_EQ(engine.accept(now, old, accept_params()).error().code, EINVAL);
  EXPECT_EQ(engine.reject(now, old, {}).error().code, EINVAL);
  EXPECT_EQ(engine.notify_established(now, old).error().code, EINVAL);
  expect_silence();
  EXPECT_EQ(state(), State::kEstablished);
}

TEST_P(Disconnect, EventsNotYetPolledVanishWithTheConnection) {
  reach(State::kEstablished, active());
  deliver(dreq());
  engine.destroy(now, id);
  EXPECT_TRUE(events().empty());
}

TEST(DisconnectHandles, NonsenseHandlesAreRefused) {
  Engine engine({.random_key = {1, 2}});
  for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{1} << 32, UINT64_MAX}) {
    engine.destroy(0, ConnectionId{value});
    engine.close_listener(0, ListenerId{value});
    EXPECT_EQ(engine.state(ConnectionId{value}), std::nullopt);
  }
}

}  // namespace
}  // namespace ucm::cm
