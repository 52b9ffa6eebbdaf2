// The model of a Linux peer by itself: what it answers in each state, when it repeats, and that it sends what Linux
// was seen to send.
#include "sim/linux_peer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "sim/application.h"
#include "unit/golden/captured.h"
#include "wire/ud_packet.h"

namespace ucm::sim {
namespace {

using wire::Attribute;
using wire::MessageKind;
using wire::RejReason;

constexpr TimeNs kMillisecond = kNanosecondsPerMillisecond;
constexpr TimeNs kSecond = kNanosecondsPerSecond;
constexpr std::uint16_t kPort = 7174;
constexpr auto kOwn = wire::IpAddress::ipv4(0x0a4d0002);
constexpr auto kOther = wire::IpAddress::ipv4(0x0a4d0001);
constexpr std::uint64_t kOwnGuid = 0x505400fffe770002;
constexpr std::uint64_t kOtherGuid = 0x505400fffe770001;
constexpr std::uint32_t kOtherId = 0xc00e5e78;
constexpr std::uint32_t kOtherQpn = 0x22;
constexpr std::uint32_t kOwnQpn = 0x11;
constexpr std::uint64_t kOtherTid = 0x7'1122'3344;

using Attributes = std::vector<Attribute>;
using Types = std::vector<EventType>;

class LinuxTest : public testing::Test {
 protected:
  LinuxTest() : LinuxTest({.timer_wheel = false}) {}
  explicit LinuxTest(LinuxConfig config) : peer((config.address = kOwn, config.guid = kOwnGuid, config)) {}

  template <class Message>
  void receive(const Message& message, std::uint32_t modifier = 0) {
    std::array<std::uint8_t, wire::kMadSize> mad{};
    const wire::MadHeader header{
        .transaction_id = kOtherTid, .attribute = Message::kAttribute, .attribute_modifier = modifier};
    header.emit(MutableBytes(mad).first(wire::MadHeader::kSize));
    message.emit(MutableBytes(mad).subspan(wire::MadHeader::kSize));
    peer.on_packet(now, kOther, mad);
  }
  // What the peer has sent and reported since the last call.
  Attributes sent() {
    Attributes list;
    Packet packet;
    while (peer.poll_packet(packet)) {
      list.push_back(wire::MadHeader::parse(packet.mad)->attribute);
      last = packet;
    }
    return list;
  }
  Types events() {
    Types list;
    Event event;
    while (peer.poll_event(event)) {
      list.push_back(event.type);
      last_event = event;
    }
    return list;
  }
  template <class Message>
  Message last_message() const {
    EXPECT_EQ(wire::MadHeader::parse(last.mad)->attribute, Message::kAttribute);
    return *Message::parse(Bytes(last.mad).subspan(wire::MadHeader::kSize));
  }
  std::uint64_t last_tid() const { return wire::MadHeader::parse(last.mad)->transaction_id; }
  LinuxState state() const { return peer.state(id); }
  // The intervals between sends until nothing is scheduled any more.
  std::vector<TimeNs> intervals_ms() {
    std::vector<TimeNs> list;
    TimeNs before = now;
    while (peer.next_deadline() != kNever) {
      now = peer.next_deadline();
      peer.on_deadline(now);
      const bool repeated = !sent().empty();
      list.push_back((now - before) / kMillisecond);
      before = now;
      if (!repeated) break;
    }
    return list;
  }
  void pass(TimeNs time) {
    const TimeNs end = now + time;
    while (peer.next_deadline() <= end) {
      now = peer.next_deadline();
      peer.on_deadline(now);
    }
    now = end;
  }

