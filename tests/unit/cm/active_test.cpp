// The side that connects.
#include <algorithm>
#include <cerrno>
#include <set>
#include <string_view>

#include "harness.h"

namespace ucm::cm {
namespace {

class Active : public CmTest {};

std::vector<std::uint8_t> bytes_from_hex(std::string_view hex) {
  std::vector<std::uint8_t> bytes;
  std::uint8_t high = 0;
  bool half = false;
  for (const char c : hex) {
    if (c == ' ') continue;
    const auto digit = static_cast<std::uint8_t>(c <= '9' ? c - '0' : c - 'a' + 10);
    if (half) bytes.push_back(static_cast<std::uint8_t>(high << 4 | digit));
    high = digit;
    half = !half;
  }
  return bytes;
}

std::string zeros(int bytes) { return std::string(static_cast<std::size_t>(2 * bytes), '0'); }

TEST_F(Active, RequestIsByteForByteThatOfALinuxKernel) {  // Field case 2.18
  // A REQ of Linux 6.1, but for its random numbers: transaction ID, comm ID, starting PSN.
  const auto linux_req = bytes_from_hex(
      "0107020300000000 00000002785e0ec0 0010000000000000"
      "c00e5e78000000000000000001061c06505400fffe7700020000000000000000000011010000000100 0000a0d6bd57a7ffff37f0"
      "ffffffff 00000000000000000000ffff0a4d0002 00000000000000000000ffff0a4d0001 77b44000 00400098" +
      zeros(44) + "0040c102" + zeros(12) + "0a4d0002" + zeros(12) + "0a4d0001" + zeros(56));
  ASSERT_EQ(linux_req.size(), wire::kMadSize);
  auto params = connect_params();
  params.packet_lifetime = 18;  // up to Linux 6.1
  params.flow_label = 0x77b44;
  params.params = {.qpn = 0x11, .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
  ASSERT_TRUE(engine.connect(now, params));
  const auto list = packets();
  ASSERT_EQ(list.size(), 1u);
  const auto& own = list[0].mad;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const bool random = (i >= 8 && i < 16) || (i >= 24 && i < 28) || (i >= 24 + 44 && i < 24 + 47);
    const bool mark = i == 18 || i == 19;
    if (mark) {
      EXPECT_EQ(own[i], "UC"[i - 18]);  // peers.h
    } else if (!random) {
      EXPECT_EQ(own[i], linux_req[i]) << "byte " << i;
    }
  }
  // The transaction ID is a small number and the comm ID, the other way round.
  const std::vector<std::uint8_t> tid(own.begin() + 8, own.begin() + 16);
  EXPECT_EQ(tid, (std::vector<std::uint8_t>{0, 0, 0, 2, own[27], own[26], own[25], own[24]}));
}

// What concerns receiving is the other side's.  // Linux: same
TEST_F(Active, ARequestOfXrcSaysSoAndTheAnswersQpIsThatOfItsReceivingSide) {
  auto params = connect_params();
  params.transport = wire::TransportService::kExtended;
  params.params.srq = true;
  id = *engine.connect(now, params);
  const auto m = sent<wire::Req>();
  own_comm_id = m.local_comm_id;
  EXPECT_EQ(m.transport_service, wire::TransportService::kExtended);
  EXPECT_EQ(m.extended_transport_type, 1);
  EXPECT_EQ(m.local_qpn, params.params.qpn);
  EXPECT_EQ(m.initiator_depth, params.params.initiator_depth);
  EXPECT_EQ(m.responder_resources, 0);
  EXPECT_EQ(m.retry_count, 0);
  EXPECT_EQ(m.rnr_retry_count, 0);
  EXPECT_FALSE(m.srq);
  auto answer = rep();
  answer.local_qpn = 0;
  answer.local_eecn = kPeerQpn;
  deliver(answer);
  EXPECT_EQ(event().peer.qpn, kPeerQpn);
  const auto qp = *engine.qp_parameters(id);
  EXPECT_EQ(qp.dest_qpn, kPeerQpn);
  EXPECT_EQ(qp.retry_count, params.params.retry_count) << "for the own QP it counts";
}

TEST_F(Active, RequestOverIpv6CarriesIpv6Addresses) {
  auto params = connect_params();
  params.path.local.bytes = {0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
  params.path.remote.bytes = {0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  ASSERT_TRUE(engine.connect(now, params));
  const auto m = sent<wire::Req>();
  const auto addresses = *wire::IpCmHeader::parse(m.private_data);
  EXPECT_EQ(addresses.ip_version, 6);
  EXPECT_EQ(addresses.source, params.path.local);
  EXPECT_EQ(addresses.destination, params.path.remote);
  EXPECT_EQ(m.primary.remote_gid, params.path.remote);
}

TEST_F(Active, PrivateDataFollowsTheHeaderAndIsPaddedWithZeros) {
  const std::array<std::uint8_t, 3> data{1, 2, 3};
  auto params = connect_params();
  params.private_data = data;
  ASSERT_TRUE(engine.connect(now, params));
  const auto m = sent<wire::Req>();
  EXPECT_EQ(m.private_data[35 + 1], 1);
  EXPECT_EQ(m.private_data[35 + 3], 3);
  for (std::size_t i = 39; i < 92; ++i) EXPECT_EQ(m.private_data[i], 0);
}

TEST_F(Active, RetryCountsAboveSevenAreSentAsSeven) {  // Field case 5.07
  for (const int asked : {8, 15, 255}) {
    const auto count = static_cast<std::uint8_t>(asked);
    auto params = connect_params();
    params.params.retry_count = params.params.rnr_retry_count = count;
    ASSERT_TRUE(engine.connect(now, params));
    const auto m = sent<wire::Req>();
    EXPECT_EQ(m.retry_count, 7);
    EXPECT_EQ(m.rnr_retry_count, 7);
    EXPECT_EQ(m.local_cm_response_timeout, 20);
    EXPECT_EQ(m.path_mtu, 3);
  }
}

TEST_F(Active, VendorOptionsTravelInTheRequestAndComeBackWithTheReply) {  // Field case 5.11
  auto params = connect_params();
  params.params.vendor_id = 0x02c9;
  params.params.ece_options = 0x30000002;
  const auto connection = engine.connect(now, params);
  ASSERT_TRUE(connection);
  wire::MadHeader header;
  const auto m = sent<wire::Req>(&header);
  EXPECT_EQ(m.vendor_id, 0x02c9u);
  EXPECT_EQ(header.attribute_modifier, 0x30000002u);
  own_comm_id = m.local_comm_id;
  auto reply = rep();
  reply.vendor_id = 0x15b3;
  deliver(reply, kFromPeer, 0x10000001);
  const auto e = event();
  EXPECT_EQ(e.peer.vendor_id, 0x15b3u);
  EXPECT_EQ(e.peer.ece_options, 0x10000001u);
}

TEST_F(Active, ImpossibleParametersAreRefusedAndNothingIsSent) {  // Field case 5.01
  const std::array<std::uint8_t, 57> too_much{};
  const auto refused = [&](auto change) {
    auto params = connect_params();
    change(params);
    const auto result = engine.connect(now, params);
    return !result && result.error().code == EINVAL;
  };
  EXPECT_TRUE(refused([&](ConnectParams& p) { p.private_data = too_much; }));
  EXPECT_TRUE(refused([](ConnectParams& p) { p.path_mtu = 0; }));
  EXPECT_TRUE(refused([](ConnectParams& p) { p.path_mtu = 6; }));
  EXPECT_TRUE(refused([](ConnectParams& p) { p.packet_lifetime = 32; }));
  EXPECT_TRUE(refused([](ConnectParams& p) { p.flow_label = 0x100000; }));
  EXPECT_TRUE(refused([](ConnectParams& p) { p.params.qpn = 0x1000000; }));
  EXPECT_TRUE(refused([](ConnectParams& p) { p.params.vendor_id = 0x1000000; }));
  expect_silence();
  EXPECT_EQ(engine.usage(), Engine::Usage{});
}

TEST_F(Active, FiftySixBytesOfPrivateDataFit) {  // Field case 5.01
  const std::array<std::uint8_t, 56> all{9};
  auto params = connect_params();
  params.private_data = all;
  EXPECT_TRUE(engine.connect(now, params));
}

TEST_F(Active, ReplyIsReportedWithThePeersNumbersAndItsWholePrivateData) {
  connect();
  auto m = rep();
  m.srq = true;
  m.private_data[0] = 0xaa;
  m.private_data[195] = 0xbb;
  deliver(m);
  const auto e = event();
  EXPECT_EQ(e.type, EventType::kConnectResponse);
  EXPECT_EQ(e.connection, id);
  EXPECT_EQ(e.user, kUser);
  EXPECT_EQ(e.peer.qpn, kPeerQpn);
  EXPECT_EQ(e.peer.responder_resources, 7);
  EXPECT_EQ(e.peer.initiator_depth, 9);
  EXPECT_EQ(e.peer.rnr_retry_count, 1);
  EXPECT_TRUE(e.peer.srq);
  EXPECT_EQ(e.private_data.size(), 196u);
  EXPECT_EQ(e.private_data[0], 0xaa);
  EXPECT_EQ(e.private_data[195], 0xbb);
  EXPECT_TRUE(packets().empty());
}

TEST_F(Active, QpParametersAreOwnBeforeTheReplyAndThePeersAfter) {  // Field cases 5.04, 5.06
  connect();
  auto p = *engine.qp_parameters(id);
  EXPECT_FALSE(p.dest_known);
  EXPECT_EQ(p.local_qpn, kOwnQpn);
  EXPECT_EQ(p.responder_resources, 3);
  EXPECT_EQ(p.initiator_depth, 5);
  const auto rq_psn = p.rq_psn;
  deliver(rep());
  p = *engine.qp_parameters(id);
  EXPECT_TRUE(p.dest_known);
  EXPECT_EQ(p.dest_qpn, kPeerQpn);
  EXPECT_EQ(p.rq_psn, rq_psn);
  EXPECT_EQ(p.sq_psn, kPeerPsn);
  EXPECT_EQ(p.responder_resources, 9);
  EXPECT_EQ(p.initiator_depth, 7);
  EXPECT_EQ(p.retry_count, 6);
  EXPECT_EQ(p.rnr_retry_count, 1);
  EXPECT_EQ(p.ack_timeout, 17);  // packet lifetime 16, ACK delay 15
}

TEST_F(Active, EstablishSendsRtuInTheExchangesTransaction) {
  connect();
  deliver(rep());
  events();
  ASSERT_TRUE(engine.establish(now, id));
  wire::MadHeader header;
  const auto m = sent<wire::Rtu>(&header);
  EXPECT_EQ(m.local_comm_id, own_comm_id);
  EXPECT_EQ(m.remote_comm_id, kPeerCommId);
  EXPECT_EQ(header.transaction_id >> 32, 2u);
  EXPECT_EQ(state(), State::kEstablished);
}

// It would ask for a lost one after four seconds.
TEST_F(Active, RtuIsSentASecondTimeToAForeignPeer) {
  connect();
  deliver(rep());
  events();
  ASSERT_TRUE(engine.establish(now, id));
  expect_again(packets().at(0));
  deliver(rep());  // the answer to this one is not
  EXPECT_EQ(packets().size(), 1u);
  EXPECT_EQ(engine.next_deadline(), kNever);
}

TEST_F(Active, RtuIsSentOnceToAUcm) {
  connect();
  deliver_as_ucm(rep());
  events();
  ASSERT_TRUE(engine.establish(now, id));
  sent<wire::Rtu>();
  EXPECT_EQ(engine.next_deadline(), kNever);
}

TEST_F(Active, RequestIsRepeatedUnchangedAtGrowingIntervalsAndGivenUpAfterSixteenOfLinux) {  // Field cases 2.16, 5.13
  const auto connection = engine.connect(now, connect_params());
  ASSERT_TRUE(connection);
  const TimeNs start = now;
  const TimeNs give_up_at = start + 16 * 4608 * kMillisecond;  // 73.7 s
  const auto first = packets();
  TimeNs wait = 32 * kMillisecond;  // nothing is known of the peer
  int repetitions = 0;
  while (engine.next_deadline() < give_up_at) {
    const TimeNs waited = engine.next_deadline() - now;
    EXPECT_GE(waited, wait * 3 / 4);
    EXPECT_LE(waited, wait * 5 / 4);
    now = engine.next_deadline();
    engine.on_deadline(now);
    const auto again = packets();
    ASSERT_EQ(again.size(), 1u);
    EXPECT_EQ(again[0].mad, first[0].mad);
    wait = std::min(2 * wait, 16'384 * kMillisecond);
    ++repetitions;
  }
  EXPECT_GE(repetitions, 11);  // Linux repeats it 15 times
  EXPECT_LE(repetitions, 14);
  EXPECT_TRUE(events().empty());
  EXPECT_EQ(engine.next_deadline(), give_up_at);
  now = engine.next_deadline();
  engine.on_deadline(now);
  const auto e = event();
  EXPECT_EQ(e.type, EventType::kUnreachable);
  EXPECT_EQ(e.status, -ETIMEDOUT);
  EXPECT_TRUE(packets().empty());
  EXPECT_EQ(engine.next_deadline(), kNever);
  EXPECT_EQ(*engine.state(*connection), State::kIdle);
}

TEST_F(Active, BudgetFollowsThePacketLifetime) {
  auto params = connect_params();
  params.packet_lifetime = 18;
  ASSERT_TRUE(engine.connect(now, params));
  EXPECT_EQ(time_of_giving_up(), now + 16 * 6144 * kMillisecond);
}

TEST_F(Active, LocalAckTimeoutFollowsThePacketLifetime) {  // Field case 5.08
  for (const auto& [lifetime, timeout] : {std::pair{13, 16}, {16, 17}, {18, 19}}) {
    auto params = connect_params();
    params.packet_lifetime = static_cast<std::uint8_t>(lifetime);
    ASSERT_TRUE(engine.connect(now, params));
    EXPECT_EQ(sent<wire::Req>().primary.local_ack_timeout, timeout);
  }
}

TEST_F(Active, RepetitionsOfManyRequestsDoNotComeTogether) {  // Field case 2.16
  std::set<TimeNs> moments;
  for (std::uint32_t qpn = 1; qpn <= 30; ++qpn) {
    auto params = connect_params();
    params.params.qpn = qpn;
    ASSERT_TRUE(engine.connect(now, params));
  }
  packets();
  const TimeNs start = now;
  while (engine.next_deadline() < start + 41 * kMillisecond) {
    now = engine.next_deadline();
    moments.insert(now);
    engine.on_deadline(now);
  }
  EXPECT_GT(moments.size(), 28u);
  EXPECT_LT(*moments.begin(), start + 27 * kMillisecond);
  EXPECT_GT(*moments.rbegin(), start + 37 * kMillisecond);
}

// The first wait at a peer that has answered is a few of its answer times.
TEST_F(Active, FirstRepetitionFollowsHowSoonThePeerHasAnswered) {
  const auto first_wait = [&] {
    connect();
    const TimeNs wait = engine.next_deadline() - now;
    engine.destroy(now, id);
    advance(kSecond);
    drain();
    return wait;
  };
  const auto answer_after = [&](TimeNs delay, std::uint16_t mark) {
    connect();
    now += delay;
    auto m = rep();
    m.local_comm_id = kPeerCommId + own_comm_id;  // a new one each time
    m.local_qpn = own_comm_id & 0xFFFFFF;
    auto mad = mad_of(m);
    store_be16(&mad[18], mark);
    engine.on_packet(now, kFromPeer, mad);
    drain();
  };
  EXPECT_GE(first_wait(), 24 * kMillisecond);
  answer_after(100 * kNanosecondsPerMicrosecond, kUcmMark);
  EXPECT_LE(first_wait(), 5 * kMillisecond);
  EXPECT_GE(first_wait(), 3 * kMillisecond);
  for (int i = 0; i < 30; ++i) answer_after(10 * kMillisecond, kUcmMark);
  EXPECT_GE(first_wait(), 7 * kMillisecond);
  EXPECT_LE(first_wait(), 20 * kMillisecond);
  for (int i = 0; i < 30; ++i) answer_after(10 * kSecond, kUcmMark);  // its programs are slow, not its network
  EXPECT_LE(first_wait(), 80 * kMillisecond);
  for (int i = 0; i < 60; ++i) answer_after(100 * kNanosecondsPerMicrosecond, 0);  // another system answers there now
  EXPECT_GE(first_wait(), 12 * kMillisecond);
  EXPECT_LE(first_wait(), 20 * kMillisecond);
}

// A Linux host whose answer comes late has said that it has the request (MRA), or it did not get the first one: then
// its answer tells nothing.
TEST_F(Active, LateAnswerOfAForeignPeerCountsOnlyIfItAskedForPatience) {
  for (const bool asked : {false, true}) {
    SCOPED_TRACE(asked);
    engine = Engine({.random_key = {1, 2}});
    for (int i = 0; i < 30; ++i) {
      connect();
      advance(100 * kMillisecond);
      if (asked) deliver(mra(wire::MessageKind::kReq, 24));
      auto m = rep();
      m.local_comm_id = kPeerCommId + own_comm_id;
      m.local_qpn = own_comm_id & 0xFFFFFF;
      deliver(m);
      engine.destroy(now, id);
      drain();
    }
    connect();
    const TimeNs wait = engine.next_deadline() - now;
    EXPECT_GE(wait, (asked ? 75 : 24) * kMillisecond);
    EXPECT_LE(wait, (asked ? 125 : 40) * kMillisecond);
  }
}

TEST_F(Active, FirstMraSetsTheBudgetASecondOneIsIgnored) {
  connect();
  now += kSecond;
  deliver(mra(wire::MessageKind::kReq, 20));
  EXPECT_EQ(state(), State::kMraReqReceived);
  // All 15 repetitions of Linux are left; service timeout 20, packet lifetime + 1.
  const TimeNs give_up_at = now + 16 * (4096 + 512) * kMillisecond;
  // The REQ has arrived: there is no hurry.
  EXPECT_GE(engine.next_deadline(), now + 12 * kSecond);
  now += kSecond;
  deliver(mra(wire::MessageKind::kReq, 24));
  EXPECT_EQ(time_of_giving_up(), give_up_at);
}

TEST_F(Active, MraLeavesTheTriesThatLinuxWouldHaveLeft) {
  connect();
  advance(5 * 4608 * kMillisecond + 1);
  deliver(mra(wire::MessageKind::kReq, 22));
  EXPECT_EQ(time_of_giving_up(), now + 11 * (16384 + 512) * kMillisecond);
}

TEST_F(Active, MraOfAnAbsurdLengthIsCappedAtLinuxOwnLargest) {
  connect();
  deliver(mra(wire::MessageKind::kReq, 31));
  EXPECT_EQ(time_of_giving_up(), now + 16 * (65536 + 512) * kMillisecond);
}

TEST_F(Active, ReplyAfterMraConnects) {
  reach(State::kMraReqReceived, true);
  deliver(rep());
  EXPECT_EQ(event().type, EventType::kConnectResponse);
  EXPECT_EQ(engine.next_deadline(), kNever);
}

TEST_F(Active, RepeatedReplyBeforeEstablishGetsMraAndNoSecondEvent) {
  reach(State::kRepReceived, true);
  deliver(rep());
  const auto m = sent<wire::Mra>();
  EXPECT_EQ(m.message, wire::MessageKind::kRep);
  EXPECT_EQ(m.service_timeout, 24);
  EXPECT_EQ(m.local_comm_id, own_comm_id);
  EXPECT_EQ(m.remote_comm_id, kPeerCommId);
  EXPECT_TRUE(events().empty());
}

TEST_F(Active, RepeatedReplyWhenEstablishedGetsTheSameRtu) {
  reach(State::kRepReceived, true);
  ASSERT_TRUE(engine.establish(now, id));
  const auto first = packets();
  for (int i = 0; i < 3; ++i) {
    deliver(rep());
    const auto again = packets();
    ASSERT_EQ(again.size(), 1u);
    EXPECT_EQ(again[0].mad, first[0].mad);
  }
  EXPECT_TRUE(events().empty());
}

TEST_F(Active, RejectionIsReportedWithItsReasonAndWholePrivateData) {  // Field case 5.13
  connect();
  auto m = rej(wire::MessageKind::kReq);
  m.private_data[147] = 0x5a;
  deliver(m);
  const auto e = event();
  EXPECT_EQ(e.type, EventType::kRejected);
  EXPECT_EQ(e.status, 28);
  EXPECT_EQ(e.private_data.size(), 148u);
  EXPECT_EQ(e.private_data[147], 0x5a);
  EXPECT_EQ(state(), State::kIdle);
  EXPECT_EQ(engine.next_deadline(), kNever);
}

TEST_F(Active, RejectionByAHostWithoutListenerHasAnyLocalCommId) {
  connect();
  auto m = rej(wire::MessageKind::kReq, wire::RejReason::kInvalidServiceId);
  m.local_comm_id = 0x000002c9;  // Linux: the vendor ID of the REQ
  deliver(m);
  EXPECT_EQ(event().status, 8);
}

TEST_F(Active, StaleRejectionWaitsOutTheTimeBeforeIdle) {
  connect();
  deliver(rej(wire::MessageKind::kReq, wire::RejReason::kStaleConnection));
  EXPECT_EQ(event().status, 10);
  EXPECT_EQ(state(), State::kTimewait);
  advance(kSecond);
  expect_silence();  // TIMEWAIT_EXIT follows a disconnection only
  EXPECT_EQ(state(), State::kIdle);
}

TEST_F(Active, RejectionAfterEstablishIsReportedOnceAndDisconnectThenSendsNothing) {  // Field case 1.18
  reach(State::kEstablished, true);
  deliver(rej(wire::MessageKind::kOther));
  EXPECT_EQ(event().type, EventType::kRejected);
  deliver(rej(wire::MessageKind::kOther));
  engine.disconnect(now, id);
  advance(10 * kSecond);
  expect_silence();
}

TEST_F(Active, RejectionOfAReplyThatItOvertookIsHeardAndTheReplyThenIgnored) {
  connect();
  deliver(rej(wire::MessageKind::kOther));  // with the comm ID that only the REP would have told
  EXPECT_EQ(event().type, EventType::kRejected);
  EXPECT_EQ(state(), State::kIdle);
  deliver(rep());
  expect_silence();
}

TEST_F(Active, PeerThatIsDoneBeforeEstablishIsHeard) {  // Field case 1.06
  reach(State::kRepReceived, true);
  deliver(dreq());
  EXPECT_EQ(event().type, EventType::kDisconnected);
  EXPECT_FALSE(engine.establish(now, id));
  engine.disconnect(now, id);
  sent<wire::Drep>();
  EXPECT_EQ(state(), State::kTimewait);
}

TEST_F(Active, RejectingTheReplyEndsTheConnection) {  // Field case 1.06
  reach(State::kRepReceived, true);
  ASSERT_TRUE(engine.reject(now, id, {}));
  const auto m = sent<wire::Rej>();
  EXPECT_EQ(m.message, wire::MessageKind::kRep);
  EXPECT_EQ(m.reason, wire::RejReason::kConsumerDefined);
  EXPECT_EQ(state(), State::kIdle);
}

TEST_F(Active, DestroyBeforeTheReplyWithdrawsTheRequest) {
  connect();
  engine.destroy(now, id);
  const auto m = sent<wire::Rej>();
  EXPECT_EQ(m.reason, wire::RejReason::kTimeout);
  EXPECT_EQ(m.message, wire::MessageKind::kOther);
  EXPECT_EQ(m.local_comm_id, own_comm_id);
  EXPECT_EQ(m.remote_comm_id, 0u);
  EXPECT_EQ(m.ari_length, 8);
  EXPECT_EQ(load_be64(m.ari.data()), kOwnGuid);
  EXPECT_EQ(engine.usage(), Engine::Usage{.last_words = 1});
}

// Nobody answers it; lost, it would make the peer accept in vain.
TEST_F(Active, WithdrawalIsSentAFewTimesMoreUnchangedAtGrowingIntervals) {
  connect();
  now += 10 * kMillisecond;
  engine.destroy(now, id);
  const auto first = packets();
  ASSERT_EQ(first.size(), 1u);
  TimeNs wait = 32 * kMillisecond;
  for (int i = 0; i < 3; ++i) {
    const TimeNs waited = engine.next_deadline() - now;
    EXPECT_GE(waited, wait * 3 / 4);
    EXPECT_LE(waited, wait * 5 / 4);
    now = engine.next_deadline();
    engine.on_deadline(now);
    const auto again = packets();
    ASSERT_EQ(again.size(), 1u);
    EXPECT_EQ(again[0].mad, first[0].mad);
    wait *= 2;
  }
  EXPECT_EQ(engine.next_deadline(), kNever);
  EXPECT_EQ(engine.usage(), Engine::Usage{});
}

TEST_F(Active, CommIdsAndPsnsAreUnpredictableAndCarryTheShard) {  // Field case 6.05
  Engine sharded({.random_key = {3, 4}, .shard = 0xb});
  std::vector<std::uint32_t> comm_ids;
  for (std::uint32_t i = 0; i < 100; ++i) {
    auto params = connect_params();
    params.path.remote = wire::IpAddress::ipv4(0x0b000001 + i);
    ASSERT_TRUE(sharded.connect(now, params));
    const auto m = *wire::Req::parse(Bytes(sharded.poll_packet()->mad).subspan(wire::MadHeader::kSize));
    EXPECT_EQ(m.local_comm_id >> 28, 0xbu);
    EXPECT_NE(m.local_comm_id & 0x0FFFFFFF, 0u);
    for (const auto other : comm_ids) EXPECT_NE(m.local_comm_id, other);
    if (!comm_ids.empty()) {
      EXPECT_NE(m.local_comm_id, comm_ids.back() + 1);
    }
    comm_ids.push_back(m.local_comm_id);
  }
}

class Configured : public CmTest {
 protected:
  Configured() : CmTest({.random_key = {1, 2}, .cm_response_timeout = 18, .max_cm_retries = 3}) {}
};

TEST_F(Configured, TimeoutAndRetriesAreOnTheWireAndInTheBudget) {  // Field case 2.17
  const TimeNs start = now;
  ASSERT_TRUE(engine.connect(now, connect_params()));
  const auto m = sent<wire::Req>();
  EXPECT_EQ(m.local_cm_response_timeout, 18);
  EXPECT_EQ(m.remote_cm_response_timeout, 18);
  EXPECT_EQ(m.max_cm_retries, 3);
  EXPECT_EQ(time_of_giving_up(), start + 4 * (1024 + 512) * kMillisecond);
}

class OneConnection : public CmTest {
 protected:
  OneConnection() : CmTest({.random_key = {1, 2}, .connections_max = 1}) {}
};

TEST_F(OneConnection, TheLimitIsAnErrorForConnectAndSilenceForARequest) {
  listen();
  connect();
  const auto second = engine.connect(now, connect_params());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ENOMEM);
  deliver(req());
  expect_silence();
  EXPECT_EQ(engine.counters().connections_full, 1u);
}

}  // namespace
}  // namespace ucm::cm
