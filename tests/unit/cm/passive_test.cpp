// The side that listens.
#include <cerrno>

#include "harness.h"

namespace ucm::cm {
namespace {

class Passive : public CmTest {};

TEST_F(Passive, RequestIsReportedWithThePeersNumbersAddressesAndWholePrivateData) {
  listen();
  auto m = req();
  m.vendor_id = 0x02c9;
  m.private_data[36] = 0xaa;
  m.private_data[91] = 0xbb;
  deliver(m, kFromPeer, 0x30000002);
  const auto e = event();
  EXPECT_EQ(e.type, EventType::kConnectRequest);
  EXPECT_EQ(e.listener, listener);
  EXPECT_EQ(e.peer.qpn, kPeerQpn);
  EXPECT_EQ(e.peer.responder_resources, 7);
  EXPECT_EQ(e.peer.initiator_depth, 9);
  EXPECT_EQ(e.peer.retry_count, 6);
  EXPECT_EQ(e.peer.rnr_retry_count, 2);
  EXPECT_EQ(e.peer.vendor_id, 0x02c9u);
  EXPECT_EQ(e.peer.ece_options, 0x30000002u);
  EXPECT_EQ(e.private_data.size(), 56u);
  EXPECT_EQ(e.private_data[0], 0xaa);
  EXPECT_EQ(e.private_data[55], 0xbb);
  EXPECT_EQ(e.addresses.source_port, 40001);
  EXPECT_EQ(e.addresses.source, kPeerAddress);
  EXPECT_EQ(e.addresses.destination, kOwnAddress);
  EXPECT_EQ(e.path.remote, kPeerAddress);
  EXPECT_EQ(e.path.traffic_class, 0x20);
  EXPECT_TRUE(packets().empty());
}

TEST_F(Passive, ReplyCarriesTheAcceptorsNumbers) {  // Field cases 5.01, 5.11
  request();
  auto params = accept_params();
  const std::array<std::uint8_t, 196> data{0xaa};
  params.private_data = data;
  params.params.vendor_id = 0x02c9;
  params.params.ece_options = 7;
  params.params.rnr_retry_count = 99;
  ASSERT_TRUE(engine.accept(now, id, params));
  wire::MadHeader header;
  const auto m = sent<wire::Rep>(&header);
  EXPECT_EQ(header.transaction_id, kPeerTid);
  EXPECT_EQ(header.attribute_modifier, 7u);
  EXPECT_EQ(m.remote_comm_id, kPeerCommId);
  EXPECT_EQ(m.local_qpn, kOwnQpn);
  EXPECT_EQ(m.local_ca_guid, kOwnGuid);
  EXPECT_EQ(m.responder_resources, 2);
  EXPECT_EQ(m.initiator_depth, 4);
  EXPECT_EQ(m.target_ack_delay, 15);
  EXPECT_EQ(m.rnr_retry_count, 7);
  EXPECT_EQ(m.failover_accepted, 0);
  EXPECT_EQ(m.vendor_id, 0x02c9u);
  EXPECT_EQ(m.private_data[0], 0xaa);
  EXPECT_EQ(m.starting_psn, engine.qp_parameters(id)->rq_psn);
}

TEST_F(Passive, QpParametersAreTheRequestsBeforeAcceptAndTheAcceptorsAfter) {  // Field cases 5.04, 5.06
  request();
  auto p = *engine.qp_parameters(id);
  EXPECT_TRUE(p.dest_known);
  EXPECT_EQ(p.dest_qpn, kPeerQpn);
  EXPECT_EQ(p.sq_psn, kPeerPsn);
  EXPECT_EQ(p.responder_resources, 9);
  EXPECT_EQ(p.initiator_depth, 7);
  EXPECT_EQ(p.retry_count, 6);
  EXPECT_EQ(p.rnr_retry_count, 2);
  EXPECT_EQ(p.ack_timeout, 19);
  EXPECT_EQ(p.path_mtu, 3);
  EXPECT_EQ(p.flow_label, 0x77b44u);
  EXPECT_EQ(p.traffic_class, 0x20);
  accept();
  p = *engine.qp_parameters(id);
  EXPECT_EQ(p.local_qpn, kOwnQpn);
  EXPECT_EQ(p.responder_resources, 2);
  EXPECT_EQ(p.initiator_depth, 4);
  EXPECT_EQ(p.retry_count, 6);
}

TEST_F(Passive, AckTimeoutZeroCountsAsOne) {
  listen();
  auto m = req();
  m.primary.local_ack_timeout = 0;
  deliver(m);
  EXPECT_EQ(engine.qp_parameters(event().connection)->ack_timeout, 1);
}

TEST_F(Passive, RtuEstablishesOnce) {
  reach(State::kRepSent, false);
  deliver(answer<wire::Rtu>());
  const auto e = event();
  EXPECT_EQ(e.type, EventType::kEstablished);
  EXPECT_EQ(e.user, kUser);
  EXPECT_EQ(engine.next_deadline(), kNever);
  deliver(answer<wire::Rtu>());
  expect_silence();
}

TEST_F(Passive, DataBeforeRtuEstablishesAndTheRtuIsThenIgnored) {
  reach(State::kRepSent, false);
  ASSERT_TRUE(engine.notify_established(now, id));
  EXPECT_EQ(event().type, EventType::kEstablished);
  const auto again = engine.notify_established(now, id);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, EISCONN);
  deliver(answer<wire::Rtu>());
  expect_silence();
}

TEST_F(Passive, ReplyIsRepeatedAndGivenUpWhenTheRequestersBudgetEnds) {
  listen();
  auto m = req();
  m.local_cm_response_timeout = 18;
  m.max_cm_retries = 3;
  deliver(m);
  id = event().connection;
  ASSERT_TRUE(engine.accept(now, id, accept_params()));
  const auto first = packets();
  const TimeNs start = now;
  const TimeNs give_up_at = start + 4 * 1024 * kMillisecond;
  while (engine.next_deadline() < give_up_at) {
    now = engine.next_deadline();
    engine.on_deadline(now);
    const auto again = packets();
    ASSERT_EQ(again.size(), 1u);
    EXPECT_EQ(again[0].mad, first[0].mad);
  }
  now = engine.next_deadline();
  EXPECT_EQ(now, give_up_at);
  engine.on_deadline(now);
  const auto e = event();
  EXPECT_EQ(e.type, EventType::kUnreachable);
  EXPECT_EQ(e.status, -ETIMEDOUT);
  EXPECT_EQ(state(), State::kIdle);
}

TEST_F(Passive, MraStretchesTheWaitForRtu) {
  reach(State::kRepSent, false);
  const TimeNs before = time_of_giving_up();
  deliver(mra(wire::MessageKind::kRep, 20));
  EXPECT_EQ(time_of_giving_up(), now + 16 * (4096 + 2048) * kMillisecond);  // service timeout 20, ACK timeout 19
  EXPECT_GT(time_of_giving_up(), before);
  // Only a repeated REP brings a lost RTU back.
  EXPECT_LE(engine.next_deadline(), now + kSecond);
  deliver(mra(wire::MessageKind::kRep, 24));
  EXPECT_EQ(time_of_giving_up(), now + 16 * (4096 + 2048) * kMillisecond);
  deliver(answer<wire::Rtu>());
  EXPECT_EQ(event().type, EventType::kEstablished);
}

TEST_F(Passive, DuplicateRequestWhileAcceptIsPendingGetsMraAndNoSecondEvent) {  // Field case 1.02
  request();
  for (int i = 0; i < 3; ++i) {
    deliver(req());
    wire::MadHeader header;
    const auto m = sent<wire::Mra>(&header);
    EXPECT_EQ(m.message, wire::MessageKind::kReq);
    EXPECT_EQ(m.service_timeout, 24);
    EXPECT_EQ(m.remote_comm_id, kPeerCommId);
    EXPECT_EQ(header.transaction_id, kPeerTid);
    EXPECT_TRUE(events().empty());
  }
  accept();
}

TEST_F(Passive, DuplicateRequestAfterAcceptGetsTheSameReplyAndCostsNoRetry) {  // Field case 1.03
  request();
  ASSERT_TRUE(engine.accept(now, id, accept_params()));
  const auto first = packets();
  const TimeNs deadline = engine.next_deadline();
  now += kSecond;
  for (int i = 0; i < 20; ++i) {
    deliver(req());
    const auto again = packets();
    ASSERT_EQ(again.size(), 1u);
    EXPECT_EQ(again[0].mad, first[0].mad);
  }
  EXPECT_EQ(engine.next_deadline(), deadline);
  EXPECT_TRUE(events().empty());
  EXPECT_EQ(state(), State::kRepSent);
}

TEST_F(Passive, DuplicateRequestWhenEstablishedIsIgnored) {
  reach(State::kEstablished, false);
  deliver(req());
  expect_silence();
  EXPECT_EQ(state(), State::kEstablished);
}

TEST_F(Passive, RequestAfterTheEndIsANewOne) {
  request();
  ASSERT_TRUE(engine.reject(now, id, {}));
  drain();
  deliver(req());
  const auto e = event();
  EXPECT_EQ(e.type, EventType::kConnectRequest);
  EXPECT_NE(e.connection, id);
}

TEST_F(Passive, RejectSendsReasonAndPrivateData) {  // Field case 5.11
  request();
  const std::array<std::uint8_t, 148> data{0xaa};
  ASSERT_TRUE(engine.reject(now, id, {.reason = wire::RejReason::kVendorOptionNotSupported, .private_data = data}));
  const auto m = sent<wire::Rej>();
  EXPECT_EQ(m.reason, wire::RejReason::kVendorOptionNotSupported);
  EXPECT_EQ(m.message, wire::MessageKind::kReq);
  EXPECT_EQ(m.remote_comm_id, kPeerCommId);
  EXPECT_NE(m.local_comm_id, 0u);
  EXPECT_EQ(m.private_data[0], 0xaa);
  EXPECT_FALSE(engine.accept(now, id, accept_params()));
}

TEST_F(Passive, RejectWithTooMuchPrivateDataIsRefusedAndTheRequestStillStands) {  // Field case 5.01
  request();
  const std::array<std::uint8_t, 149> data{};
  const auto result = engine.reject(now, id, {.private_data = data});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, EINVAL);
  expect_silence();
  accept();
}

