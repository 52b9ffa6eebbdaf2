// The CM engine with the peer, the application and the clock under the fuzzer's control. Whatever they do: no check
// fails, a copy of the engine goes on like the original, and nothing is left in the end.
#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"
#include "cm/engine.h"
#include "cm/limits.h"

namespace {

using namespace ucm;
using namespace ucm::cm;

constexpr auto kOwnAddress = wire::IpAddress::ipv4(0x0a4d0002);
constexpr auto kPeerAddress = wire::IpAddress::ipv4(0x0a4d0001);
constexpr wire::IpCmHeader kAddresses{.ip_version = 4, .source = kPeerAddress, .destination = kOwnAddress};
constexpr std::uint64_t kPeerGuid = 0x505400fffe770001;
constexpr std::uint64_t kServiceId = wire::ip_service_id(wire::PortSpace::kTcp, 7174);
constexpr std::uint64_t kDatagramService = wire::ip_service_id(wire::PortSpace::kUdp, 7174);
constexpr std::size_t kConnectionsMax = 32;
// Withdrawals said again; and at most as many tries of an orphan as a budget with doubled waits has.
constexpr std::size_t kLastDeadlinesMax = kLastWordsMax * kWithdrawalRepetitions + kConnectionsMax * 100;

using Mad = std::array<std::uint8_t, wire::kMadSize>;

// Reads the fuzzer's bytes; zeros when they have run out.
class Script {
 public:
  explicit Script(Bytes bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  std::uint8_t byte() {
    if (bytes_.empty()) return 0;
    const std::uint8_t value = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return value;
  }
  // The next `length` bytes, or fewer.
  Bytes take(std::size_t length) {
    const Bytes taken = bytes_.first(std::min(length, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }

 private:
  Bytes bytes_;
};

class World {
 public:
  World() : engine_({.random_key = {1, 2}, .connections_max = kConnectionsMax}) {
    listener_ = *engine_.listen({.service_id = kServiceId, .address = wire::IpAddress::ipv4_any(), .backlog = 8});
    datagram_listener_ = *engine_.listen({.service_id = kDatagramService,
                                          .address = wire::IpAddress::ipv4_any(),
                                          .transport = std::nullopt,
                                          .backlog = 8});
  }

  void step(Script& script) {
    switch (script.byte() % 4) {
      case 0:
        wait(script);
        break;
      case 1:
        call(script);
        break;
      case 2:
        engine_.on_packet(now_, path(script), script.take(script.byte() + 1u));
        break;
      default:
        receive(script);
    }
    drain();
  }

  void finish() {
    for (const ConnectionId id : ids_) engine_.destroy(now_, id);
    for (const SidrId id : exchanges_) engine_.sidr_destroy(now_, id);
    engine_.close_listener(now_, listener_);
    engine_.close_listener(now_, datagram_listener_);
    drain();
    // Withdrawals of requests are sent some times more, and DREQs of what was established.
    for (std::size_t i = 0; i < kLastDeadlinesMax && engine_.next_deadline() != kNever; ++i) {
      now_ = std::max(now_, engine_.next_deadline());
      engine_.on_deadline(now_);
      drain();
    }
    UCM_CHECK(engine_.usage() == Engine::Usage{});
    UCM_CHECK(engine_.next_deadline() == kNever);
    UCM_CHECK(!engine_.poll_event());
    UCM_CHECK(!engine_.poll_sidr_event());
  }
  std::uint64_t state_hash() const { return engine_.state_hash(); }

 private:
  void wait(Script& script) {
    now_ += (TimeNs{1} << script.byte() % 20) * kNanosecondsPerMillisecond;
    for (int i = 0; i < 4 && engine_.next_deadline() <= now_; ++i) engine_.on_deadline(now_);
  }

  void call(Script& script) {
    const std::uint8_t what = script.byte();
    const std::uint8_t which = script.byte();
    const ConnectionId id = ids_.empty() ? ConnectionId{which} : ids_[which % ids_.size()];
    const SidrId exchange = exchanges_.empty() ? SidrId{which} : exchanges_[which % exchanges_.size()];
    const std::uint32_t qpn = which % 8u;
    switch (what % 13) {
      case 0:
        if (const auto made = engine_.connect(now_, {.path = {.local = kOwnAddress, .remote = kPeerAddress},
                                                     .service_id = kServiceId,
                                                     .params = {.qpn = qpn}})) {
          ids_.push_back(*made);
        }
        return;
      case 1:
        return (void)engine_.accept(now_, id, {.params = {.qpn = qpn}});
      case 2:
        return (void)engine_.reject(now_, id, {});
      case 3:
        return (void)engine_.establish(now_, id);
      case 4:
        return (void)engine_.notify_established(now_, id);
      case 5:
        return engine_.disconnect(now_, id);
      case 6:
        return engine_.destroy(now_, id);
      case 7:
        return engine_.request_taken(now_, id);
      case 8:
        if (const auto made = engine_.sidr_connect(
                now_, {.path = {.local = kOwnAddress, .remote = kPeerAddress}, .service_id = kDatagramService})) {
          exchanges_.push_back(*made);
        }
        return;
      case 9:
        return (void)engine_.sidr_accept(now_, exchange, {.qpn = qpn, .qkey = 1});
      case 10:
        return (void)engine_.sidr_reject(now_, exchange, {});
      case 11:
        return engine_.sidr_destroy(now_, exchange);
      default:
        return engine_.sidr_request_taken(exchange);
    }
  }

  static Path path(Script& script) {
    Path path{.local = kOwnAddress, .remote = kPeerAddress};
    const std::uint8_t choice = script.byte();
    if (choice >= 0xf0) path.remote = wire::IpAddress::ipv4(choice);
    return path;
  }

  // A message that makes sense, then some bytes changed.
  void receive(Script& script) {
    const Path from = path(script);
    Mad mad = message(script);
    for (int changes = script.byte() % 8; changes > 0; --changes) {
      const std::uint8_t offset = script.byte();
      mad[offset] = script.byte();
    }
    engine_.on_packet(now_, from, mad);
  }

  template <class Message>
  static Mad mad_of(const Message& message) {
    Mad mad{};
    wire::MadHeader{.attribute = Message::kAttribute}.emit(MutableBytes(mad).first(wire::MadHeader::kSize));
    message.emit(MutableBytes(mad).subspan(wire::MadHeader::kSize));
    return mad;
  }
  template <class Message>
  Message answer(Script& script) const {
    Message m;
    m.local_comm_id = script.byte() % 8u;
    m.remote_comm_id = own_comm_ids_.empty() ? 0 : own_comm_ids_[script.byte() % own_comm_ids_.size()];
    return m;
  }

  Mad message(Script& script) const {
    switch (script.byte() % 9) {
      case 0:
        return mad_of(req(script));
      case 1: {
        auto m = answer<wire::Rep>(script);
        m.local_qpn = script.byte() % 8u;
        m.local_ca_guid = kPeerGuid;
        return mad_of(m);
      }
      case 2:
        return mad_of(answer<wire::Rtu>(script));
      case 3: {
        auto m = answer<wire::Mra>(script);
        m.message = static_cast<wire::MessageKind>(script.byte() % 3);
        m.service_timeout = script.byte() % 32;
        return mad_of(m);
      }
      case 4: {
        auto m = answer<wire::Rej>(script);
        m.message = static_cast<wire::MessageKind>(script.byte() % 3);
        m.reason = static_cast<wire::RejReason>(script.byte() % 36);
        if (m.reason == wire::RejReason::kTimeout) m.remote_comm_id = 0;
        store_be64(m.ari.data(), kPeerGuid);
        return mad_of(m);
      }
      case 5: {
        auto m = answer<wire::Dreq>(script);
        m.remote_qpn = script.byte() % 8u;
        return mad_of(m);
      }
      case 6:
        return mad_of(answer<wire::Drep>(script));
      case 7: {
        wire::SidrReq m;
        m.request_id = script.byte() % 8u;
        m.pkey = 0xFFFF;
        m.service_id = kDatagramService;
        kAddresses.emit(MutableBytes(m.private_data).first(wire::IpCmHeader::kSize));
        return mad_of(m);
      }
      default: {
        wire::SidrRep m;
        m.request_id = own_comm_ids_.empty() ? 0 : own_comm_ids_[script.byte() % own_comm_ids_.size()];
        m.status = static_cast<wire::SidrStatus>(script.byte() % 6);
        m.qkey = script.byte() % 2;
        return mad_of(m);
      }
    }
  }
  static wire::Req req(Script& script) {
    wire::Req m;
    m.local_comm_id = script.byte() % 8u;
    m.local_qpn = script.byte() % 8u;
    m.service_id = kServiceId;
    m.local_ca_guid = kPeerGuid;
    m.pkey = 0xFFFF;
    m.path_mtu = 3;
    m.max_cm_retries = script.byte() % 16;
    m.primary.remote_gid = kOwnAddress;
    kAddresses.emit(MutableBytes(m.private_data).first(wire::IpCmHeader::kSize));
    return m;
  }

  void drain() {
    while (const auto packet = engine_.poll_packet()) {
      own_comm_ids_.push_back(load_be32(&packet->mad[wire::MadHeader::kSize]));
      if (own_comm_ids_.size() > kConnectionsMax) own_comm_ids_.erase(own_comm_ids_.begin());
    }
    while (const auto event = engine_.poll_event()) {
      if (event->type == EventType::kConnectRequest) ids_.push_back(event->connection);
    }
    while (const auto event = engine_.poll_sidr_event()) {
      if (event->type == SidrEventType::kRequest) exchanges_.push_back(event->exchange);
    }
  }

  Engine engine_;
  ListenerId listener_{};
  ListenerId datagram_listener_{};
  TimeNs now_ = 0;
  std::vector<ConnectionId> ids_;  // all ever made
  std::vector<SidrId> exchanges_;  // all ever made
  std::vector<std::uint32_t> own_comm_ids_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  World world;
  Script first(Bytes(data, size / 2));
  while (!first.empty()) world.step(first);
  World copy = world;
  Script rest(Bytes(data + size / 2, size - size / 2));
  Script same = rest;
  while (!rest.empty()) world.step(rest);
  while (!same.empty()) copy.step(same);
  UCM_CHECK(world.state_hash() == copy.state_hash());
  world.finish();
  copy.finish();
  return 0;
}