  // ---- The other side's messages.
  static wire::Req req() {
    wire::Req m;
    m.local_comm_id = kOtherId;
    m.service_id = wire::ip_service_id(wire::PortSpace::kTcp, kPort);
    m.local_ca_guid = kOtherGuid;
    m.local_qpn = kOtherQpn;
    m.remote_cm_response_timeout = 20;
    m.local_cm_response_timeout = 20;
    m.pkey = 0xFFFF;
    m.path_mtu = 3;
    m.max_cm_retries = 15;
    m.primary.local_gid = kOther;
    m.primary.remote_gid = kOwn;
    m.primary.local_ack_timeout = 19;
    const wire::IpCmHeader header{.ip_version = 4, .source_port = 40000, .source = kOther, .destination = kOwn};
    header.emit(m.private_data);
    return m;
  }
  wire::Rep rep() const {
    wire::Rep m;
    m.local_comm_id = kOtherId;
    m.remote_comm_id = own_id;
    m.local_qpn = kOtherQpn;
    m.target_ack_delay = 15;
    m.local_ca_guid = kOtherGuid;
    return m;
  }
  template <class Message>
  Message with_ids() const {
    Message m;
    m.local_comm_id = kOtherId;
    m.remote_comm_id = own_id;
    return m;
  }
  wire::Dreq dreq() const {
    auto m = with_ids<wire::Dreq>();
    m.remote_qpn = kOwnQpn;
    return m;
  }
  wire::Mra mra(MessageKind kind, std::uint8_t timeout) const {
    auto m = with_ids<wire::Mra>();
    m.message = kind;
    m.service_timeout = timeout;
    return m;
  }
  wire::Rej rej(MessageKind kind, RejReason reason) const {
    auto m = with_ids<wire::Rej>();
    m.message = kind;
    m.reason = reason;
    return m;
  }

  // ---- Into a state, with nothing left to poll.
  void to_req_sent() {
    id = peer.connect(now, {.remote = kOther, .port = kPort, .source_port = 49410, .qpn = kOwnQpn});
    EXPECT_EQ(sent(), Attributes{Attribute::kReq});
    own_id = last_message<wire::Req>().local_comm_id;
  }
  void to_mra_rep_sent() {
    to_req_sent();
    receive(rep());
    EXPECT_EQ(events(), Types{EventType::kConnectResponse});
    EXPECT_EQ(state(), LinuxState::kMraRepSent);
  }
  void to_established_active() {
    to_mra_rep_sent();
    EXPECT_TRUE(peer.establish(now, id));
    EXPECT_EQ(sent(), Attributes{Attribute::kRtu});
  }
  void to_mra_req_sent(const wire::Req& request = req()) {
    if (listener == 0) listener = peer.listen(kPort, 2, 5);
    receive(request);
    EXPECT_EQ(events(), Types{EventType::kConnectRequest});
    id = last_event.connection;
    peer.request_taken(now, id);
    EXPECT_EQ(state(), LinuxState::kMraReqSent);
  }
  void to_rep_sent() {
    to_mra_req_sent();
    EXPECT_TRUE(peer.accept(now, id, kOwnQpn, 0));
    EXPECT_EQ(sent(), Attributes{Attribute::kRep});
    own_id = last_message<wire::Rep>().local_comm_id;
  }
  void to_established_passive() {
    to_rep_sent();
    receive(with_ids<wire::Rtu>());
    EXPECT_EQ(events(), Types{EventType::kEstablished});
  }