TEST_F(Passive, AcceptWithTooMuchPrivateDataFailsAndRejects) {  // Field case 5.01
  request();
  const std::array<std::uint8_t, 197> data{};
  auto params = accept_params();
  params.private_data = data;
  const auto result = engine.accept(now, id, params);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, EINVAL);
  EXPECT_EQ(sent<wire::Rej>().reason, wire::RejReason::kConsumerDefined);
}

TEST_F(Passive, WithdrawnRequestIsNotReportedAndAcceptFails) {  // Field case 1.07
  request();
  deliver(withdrawal(kPeerCommId));
  expect_silence();
  EXPECT_EQ(engine.counters().withdrawn, 1u);
  const auto result = engine.accept(now, id, accept_params());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, EINVAL);
  EXPECT_TRUE(packets().empty());
}

// Field case 1.04
TEST_F(Passive, RequestWithdrawnBeforeItsEventIsReadIsReportedAndAcceptFailsOrIsNeverHeardOf) {
  listen(kDeliveredMax + 1);
  for (std::uint32_t i = 1; i <= kDeliveredMax + 1; ++i) {
    auto m = req();
    m.local_comm_id = i;
    m.local_qpn = 1000 + i;
    deliver(m);
    deliver(withdrawal(i));
  }
  const auto reported = events();
  EXPECT_EQ(reported.size(), kDeliveredMax);  // the last one still waited
  for (const auto& e : reported) {
    EXPECT_EQ(e.type, EventType::kConnectRequest);
    EXPECT_FALSE(engine.accept(now, e.connection, accept_params()));
    engine.destroy(now, e.connection);
  }
  expect_silence();
  EXPECT_EQ(engine.usage().connections, 0u);
}

