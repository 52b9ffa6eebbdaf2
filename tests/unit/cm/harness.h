// One engine, and a peer whose every message the test writes itself.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "cm/engine.h"
#include "cm/limits.h"
#include "wire/headers.h"

namespace ucm::cm {

inline constexpr auto kOwnAddress = wire::IpAddress::ipv4(0x0a4d0002);
inline constexpr auto kPeerAddress = wire::IpAddress::ipv4(0x0a4d0001);
inline constexpr auto kStranger = wire::IpAddress::ipv4(0x0a4d0063);
inline constexpr std::uint64_t kOwnGuid = 0x505400fffe770002;
inline constexpr std::uint64_t kPeerGuid = 0x505400fffe770001;
inline constexpr std::uint32_t kOwnQpn = 0x11;
inline constexpr std::uint32_t kPeerQpn = 0x22;
inline constexpr std::uint32_t kPeerPsn = 0x123456;
inline constexpr std::uint32_t kPeerCommId = 0xc00e5e78;
inline constexpr std::uint64_t kPeerTid = 0x0000'0007'1122'3344;
inline constexpr std::uint16_t kPort = 7174;
inline constexpr std::uint64_t kServiceId = wire::ip_service_id(wire::PortSpace::kTcp, kPort);
inline constexpr std::uint64_t kUser = 77;
inline constexpr TimeNs kSecond = kNanosecondsPerSecond;
inline constexpr TimeNs kMillisecond = kNanosecondsPerMillisecond;
// RTU and DREP have been said a second time: the peer that tests play is no UCM.
inline constexpr TimeNs kSaidTwice = 20 * kMillisecond;

// As the engine's receiver sees it.
inline constexpr Path kFromPeer{.local = kOwnAddress, .remote = kPeerAddress};

template <class Message>
std::array<std::uint8_t, wire::kMadSize> mad_of(const Message& message, std::uint64_t transaction_id = kPeerTid,
                                                std::uint32_t modifier = 0) {
  std::array<std::uint8_t, wire::kMadSize> mad{};
  const wire::MadHeader header{
      .transaction_id = transaction_id, .attribute = Message::kAttribute, .attribute_modifier = modifier};
  header.emit(MutableBytes(mad).first(wire::MadHeader::kSize));
  message.emit(MutableBytes(mad).subspan(wire::MadHeader::kSize));
  return mad;
}

inline wire::MadHeader header_of(const Packet& packet) { return *wire::MadHeader::parse(packet.mad); }

class CmTest : public testing::Test {
 protected:
  explicit CmTest(const Config& config = {.random_key = {1, 2}}) : engine(config) {}

  // ---- The application's side.
  static ConnectParams connect_params() {
    return {.path = {.local = kOwnAddress, .remote = kPeerAddress},
            .ca_guid = kOwnGuid,
            .service_id = kServiceId,
            .source_port = 49410,
            .params = {.qpn = kOwnQpn,
                       .responder_resources = 3,
                       .initiator_depth = 5,
                       .retry_count = 6,
                       .rnr_retry_count = 4},
            .user = kUser};
  }
  static AcceptParams accept_params() {
    return {.ca_guid = kOwnGuid,
            .params = {.qpn = kOwnQpn, .responder_resources = 2, .initiator_depth = 4, .rnr_retry_count = 5}};
  }
  void listen(std::uint32_t backlog = 16) {
    const auto opened =
        engine.listen({.service_id = kServiceId, .address = wire::IpAddress::ipv4_any(), .backlog = backlog});
    ASSERT_TRUE(opened);
    listener = *opened;
  }