  TimeNs now = 1000 * kSecond;
  LinuxPeer peer;
  Handle listener = 0;
  Handle id = 0;
  std::uint32_t own_id = 0;
  Packet last;
  Event last_event;
};

// ---- F.3: fixed intervals, 1 + retries sends, one more interval, then the error.

std::vector<TimeNs> sixteen(TimeNs ms) { return std::vector<TimeNs>(16, ms); }

TEST_F(LinuxTest, OlderKernelSendsReqSixteenTimesSixSecondsApart) {
  to_req_sent();
  EXPECT_EQ(intervals_ms(), sixteen(6144));
  EXPECT_EQ(events(), Types{EventType::kUnreachable});
  EXPECT_EQ(last_event.status, -110);
  EXPECT_EQ(state(), LinuxState::kIdle);
}

class NewerLinux : public LinuxTest {
 protected:
  NewerLinux() : LinuxTest({.packet_lifetime = kLinuxNewerLifetime, .timer_wheel = false}) {}
};

TEST_F(NewerLinux, SendsReqSixteenTimesFourSecondsApart) {
  to_req_sent();
  EXPECT_EQ(last_message<wire::Req>().primary.local_ack_timeout, 17);
  EXPECT_EQ(intervals_ms(), sixteen(4608));
}

TEST_F(NewerLinux, StaysInTimewaitForHalfASecond) {
  to_established_active();
  peer.disconnect(now, id);
  receive(with_ids<wire::Drep>());
  EXPECT_EQ(state(), LinuxState::kTimewait);
  pass(511 * kMillisecond);
  EXPECT_EQ(state(), LinuxState::kTimewait);
  pass(kMillisecond);
  EXPECT_EQ(state(), LinuxState::kIdle);
}

class LinuxWithTimerWheel : public LinuxTest {
 protected:
  LinuxWithTimerWheel() : LinuxTest(LinuxConfig{}) {}
};

TEST_F(LinuxWithTimerWheel, RepeatsAQuarterOfASecondLate) {
  to_req_sent();
  auto intervals = intervals_ms();
  EXPECT_GE(intervals[0], 6144);
  intervals[0] = 6400;
  EXPECT_EQ(intervals, sixteen(6400));  // req.pcap: 6.39 to 6.41 s
}

TEST_F(LinuxWithTimerWheel, RepeatsRepAsInTheCapture) {
  to_rep_sent();
  const auto intervals = intervals_ms();
  ASSERT_EQ(intervals.size(), 16u);
  EXPECT_GE(intervals[0], 4096);
  EXPECT_LE(intervals[0], 4352);
  for (std::size_t i = 1; i < intervals.size(); ++i) EXPECT_EQ(intervals[i], 4352);  // rep-retry.pcap: 4.35 s
}

TEST_F(LinuxTest, SendsRepAsOftenAndAsFarApartAsTheReqAsks) {
  auto request = req();
  request.local_cm_response_timeout = 18;
  request.max_cm_retries = 3;
  to_mra_req_sent(request);
  peer.accept(now, id, kOwnQpn, 0);
  EXPECT_EQ(sent(), Attributes{Attribute::kRep});
  EXPECT_EQ(intervals_ms(), std::vector<TimeNs>(4, 1024));
  EXPECT_EQ(events(), Types{EventType::kUnreachable});
}

TEST_F(LinuxTest, DisconnectsAtTheIntervalOfItsReqOrRep) {
  to_established_active();
  peer.disconnect(now, id);
  EXPECT_EQ(sent(), Attributes{Attribute::kDreq});
  EXPECT_EQ(intervals_ms(), sixteen(6144));
  EXPECT_EQ(events(), Types{EventType::kDisconnected});
  EXPECT_EQ(last_event.status, -110);
  EXPECT_EQ(state(), LinuxState::kTimewait);
}

TEST_F(LinuxTest, PassiveSideDisconnectsAtTheIntervalOfItsRep) {
  to_established_passive();
  peer.disconnect(now, id);
  EXPECT_EQ(sent(), Attributes{Attribute::kDreq});
  EXPECT_EQ(intervals_ms(), sixteen(4096));
}

TEST_F(LinuxTest, FirstMraSetsTheWaitGoingOnAndAllLaterOnes) {
  to_req_sent();
  auto patience = mra(MessageKind::kReq, 20);
  receive(patience);
  EXPECT_EQ(state(), LinuxState::kMraReqRcvd);
  patience.service_timeout = 10;
  receive(patience);  // ignored
  EXPECT_EQ(intervals_ms(), sixteen(4096 + 2048));
}

TEST_F(LinuxTest, MraOfRepSetsTheIntervalOfRep) {
  to_rep_sent();
  receive(mra(MessageKind::kRep, 10));
  EXPECT_EQ(state(), LinuxState::kMraRepRcvd);
  EXPECT_EQ(intervals_ms(), sixteen(4 + 2048));
}

// ---- F.5: duplicates.

TEST_F(LinuxTest, RepeatedReqWhileTheProgramThinksIsAnsweredByMra) {
  to_mra_req_sent();
  receive(req());
  receive(req());
  EXPECT_EQ(sent(), (Attributes{Attribute::kMra, Attribute::kMra}));
  EXPECT_EQ(last_message<wire::Mra>().service_timeout, 24);
  EXPECT_EQ(last_message<wire::Mra>().remote_comm_id, kOtherId);
  EXPECT_EQ(last_tid(), kOtherTid);
  EXPECT_EQ(events(), Types{});
}

TEST_F(LinuxTest, RepeatedReqNeverMakesItRepeatRep) {
  to_rep_sent();
  receive(req());
  EXPECT_EQ(sent(), Attributes{});
  receive(mra(MessageKind::kRep, 20));
  receive(req());
  EXPECT_EQ(sent(), Attributes{});
  receive(with_ids<wire::Rtu>());
  receive(req());
  EXPECT_EQ(sent(), Attributes{});
}

TEST_F(LinuxTest, ReqOfAConnectionThatIsOverIsANewOne) {
  to_mra_req_sent();
  EXPECT_TRUE(peer.reject(now, id));
  EXPECT_EQ(sent(), Attributes{Attribute::kRej});
  receive(req());
  EXPECT_EQ(events(), Types{EventType::kConnectRequest});
}

TEST_F(LinuxTest, RepeatedRepIsAnsweredByRtuOnceEstablishedAndByMraBefore) {
  to_mra_rep_sent();
  receive(rep());
  EXPECT_EQ(sent(), Attributes{Attribute::kMra});
  EXPECT_EQ(last_message<wire::Mra>().message, MessageKind::kRep);
  peer.establish(now, id);
  receive(rep());
  EXPECT_EQ(sent(), (Attributes{Attribute::kRtu, Attribute::kRtu}));
  peer.disconnect(now, id);
  receive(rep());
  EXPECT_EQ(sent(), Attributes{Attribute::kDreq});
}

TEST_F(LinuxTest, RtuCountsOnlyOnce) {
  to_established_passive();
  receive(with_ids<wire::Rtu>());
  EXPECT_EQ(events(), Types{});
}

TEST_F(LinuxTest, DreqOfUnknownConnectionIsAnsweredWithItsIdsSwapped) {
  receive(dreq());
  EXPECT_EQ(sent(), Attributes{Attribute::kDrep});
  EXPECT_EQ(last_message<wire::Drep>().remote_comm_id, kOtherId);
  EXPECT_EQ(last_tid(), kOtherTid);
}

TEST_F(LinuxTest, DreqForAnotherQpIsDropped) {
  to_established_active();
  auto wrong = dreq();
  wrong.remote_qpn = kOwnQpn + 1;
  receive(wrong);
  EXPECT_EQ(sent(), Attributes{});
  EXPECT_EQ(state(), LinuxState::kEstablished);
}

TEST_F(LinuxTest, DreqIsAnsweredByTheProgramAndThenByTimewait) {
  to_established_active();
  receive(dreq());
  receive(dreq());
  EXPECT_EQ(sent(), Attributes{});
  EXPECT_EQ(events(), Types{EventType::kDisconnected});
  peer.disconnect(now, id);
  EXPECT_EQ(sent(), Attributes{Attribute::kDrep});
  receive(dreq());
  EXPECT_EQ(sent(), Attributes{Attribute::kDrep});
  pass(2048 * kMillisecond);
  EXPECT_EQ(events(), Types{EventType::kTimewaitExit});
  receive(dreq());  // over, not destroyed: nothing
  EXPECT_EQ(sent(), Attributes{});
  peer.destroy(now, id);
  receive(dreq());
  EXPECT_EQ(sent(), Attributes{Attribute::kDrep});
}

// ---- G.

TEST_F(LinuxTest, RejectionsOfReqEndInIdleAndStaleOnesInTimewait) {
  to_req_sent();
  receive(rej(MessageKind::kReq, RejReason::kInvalidServiceId));
  EXPECT_EQ(events(), Types{EventType::kRejected});
  EXPECT_EQ(last_event.status, 8);
  EXPECT_EQ(state(), LinuxState::kIdle);
  to_req_sent();
  receive(rej(MessageKind::kReq, RejReason::kStaleConnection));
  EXPECT_EQ(state(), LinuxState::kTimewait);
  // No TIMEWAIT_EXIT: it was never disconnected.
  EXPECT_EQ(events(), Types{EventType::kRejected});
  pass(10 * kSecond);
  EXPECT_EQ(events(), Types{});
}

TEST_F(LinuxTest, RejOfEstablishedConnectionIsReportedAndNoDreqFollows) {
  to_established_active();
  receive(rej(MessageKind::kOther, RejReason::kConsumerDefined));
  EXPECT_EQ(events(), Types{EventType::kRejected});
  EXPECT_EQ(state(), LinuxState::kTimewait);
  peer.disconnect(now, id);
  EXPECT_EQ(sent(), Attributes{});
}

TEST_F(LinuxTest, DreqBeforeRtuIsDisconnectedWithoutEstablished) {
  to_rep_sent();
  receive(dreq());
  EXPECT_EQ(events(), Types{EventType::kDisconnected});
  EXPECT_EQ(state(), LinuxState::kDreqRcvd);
}

TEST_F(LinuxTest, DreqBeforeTheProgramTookRepIsIgnored) {
  to_mra_rep_sent();
  receive(dreq());
  EXPECT_EQ(sent(), Attributes{});
  EXPECT_EQ(events(), Types{});
}

TEST_F(LinuxTest, CrossingDreqWaitsForTheProgramToAskAgain) {
  to_established_active();
  peer.disconnect(now, id);
  receive(dreq());
  EXPECT_EQ(sent(), Attributes{Attribute::kDreq});
  EXPECT_EQ(events(), Types{EventType::kDisconnected});
  EXPECT_EQ(state(), LinuxState::kDreqRcvd);
  peer.disconnect(now, id);
  EXPECT_EQ(sent(), Attributes{Attribute::kDrep});
}

TEST_F(LinuxTest, WithdrawnRequestIsSilentAndAcceptFails) {
  to_mra_req_sent();
  wire::Rej withdrawal;
  withdrawal.local_comm_id = kOtherId;
  withdrawal.message = MessageKind::kOther;
  withdrawal.reason = RejReason::kTimeout;
  withdrawal.ari_length = 8;
  store_be64(withdrawal.ari.data(), kOtherGuid);
  receive(withdrawal);
  EXPECT_EQ(events(), Types{});
  EXPECT_FALSE(peer.accept(now, id, kOwnQpn, 0));
}

// ---- Destroying leaves one trace.

TEST_F(LinuxTest, DestroyedRequestIsWithdrawnByReason4WithTheOwnGuid) {
  to_req_sent();
  peer.destroy(now, id);
  EXPECT_EQ(sent(), Attributes{Attribute::kRej});
  const auto m = last_message<wire::Rej>();
  EXPECT_EQ(m.reason, RejReason::kTimeout);
  EXPECT_EQ(m.message, MessageKind::kOther);
  EXPECT_EQ(m.local_comm_id, own_id);
  EXPECT_EQ(m.remote_comm_id, 0u);
  EXPECT_EQ(m.ari_length, 8);
  EXPECT_EQ(load_be64(m.ari.data()), kOwnGuid);
}

TEST_F(LinuxTest, DestroyBeforeTheHandshakeIsCompleteIsReason28) {
  to_mra_rep_sent();
  peer.destroy(now, id);
  EXPECT_EQ(sent(), Attributes{Attribute::kRej});
  EXPECT_EQ(last_message<wire::Rej>().message, MessageKind::kRep);
  to_mra_req_sent();
  peer.destroy(now, id);
  EXPECT_EQ(sent(), Attributes{Attribute::kRej});
  EXPECT_EQ(last_message<wire::Rej>().message, MessageKind::kReq);
  to_rep_sent();
  peer.destroy(now, id);
  EXPECT_EQ(sent(), Attributes{Attribute::kRej});
  EXPECT_EQ(last_message<wire::Rej>().message, MessageKind::kOther);
  EXPECT_EQ(last_message<wire::Rej>().reason, RejReason::kConsumerDefined);
}

TEST_F(LinuxTest, DestroyedConnectionSendsOneDreqAndAnswersTheOtherSidesAsUnknown) {
  to_established_active();
  peer.destroy(now, id);
  EXPECT_EQ(sent(), Attributes{Attribute::kDreq});
  EXPECT_EQ(peer.next_deadline(), kNever);
  EXPECT_EQ(peer.usage(), Usage{});
  receive(dreq());
  EXPECT_EQ(sent(), Attributes{Attribute::kDrep});
}

TEST_F(LinuxTest, DestroyAnswersADreqThatTheProgramDidNotAnswer) {
  to_established_passive();
  receive(dreq());
  peer.destroy(now, id);
  EXPECT_EQ(sent(), Attributes{Attribute::kDrep});
}

TEST_F(LinuxTest, ClosedListenerRejectsWhatNobodyRead) {
  listener = peer.listen(kPort, 2, 5);
  receive(req());
  peer.close_listener(now, listener);
  EXPECT_EQ(sent(), Attributes{Attribute::kRej});
  EXPECT_EQ(events(), Types{});
  EXPECT_EQ(peer.usage(), Usage{});
}

// ---- E: requests that are refused.

TEST_F(LinuxTest, NobodyListeningIsReason8WithFourBytesOfTheReqAsId) {
  auto request = req();
  request.vendor_id = 0x00abcdef;
  receive(request);
  EXPECT_EQ(sent(), Attributes{Attribute::kRej});
  const auto m = last_message<wire::Rej>();
  EXPECT_EQ(m.reason, RejReason::kInvalidServiceId);
  EXPECT_EQ(m.message, MessageKind::kReq);
  EXPECT_EQ(m.local_comm_id, 0x00abcdefu);
  EXPECT_EQ(m.remote_comm_id, kOtherId);
  EXPECT_EQ(last_tid(), kOtherTid);
}

TEST_F(LinuxTest, BacklogOverflowIsSilent) {
  listener = peer.listen(kPort, 2, 5);
  for (std::uint32_t i = 0; i < 3; ++i) {
    auto request = req();
    request.local_comm_id += i;
    request.local_qpn += i;
    receive(request);
  }
  EXPECT_EQ(events().size(), 2u);
  EXPECT_EQ(sent(), Attributes{});
  peer.request_taken(now, last_event.connection);
  auto request = req();
  request.local_comm_id += 2;
  request.local_qpn += 2;
  receive(request);
  EXPECT_EQ(events(), Types{EventType::kConnectRequest});
}

TEST_F(LinuxTest, UnsuitableRequestsAreRefusedWithTheirReason) {
  peer.listen(kPort, 2, 5);
  const auto reason = [&](const wire::Req& request) {
    receive(request);
    EXPECT_EQ(sent(), Attributes{Attribute::kRej});
    EXPECT_EQ(events(), Types{});
    return static_cast<int>(last_message<wire::Rej>().reason);
  };
  auto request = req();
  request.primary.remote_gid = wire::IpAddress::ipv4(0x0a4d0063);
  EXPECT_EQ(reason(request), 12);
  EXPECT_EQ(last_message<wire::Rej>().ari_length, 16);
  request = req();
  request.pkey = 0x1234;
  EXPECT_EQ(reason(request), 12);
  request = req();
  request.alternate.local_lid = 1;
  EXPECT_EQ(reason(request), 18);
  request = req();
  request.private_data[0] = 0x10;  // version
  EXPECT_EQ(reason(request), 28);
  request = req();
  request.private_data[1] = 0x50;  // IP version
  EXPECT_EQ(reason(request), 28);
  request = req();
  request.private_data[35] ^= 1;  // destination
  EXPECT_EQ(reason(request), 28);
  request = req();
  request.transport_service = wire::TransportService::kUc;
  EXPECT_EQ(reason(request), 28);
}

TEST_F(LinuxTest, ReqWithTheQpOfALiveConnectionIsStaleAndTheOldConnectionIsDisconnected) {
  to_established_passive();
  auto request = req();
  request.local_comm_id = kOtherId + 1;
  receive(request);
  EXPECT_EQ(sent(), (Attributes{Attribute::kRej, Attribute::kDreq}));
  EXPECT_EQ(state(), LinuxState::kDreqSent);
  receive(with_ids<wire::Drep>());
  EXPECT_EQ(events(), Types{EventType::kDisconnected});
  // Entries are gone with timewait: the QP can be used at once.
  receive(request);
  EXPECT_EQ(events(), Types{EventType::kConnectRequest});
}

TEST_F(LinuxTest, RepWithTheQpOfALiveConnectionIsRefusedAndTheReqGoesOn) {
  to_established_active();
  const auto first_id = own_id;
  to_req_sent();
  auto reply = rep();
  reply.local_comm_id = kOtherId + 1;
  receive(reply);
  EXPECT_EQ(sent(), (Attributes{Attribute::kRej, Attribute::kDreq}));
  EXPECT_EQ(last_message<wire::Dreq>().local_comm_id, first_id);
  EXPECT_EQ(state(), LinuxState::kReqSent);
  EXPECT_NE(peer.next_deadline(), kNever);
}

TEST_F(LinuxTest, MalformedHeadersAndUnknownIdsAreSilent) {
  to_req_sent();
  own_id ^= 1;
  receive(rep());
  receive(with_ids<wire::Rtu>());
  receive(rej(MessageKind::kRep, RejReason::kConsumerDefined));
  receive(mra(MessageKind::kReq, 10));
  receive(with_ids<wire::Drep>());
  std::array<std::uint8_t, wire::kMadSize> mad{};
  const wire::MadHeader header{.class_version = 1, .attribute = Attribute::kDreq};
  header.emit(MutableBytes(mad).first(wire::MadHeader::kSize));
  peer.on_packet(now, kOther, mad);
  EXPECT_EQ(sent(), Attributes{});
  EXPECT_EQ(events(), Types{});
}

// ---- Captures: the same programs on two models send what two kernels sent.

using Mad = std::array<std::uint8_t, wire::kMadSize>;

// With everything zero that a host or a run chooses: IDs, PSNs, GUIDs, ports, private data.
Mad without_choices(Mad mad) {
  const auto header = *wire::MadHeader::parse(mad);
  const MutableBytes payload = MutableBytes(mad).subspan(wire::MadHeader::kSize);
  const auto zero = [&](std::size_t offset, std::size_t size) {
    std::fill_n(payload.begin() + static_cast<std::ptrdiff_t>(offset), size, std::uint8_t{0});
  };
  std::fill_n(mad.begin() + 8, 8, std::uint8_t{0});  // transaction ID
  zero(0, 4);
  if (header.attribute == Attribute::kReq) {
    zero(16, 8);    // GUID
    zero(32, 3);    // QPN
    zero(44, 3);    // PSN
    zero(88, 3);    // flow label
    zero(142, 2);   // source port
    zero(176, 56);  // the program's data
  } else {
    zero(4, 4);
  }
  if (header.attribute == Attribute::kRep) {
    zero(12, 3);
    zero(20, 3);
    zero(28, 8);
    zero(36, 196);
  }
  if (header.attribute == Attribute::kDreq) zero(8, 3);
  return mad;
}

std::vector<Mad> captured_messages(const std::string& name) {
  std::vector<Mad> list;
  for (const auto& frame : test::captured(name)) {
    const auto packet = test::roce_packet_in(frame);
    if (!packet) continue;
    const auto mad = wire::parse_gsi_packet(packet->payload);
    if (!mad) continue;
    Mad copy{};
    std::copy(mad->begin(), mad->end(), copy.begin());
    list.push_back(copy);
  }
  return list;
}

struct CapturedRun {
  const char* capture;
  std::uint16_t port;
  Behaviour client;
  Behaviour server;
};

std::ostream& operator<<(std::ostream& out, const CapturedRun& run) { return out << run.capture; }

class CapturedExchange : public testing::TestWithParam<CapturedRun> {};

TEST_P(CapturedExchange, IsWhatTwoModelsSay) {
  Simulator simulator(1, {.delay = 50'000});
  Applications applications(simulator);
  const NodeIndex client = simulator.add_linux(wire::IpAddress::ipv4(0x0a4e0001));
  const NodeIndex server = simulator.add_linux(wire::IpAddress::ipv4(0x0a4e0101));
  applications.set_behaviour(client, GetParam().client);
  applications.set_behaviour(server, GetParam().server);
  applications.listen(server, kPort);
  applications.connect(client, server, GetParam().port);
  EXPECT_TRUE(simulator.run());

  const auto expected = captured_messages(GetParam().capture);
  ASSERT_FALSE(expected.empty());
  ASSERT_EQ(simulator.sent().size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(without_choices(simulator.sent()[i].packet.mad), without_choices(expected[i])) << "message " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Of, CapturedExchange,
    testing::Values(CapturedRun{"full", kPort, {.disconnect_delay = kSecond}, {}},
                    CapturedRun{"mra", kPort, {.disconnect_delay = kSecond}, {.accept_delay = 7879 * kMillisecond}},
                    CapturedRun{"killed", kPort, {.vanish_delay = kSecond}, {}}, CapturedRun{"rej", 9999, {}, {}}),
    [](const auto& run) {
      const std::string name = run.param.capture;
      return name.substr(0, name.find('.'));
    });

TEST(CapturedRetries, RepIsRepeatedByteForByte) {
  const auto messages = captured_messages("rep-retry");
  ASSERT_EQ(messages.size(), 17u);
  LinuxPeer peer({.address = wire::IpAddress::ipv4(0x0a4d0002), .guid = kOwnGuid});
  peer.listen(kPort, 1, 0);
  peer.on_packet(0, wire::IpAddress::ipv4(0x0a4d0001), messages[0]);
  Event event;
  ASSERT_TRUE(peer.poll_event(event));
  ASSERT_TRUE(peer.accept(0, event.connection, kOwnQpn, 0));
  std::vector<Mad> sent;
  Packet packet;
  for (TimeNs now = 0;; now = peer.next_deadline()) {
    peer.on_deadline(now);
    while (peer.poll_packet(packet)) sent.push_back(packet.mad);
    if (peer.next_deadline() == kNever) break;
  }
  ASSERT_EQ(sent.size(), 16u);
  for (const Mad& mad : sent) {
    EXPECT_EQ(mad, sent.front());
    EXPECT_EQ(without_choices(mad), without_choices(messages[1]));
  }
}

// The flow label and the byte order of comm ID and transaction ID, of the vector in full.pcap.
TEST(CapturedReq, LabelsAndTransactionIdFollowTheirRules) {
  const auto captured = captured_messages("full").front();
  const auto expected = *wire::Req::parse(Bytes(captured).subspan(wire::MadHeader::kSize));
  LinuxPeer peer({.address = wire::IpAddress::ipv4(0x0a4e0001), .guid = expected.local_ca_guid});
  peer.connect(0, {.remote = wire::IpAddress::ipv4(0x0a4e0101), .port = kPort, .source_port = 0xd1f4, .qpn = 0x11});
  Packet packet;
  ASSERT_TRUE(peer.poll_packet(packet));
  const auto header = *wire::MadHeader::parse(packet.mad);
  const auto req = *wire::Req::parse(Bytes(packet.mad).subspan(wire::MadHeader::kSize));
  EXPECT_EQ(req.primary.flow_label, expected.primary.flow_label);
  const auto tid_of = [](std::uint32_t id) {
    std::array<std::uint8_t, 4> bytes{};
    store_be32(bytes.data(), id);
    std::reverse(bytes.begin(), bytes.end());
    return std::uint64_t{4} << 32 | load_be32(bytes.data());
  };
  EXPECT_EQ(header.transaction_id, tid_of(req.local_comm_id));
  EXPECT_EQ(wire::MadHeader::parse(captured)->transaction_id, tid_of(expected.local_comm_id));
}

}  // namespace
}  // namespace ucm::sim