TEST_F(Passive, WithdrawalAfterAcceptIsReported) {  // Field case 1.06
  reach(State::kRepSent, false);
  deliver(withdrawal(kPeerCommId));
  const auto e = event();
  EXPECT_EQ(e.type, EventType::kRejected);
  EXPECT_EQ(e.status, 4);
}

TEST_F(Passive, WithdrawalOfSomeoneElsesRequestIsIgnored) {
  request();
  deliver(withdrawal(kPeerCommId, kPeerGuid + 1));
  EXPECT_EQ(state(), State::kReqReceived);
}

TEST_F(Passive, DestroyBeforeAcceptRejectsTheRequestAfterAcceptTheReply) {
  request();
  engine.destroy(now, id);
  auto m = sent<wire::Rej>();
  EXPECT_EQ(m.message, wire::MessageKind::kReq);
  EXPECT_EQ(m.reason, wire::RejReason::kConsumerDefined);
  reach(State::kRepSent, false);
  engine.destroy(now, id);
  m = sent<wire::Rej>();
  EXPECT_EQ(m.message, wire::MessageKind::kOther);
  EXPECT_EQ(m.reason, wire::RejReason::kConsumerDefined);
}

TEST_F(Passive, DisconnectRequestRightAfterRtuIsReportedAfterEstablished) {  // Field case 1.08
  request();
  accept();
  deliver(answer<wire::Rtu>());
  deliver(dreq());
  const auto list = events();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].type, EventType::kEstablished);
  EXPECT_EQ(list[1].type, EventType::kDisconnected);
}