  // ---- The peer's messages.
  static wire::Req req() {
    wire::Req m;
    m.local_comm_id = kPeerCommId;
    m.service_id = kServiceId;
    m.local_ca_guid = kPeerGuid;
    m.local_qpn = kPeerQpn;
    m.responder_resources = 7;
    m.initiator_depth = 9;
    m.remote_cm_response_timeout = 20;
    m.starting_psn = kPeerPsn;
    m.local_cm_response_timeout = 20;
    m.retry_count = 6;
    m.pkey = 0xFFFF;
    m.path_mtu = 3;
    m.rnr_retry_count = 2;
    m.max_cm_retries = 15;
    m.primary = {.local_lid = 0xFFFF,
                 .remote_lid = 0xFFFF,
                 .local_gid = kPeerAddress,
                 .remote_gid = kOwnAddress,
                 .flow_label = 0x77b44,
                 .traffic_class = 0x20,
                 .hop_limit = 64,
                 .local_ack_timeout = 19};
    set_addresses(m, {.ip_version = 4, .source_port = 40001, .source = kPeerAddress, .destination = kOwnAddress});
    return m;
  }
  static void set_addresses(wire::Req& m, const wire::IpCmHeader& addresses) {
    addresses.emit(MutableBytes(m.private_data).first(wire::IpCmHeader::kSize));
  }
  wire::Rep rep() const {
    wire::Rep m;
    m.local_comm_id = kPeerCommId;
    m.remote_comm_id = own_comm_id;
    m.local_qpn = kPeerQpn;
    m.starting_psn = kPeerPsn;
    m.responder_resources = 7;
    m.initiator_depth = 9;
    m.target_ack_delay = 15;
    m.rnr_retry_count = 1;
    m.local_ca_guid = kPeerGuid;
    return m;
  }
  template <class Message>
  Message answer(std::uint32_t peer_comm_id = kPeerCommId) const {
    Message m;
    m.local_comm_id = peer_comm_id;
    m.remote_comm_id = own_comm_id;
    return m;
  }
  wire::Dreq dreq() const {
    auto m = answer<wire::Dreq>();
    m.remote_qpn = kOwnQpn;
    return m;
  }
  wire::Mra mra(wire::MessageKind kind, std::uint8_t service_timeout) const {
    auto m = answer<wire::Mra>();
    m.message = kind;
    m.service_timeout = service_timeout;
    return m;
  }
  // The sender of the REQ with this comm ID takes it back; it tells its GUID for want of ours.
  static wire::Rej withdrawal(std::uint32_t comm_id, std::uint64_t guid = kPeerGuid) {
    wire::Rej m;
    m.local_comm_id = comm_id;
    m.message = wire::MessageKind::kOther;
    m.reason = wire::RejReason::kTimeout;
    m.ari_length = 8;
    store_be64(m.ari.data(), guid);
    return m;
  }
  wire::Rej rej(wire::MessageKind kind, wire::RejReason reason = wire::RejReason::kConsumerDefined) const {
    auto m = answer<wire::Rej>();
    m.message = kind;
    m.reason = reason;
    return m;
  }
  template <class Message>
  void deliver(const Message& message, const Path& path = kFromPeer, std::uint32_t modifier = 0) {
    engine.on_packet(now, path, mad_of(message, kPeerTid, modifier));
  }
  // From a peer that is a UCM.
  template <class Message>
  void deliver_as_ucm(const Message& message, const Path& path = kFromPeer) {
    auto mad = mad_of(message);
    store_be16(&mad[18], kUcmMark);
    engine.on_packet(now, path, mad);
  }

  // ---- What came out.
  std::vector<Packet> packets() {
    std::vector<Packet> list;
    while (auto packet = engine.poll_packet()) list.push_back(*packet);
    return list;
  }
  std::vector<Event> events() {
    std::vector<Event> list;
    while (auto event = engine.poll_event()) list.push_back(*event);
    return list;
  }
  void drain() {
    packets();
    events();
  }
  // The only packet, which is of this type; the test fails otherwise.
  template <class Message>
  Message sent(wire::MadHeader* header = nullptr) {
    const auto list = packets();
    EXPECT_EQ(list.size(), 1u);
    if (list.size() != 1) return {};
    const auto h = header_of(list[0]);
    EXPECT_EQ(h.attribute, Message::kAttribute);
    if (header != nullptr) *header = h;
    return *Message::parse(Bytes(list[0].mad).subspan(wire::MadHeader::kSize));
  }
  Event event() {
    const auto list = events();
    EXPECT_EQ(list.size(), 1u);
    return list.empty() ? Event{} : list[0];
  }
  // `word`, which nobody answers, comes once more, and then no more.
  void expect_again(const Packet& word) {
    advance(kSaidTwice);
    const auto again = packets();
    ASSERT_EQ(again.size(), 1u);
    EXPECT_EQ(again[0].mad, word.mad);
    EXPECT_EQ(engine.usage().last_words, 0u);
  }
  void expect_silence() {
    EXPECT_TRUE(packets().empty());
    EXPECT_TRUE(events().empty());
  }
  State state() const {
    return engine.state(id).value_or(engine.usage().orphans > 0 ? State::kOrphaned : State::kGone);
  }

