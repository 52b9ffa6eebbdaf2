// Bytes nobody should send, limits, and determinism.
#include "base/random.h"
#include "harness.h"

namespace ucm::cm {
namespace {

class Hostile : public CmTest {
 protected:
  using Mad = std::array<std::uint8_t, wire::kMadSize>;
  Mad mad() { return mad_of(req()); }
};

TEST_F(Hostile, EverySizeButTheMadsIsCountedAndDropped) {  // Field case 6.01
  listen();
  const auto good = mad();
  std::vector<std::uint8_t> bytes(good.begin(), good.end());
  bytes.resize(600);
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    if (size != wire::kMadSize) engine.on_packet(now, kFromPeer, Bytes(bytes).first(size));
  }
  expect_silence();
  EXPECT_EQ(engine.counters().bad_size, 600u);
}

TEST_F(Hostile, ForeignVersionsClassesMethodsAndAttributesAreCountedAndDropped) {  // Field case 6.01
  listen();
  const auto with_byte = [&](std::size_t offset, std::uint8_t value) {
    auto bytes = mad();
    bytes[offset] = value;
    engine.on_packet(now, kFromPeer, bytes);
  };
  with_byte(0, 2);     // base version
  with_byte(1, 0x04);  // class
  with_byte(2, 1);     // class version
  with_byte(3, 0x02);  // method Set
  with_byte(3, 0x81);  // GetResp
  EXPECT_EQ(engine.counters().bad_header, 5u);
  with_byte(17, 0x55);
  with_byte(17, 0x0f);
  with_byte(16, 0x01);
  EXPECT_EQ(engine.counters().unknown_attribute, 3u);
  with_byte(17, 0x19);  // LAP
  with_byte(17, 0x1a);  // APR
  EXPECT_EQ(engine.counters().unsupported, 2u);
  expect_silence();
}

TEST_F(Hostile, ClassPortInfoGetIsEchoedAsUnsupported) {
  Mad request{};
  const wire::MadHeader header{
      .method = wire::kMadMethodGet, .transaction_id = kPeerTid, .attribute = wire::Attribute::kClassPortInfo};
  header.emit(MutableBytes(request).first(wire::MadHeader::kSize));
  request[200] = 0x77;
  engine.on_packet(now, kFromPeer, request);
  const auto list = packets();
  ASSERT_EQ(list.size(), 1u);
  const auto answer = header_of(list[0]);
  EXPECT_EQ(answer.method, wire::kMadMethodGetResp);
  EXPECT_EQ(answer.status, 0x000C);
  EXPECT_EQ(answer.transaction_id, kPeerTid);
  EXPECT_EQ(list[0].mad[200], 0x77);
}

TEST_F(Hostile, TimersAreHandledInBoundedPortions) {
  for (std::uint32_t i = 0; i < 1000; ++i) {
    auto params = connect_params();
    params.path.remote = wire::IpAddress::ipv4(0x0b000001 + i);
    ASSERT_TRUE(engine.connect(now, params));
  }
  drain();
  now += 40 * kMillisecond;  // the first repetition of each is due
  std::size_t handled = 0;
  while (engine.next_deadline() <= now) {
    engine.on_deadline(now);
    const std::size_t portion = packets().size();
    EXPECT_LE(portion, kTimersPerCall);
    handled += portion;
  }
  EXPECT_EQ(handled, 1000u);
}

TEST_F(Hostile, AFloodOfRequestsHoldsNoMoreThanTheBacklog) {  // Field case 6.06
  listen(100);
  for (std::uint32_t i = 1; i <= 50'000; ++i) {
    auto m = req();
    m.local_comm_id = i;
    m.local_qpn = i;
    deliver(m, {.local = kOwnAddress, .remote = wire::IpAddress::ipv4(0x0b000000 + i)});
  }
  EXPECT_EQ(engine.usage().connections, 100u);
  EXPECT_EQ(engine.counters().backlog_full, 49'900u);
  EXPECT_TRUE(packets().empty());
}

// One moment of a connection's life, and messages that come in it.
class Moment : public CmTest {
 public:
  void TestBody() override {}
  void run(State from, bool active, std::size_t kind, const Path& source, std::uint32_t peer_comm_id) {
    reach(from, active);
    const State before = state();
    // Whatever it is, it comes with events unread, three times.
    for (int i = 0; i < 3; ++i) flood(kind, source, peer_comm_id);
    if (source.remote != kPeerAddress) {
      EXPECT_EQ(state(), before);
      for (const auto& e : events()) EXPECT_NE(e.connection, id);
    }
    engine.destroy(now, id);
    for (const auto other : others) engine.destroy(now, other);
    for (int i = 0; i < 3; ++i) flood(kind, source, peer_comm_id);
    drain();
    engine.close_listener(now, listener);
    advance(3600 * kSecond);
    drain();
    EXPECT_EQ(engine.usage(), Engine::Usage{});
    EXPECT_EQ(engine.next_deadline(), kNever);
  }

 private:
  template <class Message>
  void send(Message m, const Path& source, std::uint32_t peer_comm_id) {
    m.local_comm_id = peer_comm_id;
    deliver(m, source);
  }
  void flood(std::size_t kind, const Path& source, std::uint32_t peer_comm_id) {
    switch (kind) {
      case 0:
        return send(req(), source, peer_comm_id);
      case 1:
        return send(rep(), source, peer_comm_id);
      case 2:
        return send(answer<wire::Rtu>(), source, peer_comm_id);
      case 3:
        return send(mra(wire::MessageKind::kReq, 20), source, peer_comm_id);
      case 4:
        return send(mra(wire::MessageKind::kRep, 20), source, peer_comm_id);
      case 5:
        return send(rej(wire::MessageKind::kOther), source, peer_comm_id);
      case 6:
        return deliver(withdrawal(peer_comm_id), source);
      case 7:
        return send(dreq(), source, peer_comm_id);
      default:
        return send(answer<wire::Drep>(), source, peer_comm_id);
    }
  }
};

// Every message, from the peer, from a stranger and with another peer's ID, at any moment of a connection's life:
// between the event and its reading, and between any two calls. Nothing but the peer itself gets anywhere, and destroy
// still ends it all.
TEST(HostileMoments, EveryMessageInEveryStateLeavesWhatDestroyEnds) {  // Field case 1.17
  constexpr Path kFromStranger{.local = kOwnAddress, .remote = kStranger};
  for (std::size_t s = 0; s < kStateCount; ++s) {
    for (const bool active : {true, false}) {
      const auto from = static_cast<State>(s);
      const bool reachable =
          active ? from < State::kReqQueued || from > State::kMraRepReceived : from >= State::kReqQueued;
      for (std::size_t kind = 0; reachable && kind < 9; ++kind) {
        for (const Path& source : {kFromPeer, kFromStranger}) {
          for (const std::uint32_t peer_comm_id : {0u, kPeerCommId, kPeerCommId + 1}) {
            SCOPED_TRACE(std::string(name(from)) + (active ? ", active, " : ", passive, ") + std::to_string(kind));
            Moment().run(from, active, kind, source, peer_comm_id);
          }
        }
      }
    }
  }
}

// A peer that connects, is let go and never answers holds no more than this, and takes nobody's place.
TEST_F(Hostile, ConnectionsDestroyedWithoutTheirPeersAnswerAreLimited) {
  listen();
  for (std::uint32_t i = 1; i <= kOrphansMax + 100; ++i) {
    auto m = req();
    m.local_comm_id = i;
    m.local_qpn = i;
    deliver(m);
    id = event().connection;
    engine.request_taken(now, id);
    accept();
    deliver(answer<wire::Rtu>(i));
    engine.destroy(now, id);
    drain();
  }
  EXPECT_EQ(engine.usage().orphans, kOrphansMax);
  EXPECT_EQ(engine.usage().connections, kOrphansMax);
  EXPECT_EQ(engine.counters().orphans_given_up, 100u);
  // Every one of them is gone in the end.
  for (std::size_t i = 0; i < 20 * kOrphansMax && engine.next_deadline() != kNever; ++i) {
    now = engine.next_deadline();
    engine.on_deadline(now);
    drain();
  }
  engine.close_listener(now, listener);
  EXPECT_EQ(engine.usage(), Engine::Usage{});
}

// One engine under random messages, half of them damaged, and random calls.
class Storm {
 public:
  explicit Storm(std::uint64_t seed) : random_(seed), engine_({.random_key = {seed, 1}, .connections_max = 40}) {
    listener_ = *engine_.listen({.service_id = kServiceId, .address = wire::IpAddress::ipv4_any(), .backlog = 8});
  }

  void step() {
    now_ += static_cast<TimeNs>(random_.below(3 * kSecond));
    switch (random_.below(4)) {
      case 0:
        call();
        break;
      case 1:
        for (int i = 0; i < 3 && engine_.next_deadline() <= now_; ++i) engine_.on_deadline(now_);
        break;
      default:
        receive();
    }
    drain();
  }
  // Everything the application still has is destroyed: nothing may be left.
  Engine::Usage end() {
    for (const ConnectionId id : ids_) engine_.destroy(now_, id);
    engine_.close_listener(now_, listener_);
    drain();
    return engine_.usage();
  }
  std::uint64_t state_hash() const { return engine_.state_hash(); }
  std::uint64_t packet_hash() const { return packet_hash_.value(); }

 private:
  ConnectionId some_connection() {
    return ids_.empty() ? ConnectionId{random_.next()} : ids_[random_.below(ids_.size())];
  }
  void call() {
    const ConnectionId id = some_connection();
    switch (random_.below(8)) {
      case 0: {
        const auto made = engine_.connect(now_, {.path = {.local = kOwnAddress, .remote = kPeerAddress},
                                                 .ca_guid = kOwnGuid,
                                                 .service_id = kServiceId,
                                                 .params = {.qpn = qpn()}});
        if (made) ids_.push_back(*made);
        break;
      }
      case 1:
        (void)engine_.accept(now_, id, {.ca_guid = kOwnGuid, .params = {.qpn = qpn()}});
        break;
      case 2:
        (void)engine_.reject(now_, id, {});
        break;
      case 3:
        (void)engine_.establish(now_, id);
        break;
      case 4:
        (void)engine_.notify_established(now_, id);
        break;
      case 5:
        engine_.disconnect(now_, id);
        break;
      case 6:
        engine_.destroy(now_, id);
        break;
      default:
        engine_.request_taken(now_, id);
    }
  }
  std::uint32_t qpn() { return static_cast<std::uint32_t>(random_.below(12)); }

  // A comm ID that means something to the engine, mostly.
  std::uint32_t own_comm_id() {
    return own_comm_ids_.empty() ? random_.next_u32() : own_comm_ids_[random_.below(own_comm_ids_.size())];
  }
  std::uint32_t peer_comm_id() { return static_cast<std::uint32_t>(random_.below(12)); }

  template <class Message>
  std::array<std::uint8_t, wire::kMadSize> message(auto fill) {
    Message m;
    m.local_comm_id = peer_comm_id();
    fill(m);
    return mad_of(m, random_.next());
  }
  std::array<std::uint8_t, wire::kMadSize> plausible_mad() {
    const auto answers = [&](auto& m) { m.remote_comm_id = own_comm_id(); };
    switch (random_.below(7)) {
      case 0:
        return message<wire::Req>([&](wire::Req& m) { fill_req(m); });
      case 1:
        return message<wire::Rep>([&](wire::Rep& m) {
          answers(m);
          m.local_qpn = qpn();
          m.local_ca_guid = kPeerGuid;
        });
      case 2:
        return message<wire::Rtu>(answers);
      case 3:
        return message<wire::Mra>([&](wire::Mra& m) {
          answers(m);
          m.message = static_cast<wire::MessageKind>(random_.below(3));
          m.service_timeout = static_cast<std::uint8_t>(random_.below(32));
        });
      case 4:
        return message<wire::Rej>([&](wire::Rej& m) {
          answers(m);
          m.message = static_cast<wire::MessageKind>(random_.below(3));
          m.reason = static_cast<wire::RejReason>(random_.below(36));
          store_be64(m.ari.data(), kPeerGuid);
        });
      case 5:
        return message<wire::Dreq>([&](wire::Dreq& m) {
          answers(m);
          m.remote_qpn = qpn();
        });
      default:
        return message<wire::Drep>(answers);
    }
  }
  void fill_req(wire::Req& m) {
    m.service_id = kServiceId;
    m.local_ca_guid = kPeerGuid;
    m.local_qpn = qpn();
    m.pkey = 0xFFFF;
    m.path_mtu = 3;
    m.local_cm_response_timeout = static_cast<std::uint8_t>(random_.below(32));
    m.max_cm_retries = static_cast<std::uint8_t>(random_.below(16));
    m.primary.remote_gid = kOwnAddress;
    m.primary.local_ack_timeout = static_cast<std::uint8_t>(random_.below(32));
    const wire::IpCmHeader addresses{.ip_version = 4, .source = kPeerAddress, .destination = kOwnAddress};
    addresses.emit(MutableBytes(m.private_data).first(wire::IpCmHeader::kSize));
  }
  void receive() {
    auto mad = plausible_mad();
    if (random_.chance(1, 2)) {
      const std::uint64_t flips = random_.below(4);
      for (std::uint64_t i = 0; i < flips; ++i) {
        mad[random_.below(mad.size())] ^= static_cast<std::uint8_t>(1u << random_.below(8));
      }
    }
    Path path = kFromPeer;
    if (random_.chance(1, 20)) path.remote = kStranger;
    engine_.on_packet(now_, path, mad);
  }
  void drain() {
    while (const auto packet = engine_.poll_packet()) {
      packet_hash_.add(Bytes(packet->mad));
      own_comm_ids_.push_back(load_be32(&packet->mad[wire::MadHeader::kSize]));
      if (own_comm_ids_.size() > 30) own_comm_ids_.erase(own_comm_ids_.begin());
    }
    while (const auto event = engine_.poll_event()) {
      if (event->type == EventType::kConnectRequest) ids_.push_back(event->connection);
    }
    if (ids_.size() > 60) ids_.erase(ids_.begin());
  }

  Random random_;
  Engine engine_;
  TimeNs now_ = 0;
  ListenerId listener_{};
  std::vector<ConnectionId> ids_;
  std::vector<std::uint32_t> own_comm_ids_;
  StateHash packet_hash_;
};

TEST(HostileStorm, DamagedMessagesInEveryStateNeverCrashNorLeak) {  // Field cases 1.05, 1.17, 6.01
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Storm storm(seed);
    for (int i = 0; i < 600; ++i) storm.step();
    // A handle the storm has dropped may still live; the limit of the engine bounds those.
    EXPECT_LE(storm.end().connections, 40u) << "seed " << seed;
  }
}

TEST(HostileStorm, SameSeedGivesTheSamePackets) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    Storm a(seed), b(seed);
    for (int i = 0; i < 500; ++i) {
      a.step();
      b.step();
    }
    EXPECT_EQ(a.packet_hash(), b.packet_hash());
    EXPECT_EQ(a.state_hash(), b.state_hash());
  }
}

TEST(HostileStorm, ACopyGoesOnExactlyLikeTheOriginal) {
  Storm original(11);
  for (int i = 0; i < 300; ++i) original.step();
  Storm copy = original;
  EXPECT_EQ(copy.state_hash(), original.state_hash());
  for (int i = 0; i < 300; ++i) {
    original.step();
    copy.step();
    ASSERT_EQ(copy.state_hash(), original.state_hash());
  }
  EXPECT_EQ(copy.packet_hash(), original.packet_hash());
}

TEST(HostileStorm, StateHashTellsStatesApart) {
  Storm storm(12);
  std::uint64_t before = storm.state_hash();
  int changes = 0;
  for (int i = 0; i < 300; ++i) {
    storm.step();
    changes += storm.state_hash() != before;
    before = storm.state_hash();
  }
  EXPECT_GT(changes, 30);
}

}  // namespace
}  // namespace ucm::cm