TEST_F(Passive, DisconnectRequestBeforeRtuIsReportedWithoutEstablishedFirst) {  // Field case 1.06
  reach(State::kRepSent, false);
  deliver(dreq());
  EXPECT_EQ(event().type, EventType::kDisconnected);
  EXPECT_EQ(state(), State::kDreqReceived);
  EXPECT_EQ(engine.next_deadline(), kNever);
}

// ---- Requests nobody takes.

struct Refusal {
  const char* what;
  void (*change)(wire::Req&);
  wire::RejReason reason;
  std::uint8_t ari_length;
};

class PassiveRefusal : public CmTest, public testing::WithParamInterface<Refusal> {};

void addresses(wire::Req& m, const wire::IpCmHeader& header) {
  header.emit(MutableBytes(m.private_data).first(wire::IpCmHeader::kSize));
}

constexpr wire::IpCmHeader kGoodAddresses{
    .ip_version = 4, .source_port = 1, .source = kPeerAddress, .destination = kOwnAddress};

const Refusal kRefusals[] = {
    {"NoListener", [](wire::Req& m) { m.service_id = kServiceId + 1; }, wire::RejReason::kInvalidServiceId, 0},
    {"OtherPortSpace", [](wire::Req& m) { m.service_id = wire::ip_service_id(wire::PortSpace::kUdp, kPort); },
     wire::RejReason::kInvalidServiceId, 0},
    {"VersionNotZero", [](wire::Req& m) { m.private_data[0] = 0x10; }, wire::RejReason::kConsumerDefined, 0},
    {"UnknownIpVersion", [](wire::Req& m) { m.private_data[1] = 0xf0; }, wire::RejReason::kConsumerDefined, 0},
    {"OtherFamily",
     [](wire::Req& m) {
       auto header = kGoodAddresses;
       header.ip_version = 6;
       header.source.bytes = header.destination.bytes = {0xfd, 1};
       addresses(m, header);
     },
     wire::RejReason::kConsumerDefined, 0},
    {"Unreliable", [](wire::Req& m) { m.transport_service = wire::TransportService::kUc; },
     wire::RejReason::kConsumerDefined, 0},
    {"ReliableDatagram", [](wire::Req& m) { m.transport_service = wire::TransportService::kRd; },
     wire::RejReason::kConsumerDefined, 0},
    {"ExtendedTransport", [](wire::Req& m) { m.transport_service = wire::TransportService::kExtended; },
     wire::RejReason::kConsumerDefined, 0},
    {"MulticastDestination",
     [](wire::Req& m) {
       auto header = kGoodAddresses;
       header.destination = wire::IpAddress::ipv4(0xe0000001);
       addresses(m, header);
     },
     wire::RejReason::kConsumerDefined, 0},
    {"LoopbackDestinationFromOutside",
     [](wire::Req& m) {
       auto header = kGoodAddresses;
       header.destination = wire::IpAddress::ipv4(0x7f000001);
       addresses(m, header);
     },
     wire::RejReason::kConsumerDefined, 0},
    {"UnspecifiedSource",
     [](wire::Req& m) {
       auto header = kGoodAddresses;
       header.source = wire::IpAddress::ipv4_any();
       addresses(m, header);
     },
     wire::RejReason::kConsumerDefined, 0},
    {"AnotherHostsGid", [](wire::Req& m) { m.primary.remote_gid = kStranger; }, wire::RejReason::kInvalidGid, 16},
    {"OtherPartition", [](wire::Req& m) { m.pkey = 0x9234; }, wire::RejReason::kInvalidGid, 16},
    {"AlternatePath", [](wire::Req& m) { m.alternate.local_lid = 1; }, wire::RejReason::kInvalidAlternateGid, 16},
    {"NoMtu", [](wire::Req& m) { m.path_mtu = 0; }, wire::RejReason::kInvalidMtu, 0},
    {"MtuBeyondTheLargest", [](wire::Req& m) { m.path_mtu = 6; }, wire::RejReason::kInvalidMtu, 0},
};

