// Who a message is from, and which connection it means.
#include "harness.h"

namespace ucm::cm {
namespace {

class Identity : public CmTest {};

TEST_F(Identity, NewCommIdWithALiveQpIsStaleAndEndsTheOldConnection) {  // Field case 1.03
  reach(State::kEstablished, false);
  auto m = req();
  m.local_comm_id = kPeerCommId + 1;
  deliver(m);
  const auto list = packets();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(header_of(list[0]).attribute, wire::Attribute::kRej);
  const auto r = *wire::Rej::parse(Bytes(list[0].mad).subspan(wire::MadHeader::kSize));
  EXPECT_EQ(r.reason, wire::RejReason::kStaleConnection);
  EXPECT_EQ(r.local_comm_id, 0u);
  EXPECT_EQ(r.remote_comm_id, kPeerCommId + 1);
  EXPECT_EQ(header_of(list[1]).attribute, wire::Attribute::kDreq);
  EXPECT_EQ(state(), State::kDreqSent);
  deliver(answer<wire::Drep>());
  EXPECT_EQ(event().type, EventType::kDisconnected);
  // The peer tries again, and now it is welcome.
  deliver(m);
  EXPECT_EQ(event().type, EventType::kConnectRequest);
}

TEST_F(Identity, StaleRequestLeavesAHalfOpenConnectionAlone) {
  reach(State::kRepSent, false);
  auto m = req();
  m.local_comm_id = kPeerCommId + 1;
  deliver(m);
  EXPECT_EQ(sent<wire::Rej>().reason, wire::RejReason::kStaleConnection);
  EXPECT_EQ(state(), State::kRepSent);
}

TEST_F(Identity, ReplyWithALiveQpIsRejectedAsStaleAndTheRequestGoesOn) {
  reach(State::kEstablished, false);
  const ConnectionId old = id;
  connect();
  auto m = rep();
  m.local_comm_id = kPeerCommId + 1;
  const TimeNs deadline = engine.next_deadline();
  deliver(m);
  const auto list = packets();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(header_of(list[1]).attribute, wire::Attribute::kDreq);
  const auto r = *wire::Rej::parse(Bytes(list[0].mad).subspan(wire::MadHeader::kSize));
  EXPECT_EQ(r.reason, wire::RejReason::kStaleConnection);
  EXPECT_EQ(r.message, wire::MessageKind::kRep);
  EXPECT_EQ(r.local_comm_id, own_comm_id);
  EXPECT_EQ(r.remote_comm_id, kPeerCommId + 1);
  EXPECT_EQ(*engine.state(old), State::kDreqSent);
  EXPECT_EQ(state(), State::kReqSent);
  EXPECT_EQ(engine.next_deadline() <= deadline, true);
}

TEST_F(Identity, ReplyWithACommIdThatAnotherConnectionHasIsDropped) {
  reach(State::kEstablished, false);
  connect();
  auto m = rep();
  m.local_qpn = kPeerQpn + 1;
  deliver(m);
  expect_silence();
  EXPECT_EQ(state(), State::kReqSent);
}

TEST_F(Identity, ClonedMachinesWithOneGuidAreTwoPeers) {  // Field case 1.24
  reach(State::kEstablished, false);
  const Path clone{.local = kOwnAddress, .remote = kStranger};
  auto m = req();
  set_addresses(m, {.ip_version = 4, .source_port = 1, .source = kStranger, .destination = kOwnAddress});
  deliver(m, clone);
  const auto e = event();
  EXPECT_EQ(e.type, EventType::kConnectRequest);
  EXPECT_NE(e.connection, id);
  EXPECT_TRUE(packets().empty());
  EXPECT_EQ(state(), State::kEstablished);
}

TEST_F(Identity, SameLinkLocalAddressOnTwoInterfacesIsTwoPeers) {  // Field case 4.06
  ASSERT_TRUE(engine.listen({.service_id = kServiceId, .address_family_only = false}));
  wire::IpAddress peer, own;
  peer.bytes = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  own.bytes = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
  auto m = req();
  m.primary.local_gid = peer;
  m.primary.remote_gid = own;
  set_addresses(m, {.ip_version = 6, .source_port = 1, .source = peer, .destination = own});
  deliver(m, {.local = own, .remote = peer, .ifindex = 2});
  deliver(m, {.local = own, .remote = peer, .ifindex = 3});
  EXPECT_EQ(events().size(), 2u);
  deliver(m, {.local = own, .remote = peer, .ifindex = 3});
  EXPECT_TRUE(events().empty());
}

TEST_F(Identity, MessagesFromAnotherAddressDoNotTouchAConnection) {  // Field case 6.05
  const Path stranger{.local = kOwnAddress, .remote = kStranger};
  connect();
  deliver(rep(), stranger);
  deliver(rej(wire::MessageKind::kReq), stranger);
  deliver(mra(wire::MessageKind::kReq, 24), stranger);
  expect_silence();
  EXPECT_EQ(state(), State::kReqSent);
  EXPECT_EQ(engine.counters().wrong_source, 3u);
  deliver(rep());
  drain();
  ASSERT_TRUE(engine.establish(now, id));
  drain();
  deliver(dreq(), stranger);
  deliver(rej(wire::MessageKind::kOther), stranger);
  expect_silence();
  EXPECT_EQ(state(), State::kEstablished);
  EXPECT_EQ(engine.counters().wrong_source, 5u);
}

TEST_F(Identity, BothCommIdsHaveToFit) {
  reach(State::kRepSent, false);
  auto m = answer<wire::Rtu>();
  m.local_comm_id = kPeerCommId + 1;
  deliver(m);
  m = answer<wire::Rtu>();
  m.remote_comm_id ^= 1;
  deliver(m);
  expect_silence();
  EXPECT_EQ(engine.counters().unknown_connection, 2u);
  EXPECT_EQ(state(), State::kRepSent);
}

TEST_F(Identity, MessagesForTheOtherRoleAreDropped) {
  connect();
  auto rtu = answer<wire::Rtu>();
  rtu.local_comm_id = 0;
  deliver(rtu);
  auto wait = mra(wire::MessageKind::kRep, 20);
  wait.local_comm_id = 0;
  deliver(wait);
  EXPECT_EQ(engine.counters().wrong_role, 2u);
  EXPECT_EQ(state(), State::kReqSent);
}

TEST_F(Identity, UnknownRtuRejMraAndDrepMeetSilence) {
  own_comm_id = 0x12345678;
  deliver(answer<wire::Rtu>());
  deliver(rej(wire::MessageKind::kOther));
  deliver(mra(wire::MessageKind::kReq, 20));
  deliver(answer<wire::Drep>());
  expect_silence();
  EXPECT_EQ(engine.counters().unknown_connection, 4u);
}

class UnknownRep : public Identity {
 protected:
  void expect_rejection(std::uint32_t remote_comm_id = kPeerCommId) {
    wire::MadHeader header;
    const auto m = sent<wire::Rej>(&header);
    EXPECT_EQ(m.reason, wire::RejReason::kInvalidCommId);
    EXPECT_EQ(m.message, wire::MessageKind::kRep);
    EXPECT_EQ(m.local_comm_id, own_comm_id);
    EXPECT_EQ(m.remote_comm_id, remote_comm_id);
    EXPECT_EQ(header.transaction_id, kPeerTid);
    EXPECT_TRUE(events().empty());
  }
};

TEST_F(UnknownRep, OfAForeignPeerForNobodyIsRejected) {
  own_comm_id = 0x12345678;
  deliver(rep());
  expect_rejection();
  EXPECT_EQ(engine.counters().rejected_unknown_rep, 1u);
}

TEST_F(UnknownRep, OfAUcmForNobodyMeetsSilence) {
  own_comm_id = 0x12345678;
  deliver_as_ucm(rep());
  expect_silence();
}

// Linux took a repeated REQ for a new one.
TEST_F(UnknownRep, ForAConnectionThatHasHadAnotherOneIsRejected) {
  for (const State target : {State::kRepReceived, State::kEstablished, State::kTimewait, State::kIdle}) {
    SCOPED_TRACE(name(target));
    engine = Engine({.random_key = {1, 2}});
    reach(target, true);
    auto m = rep();
    m.local_comm_id = kPeerCommId + 1;
    deliver(m);
    expect_rejection(kPeerCommId + 1);
    EXPECT_EQ(state(), target);
    // From elsewhere: nobody learns which IDs live.
    deliver(m, {.local = kOwnAddress, .remote = kStranger});
    expect_silence();
  }
}

TEST_F(Identity, BothEndsOfALocalConnectionLiveInOneEngine) {
  constexpr auto kLoopback = wire::IpAddress::ipv4(0x7f000001);
  const Path loop{.local = kLoopback, .remote = kLoopback};
  const auto pump = [&] {
    for (auto list = packets(); !list.empty(); list = packets()) {
      for (const Packet& packet : list) engine.on_packet(now, loop, packet.mad);
    }
  };
  listen();
  auto params = connect_params();
  params.path = loop;
  const auto client = engine.connect(now, params);
  ASSERT_TRUE(client);
  pump();
  const ConnectionId server = event().connection;
  auto accepting = accept_params();
  accepting.params.qpn = kOwnQpn + 1;
  ASSERT_TRUE(engine.accept(now, server, accepting));
  pump();
  EXPECT_EQ(event().type, EventType::kConnectResponse);
  ASSERT_TRUE(engine.establish(now, *client));
  pump();
  EXPECT_EQ(event().connection, server);
  EXPECT_EQ(engine.qp_parameters(*client)->sq_psn, engine.qp_parameters(server)->rq_psn);
  EXPECT_EQ(engine.qp_parameters(server)->sq_psn, engine.qp_parameters(*client)->rq_psn);
  engine.disconnect(now, *client);
  pump();
  EXPECT_EQ(event().connection, server);
  engine.disconnect(now, server);
  pump();
  EXPECT_EQ(event().connection, *client);
  engine.destroy(now, *client);
  engine.destroy(now, server);
  engine.close_listener(now, listener);
  EXPECT_EQ(engine.usage(), Engine::Usage{});
}

}  // namespace
}  // namespace ucm::cm