  // Lets time pass, deadlines included.
  void advance(TimeNs duration) {
    const TimeNs end = now + duration;
    while (engine.next_deadline() <= end) {
      now = engine.next_deadline();
      engine.on_deadline(now);
    }
    now = end;
  }

  // When the engine will report that nobody answers, if nothing more comes; its state is not changed.
  TimeNs time_of_giving_up() const {
    Engine future = engine;
    TimeNs time = now;
    while (!future.poll_event() && time != kNever) {
      time = future.next_deadline();
      future.on_deadline(time);
    }
    return time;
  }

  // ---- The way to every state. `id` and `own_comm_id` are set; nothing is left to poll.
  void connect() {
    const auto connection = engine.connect(now, connect_params());
    ASSERT_TRUE(connection);
    id = *connection;
    own_comm_id = sent<wire::Req>().local_comm_id;
  }
  void request() {
    if (listener == ListenerId{}) listen();
    deliver(req());
    id = event().connection;
    engine.set_user(id, kUser);
    engine.request_taken(now, id);
  }
  void accept() {
    ASSERT_TRUE(engine.accept(now, id, accept_params()));
    own_comm_id = sent<wire::Rep>().local_comm_id;
  }
  // Behind as many requests as may be under way to the peer; `others` are these.
  void be_held() {
    auto params = connect_params();
    params.path.remote = kStranger;
    const auto place = engine.connect(now, params);  // so that the one that is held comes first when timers are equal
    ASSERT_TRUE(place);
    for (std::uint32_t i = 0; i < 32; ++i) {
      params = connect_params();
      params.params.qpn = 1000 + i;
      others.push_back(*engine.connect(now, params));
    }
    engine.destroy(now, *place);
    drain();
    id = *engine.connect(now, connect_params());
    expect_silence();
    // Its comm ID has not been on the wire yet.
    Engine future = engine;
    future.destroy(now, others.front());
    (void)future.poll_packet();
    const auto req = future.poll_packet();
    ASSERT_TRUE(req);
    own_comm_id = load_be32(&req->mad[wire::MadHeader::kSize]);
  }
  // Behind as many requests as the application may have unread; `others` are these.
  void be_queued() {
    listen(kDeliveredMax + 1);
    for (std::uint32_t i = 1; i <= kDeliveredMax; ++i) {
      auto m = req();
      m.local_comm_id = i;
      m.local_qpn = 1000 + i;
      deliver(m);
      others.push_back(event().connection);
    }
    deliver(req());
    expect_silence();
    Engine future = engine;
    future.request_taken(now, others.front());
    const auto reported = future.poll_event();
    ASSERT_TRUE(reported);
    id = reported->connection;
    engine.set_user(id, kUser);
  }
  void reach(State target, bool active) {
    if (target == State::kReqHeld) return be_held();
    if (target == State::kReqQueued) return be_queued();
    if (active) {
      connect();
      if (target == State::kReqSent) return;
      if (target == State::kMraReqReceived) {
        deliver(mra(wire::MessageKind::kReq, 20));
        return drain();
      }
      deliver(rep());
      drain();
      if (target == State::kRepReceived) return;
      ASSERT_TRUE(engine.establish(now, id));
      advance(kSaidTwice);
      drain();
    } else {
      request();
      if (target == State::kReqReceived) return;
      accept();
      if (target == State::kRepSent) return;
      if (target == State::kMraRepReceived) {
        deliver(mra(wire::MessageKind::kRep, 20));
        return drain();
      }
      deliver(answer<wire::Rtu>());
      drain();
    }
    if (target == State::kEstablished) return;
    if (target == State::kOrphaned) {
      engine.destroy(now, id);
      return drain();
    }
    if (target == State::kDreqReceived) {
      deliver(dreq());
      return drain();
    }
    engine.disconnect(now, id);
    drain();
    if (target == State::kDreqSent) return;
    deliver(answer<wire::Drep>());
    drain();
    if (target == State::kTimewait) return;
    advance(10 * kSecond);
    drain();
  }

  Engine engine;
  TimeNs now = 1'000'000'000'000;
  ListenerId listener{};
  ConnectionId id{};
  std::vector<ConnectionId> others;
  std::uint32_t own_comm_id = 0;
};

}  // namespace ucm::cm