TEST_P(PassiveRefusal, IsAnsweredWithItsReasonAndLeavesNothing) {  // Field case 6.07
  listen();
  auto m = req();
  GetParam().change(m);
  deliver(m);
  wire::MadHeader header;
  const auto r = sent<wire::Rej>(&header);
  EXPECT_EQ(r.reason, GetParam().reason);
  EXPECT_EQ(r.message, wire::MessageKind::kReq);
  EXPECT_EQ(r.local_comm_id, 0u);
  EXPECT_EQ(r.remote_comm_id, kPeerCommId);
  EXPECT_EQ(r.ari_length, GetParam().ari_length);
  if (r.ari_length == 16) {
    EXPECT_EQ(load_be64(&r.ari[8]), load_be64(&kOwnAddress.bytes[8]));
  }
  EXPECT_EQ(header.transaction_id, kPeerTid);
  EXPECT_TRUE(events().empty());
  EXPECT_EQ(engine.usage().connections, 0u);
}

INSTANTIATE_TEST_SUITE_P(Every, PassiveRefusal, testing::ValuesIn(kRefusals),
                         [](const auto& refusal) { return std::string(refusal.param.what); });

TEST_F(Passive, LimitedMemberPkeyAndZeroLidsAreAccepted) {
  listen();
  auto m = req();
  m.pkey = 0x7FFF;
  m.primary.local_lid = m.primary.remote_lid = 0;
  m.primary.hop_limit = 0;
  deliver(m);
  const auto e = event();
  EXPECT_EQ(e.type, EventType::kConnectRequest);
  EXPECT_EQ(e.path.hop_limit, 64);
}

TEST_F(Passive, AnswersDoNotTakeTheHopLimitOfTheRequest) {
  listen();
  auto m = req();
  m.primary.hop_limit = 2;
  deliver(m);
  EXPECT_EQ(event().path.hop_limit, 64);  // Linux: same
}

TEST_F(Passive, CommIdZeroIsDropped) {
  listen();
  auto m = req();
  m.local_comm_id = 0;
  deliver(m);
  expect_silence();
  EXPECT_EQ(engine.counters().bad_message, 1u);
}

TEST_F(Passive, UnreliableListenerTakesUnreliableRequestsOnly) {
  ASSERT_TRUE(engine.listen(
      {.service_id = kServiceId, .address = wire::IpAddress::ipv4_any(), .transport = wire::TransportService::kUc}));
  deliver(req());
  EXPECT_EQ(sent<wire::Rej>().reason, wire::RejReason::kConsumerDefined);
  auto m = req();
  m.transport_service = wire::TransportService::kUc;
  deliver(m);
  EXPECT_EQ(event().type, EventType::kConnectRequest);
}

// The receiving QP's number is where that of an end-to-end context would be, and it has nothing to ask for.  // Linux:
// same
TEST_F(Passive, AnExtendedListenerTakesRequestsOfXrcOnlyAndAnswersWithTheNumberOfItsReceivingQp) {
  ASSERT_TRUE(engine.listen({.service_id = kServiceId,
                             .address = wire::IpAddress::ipv4_any(),
                             .transport = wire::TransportService::kExtended}));
  deliver(req());
  EXPECT_EQ(sent<wire::Rej>().reason, wire::RejReason::kConsumerDefined);
  auto m = req();
  m.transport_service = wire::TransportService::kExtended;
  m.extended_transport_type = 2;
  deliver(m);
  EXPECT_EQ(sent<wire::Rej>().reason, wire::RejReason::kConsumerDefined);
  m.extended_transport_type = wire::kExtendedXrc;
  deliver(m);
  const Event request = event();
  EXPECT_EQ(request.type, EventType::kConnectRequest);
  auto accepted = accept_params();
  accepted.params.srq = false;
  ASSERT_TRUE(engine.accept(now, request.connection, accepted));
  const auto answer = sent<wire::Rep>();
  EXPECT_EQ(answer.local_eecn, accepted.params.qpn);
  EXPECT_EQ(answer.local_qpn, 0u);
  EXPECT_TRUE(answer.srq);
  EXPECT_EQ(answer.responder_resources, accepted.params.responder_resources);
  EXPECT_EQ(answer.initiator_depth, 0);
}

// Field case 1.05
TEST_F(Passive, RequestsRepeatedBetweenAcceptRejectAndDestroyMakeOneEventEachLife) {
  listen();
  const auto repeated = [&](std::vector<wire::Attribute> answers) {
    for (int i = 0; i < 2; ++i) {
      deliver(req());
      std::vector<wire::Attribute> sent;
      for (const auto& packet : packets()) sent.push_back(header_of(packet).attribute);
      EXPECT_EQ(sent, answers);
      EXPECT_TRUE(events().empty());
    }
  };
  enum class End : std::uint8_t { kReject, kDestroy, kAccept };
  for (const End end : {End::kReject, End::kDestroy, End::kAccept}) {
    deliver(req());
    deliver(req());  // before the event is read
    packets();
    const auto e = event();
    ASSERT_EQ(e.type, EventType::kConnectRequest);
    id = e.connection;
    repeated({wire::Attribute::kMra});
    engine.request_taken(now, id);
    repeated({wire::Attribute::kMra});
    if (end == End::kReject) {
      ASSERT_TRUE(engine.reject(now, id, {}));
      EXPECT_FALSE(engine.accept(now, id, accept_params()));
      EXPECT_EQ(state(), State::kIdle);
    }
    if (end == End::kAccept) {
      accept();
      repeated({wire::Attribute::kRep});
      EXPECT_FALSE(engine.accept(now, id, accept_params()));
      repeated({wire::Attribute::kRep});
      deliver(answer<wire::Rtu>());
      EXPECT_EQ(event().type, EventType::kEstablished);
      repeated({});
      engine.disconnect(now, id);
      sent<wire::Dreq>();
      repeated({});
      deliver(answer<wire::Drep>());
      EXPECT_EQ(event().type, EventType::kDisconnected);
    }
    engine.destroy(now, id);
    packets();
    EXPECT_EQ(engine.usage(), Engine::Usage{.listeners = 1});
  }
}

}  // namespace
}  // namespace ucm::cm
