#include "bench/packet_ways.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "bench/address.h"
#include "net/event_loop.h"
#include "net/udp_port.h"

namespace ucm::bench {
namespace {

// BTH, DETH, a MAD and the ICRC.
constexpr std::size_t kPacketBytes = 12 + 8 + 256 + 4;
constexpr std::size_t kBatch = 64;
// On this host nothing needs so long: a packet is lost.
constexpr TimeNs kSilence = kNanosecondsPerSecond;

enum class Kind : std::uint8_t { kRequest, kReply, kReady };
// Whether the client answers the reply.
enum class Handshake { kTwoPackets, kThreePackets };

struct Packet {
  std::uint32_t slot;
  std::uint16_t answer_port;
  Kind kind;
  std::array<std::uint8_t, kPacketBytes - 7> rest;
} __attribute__((packed));
static_assert(sizeof(Packet) == kPacketBytes);

Result<wire::IpAddress> parse(const std::string& text) {
  auto address = Address::parse(text, 0);
  if (!address) return tl::unexpected(address.error());
  const in6_addr gid = address->gid();
  wire::IpAddress parsed;
  std::copy_n(std::begin(gid.s6_addr), parsed.bytes.size(), parsed.bytes.begin());
  return parsed;
}

// A port in its loop. What is to be sent in a turn leaves in one batch at its end, as a node does it.
class PacketEnd {
 protected:
  Result<void> open(const std::string& address, std::uint16_t udp_port) {
    auto own = parse(address);
    if (!own) return tl::unexpected(own.error());
    address_ = *own;
    auto port = net::UdpPort::open(udp_port);
    if (!port) return tl::unexpected(port.error());
    port_ = std::move(*port);
    auto loop = net::EventLoop::create();
    if (!loop) return tl::unexpected(loop.error());
    loop_ = std::move(*loop);
    for (const int fd : port_->wait_fds()) {
      if (auto added = loop_->add(fd, [this](std::uint32_t) { receive(); }); !added) return added;
    }
    loop_->add_hook([this](TimeNs now) { return turn(now); });
    return {};
  }
  ~PacketEnd() = default;

  void send(std::uint16_t to, const Packet& packet) { outbox_.emplace_back(to, packet); }
  virtual void on_packet(const Packet& packet) = 0;
  // When to look again.
  virtual TimeNs on_turn(TimeNs now) = 0;

  std::unique_ptr<net::EventLoop> loop_;

 private:
  void receive() {
    const net::PacketPort::Sink sink = [this](const net::Datagram& datagram) {
      if (datagram.payload.size() != sizeof(Packet)) return;
      Packet packet{};
      std::memcpy(&packet, datagram.payload.data(), sizeof(packet));
      on_packet(packet);
    };
    port_->receive(sink, kBatch);
  }
  TimeNs turn(TimeNs now) {
    const TimeNs deadline = on_turn(now);
    std::vector<net::Datagram> batch;
    for (const auto& [to, packet] : outbox_) {
      batch.push_back({.info = {.source = address_, .destination = address_, .destination_port = to},
                       .payload = {reinterpret_cast<const std::uint8_t*>(&packet), sizeof(packet)}});
    }
    port_->send(batch);
    outbox_.clear();
    return deadline;
  }

  wire::IpAddress address_;
  std::unique_ptr<net::UdpPort> port_;
  std::vector<std::pair<std::uint16_t, Packet>> outbox_;
};

class PacketClient final : public Client, PacketEnd {
 public:
  static Result<std::unique_ptr<Client>> make(const Workload& workload, Samples& samples, Handshake handshake) {
    std::unique_ptr<PacketClient> client(new PacketClient(workload, samples, handshake));
    const auto opened = client->open(workload.address, static_cast<std::uint16_t>(workload.service_port + 1));
    if (!opened) return tl::unexpected(opened.error());
    return client;
  }

  Result<void> set_up(std::uint32_t count) override {
    target_ = begun_ + count;
    heard_ = monotonic_now();
    loop_->run();
    if (ended_ < target_) return fail(ETIMEDOUT, "a packet was lost on its way through this host");
    return {};
  }
  Result<void> take_down() override { return {}; }

 private:
  PacketClient(const Workload& workload, Samples& samples, Handshake handshake)
      : server_port_(workload.service_port),
        in_flight_(workload.in_flight),
        handshake_(handshake),
        samples_(samples),
        started_(workload.all()) {}

  void on_packet(const Packet& packet) override {
    if (packet.kind != Kind::kReply || packet.slot >= begun_) return;
    heard_ = monotonic_now();
    samples_.record(Phase::kConnect, 0, packet.slot, heard_ - started_[packet.slot]);
    samples_.count_up();
    ++ended_;
    if (handshake_ == Handshake::kThreePackets) send(server_port_, make_packet(packet.slot, Kind::kReady));
  }

  TimeNs on_turn(TimeNs now) override {
    for (; begun_ < target_ && begun_ - ended_ < in_flight_; ++begun_) {
      started_[begun_] = monotonic_now();
      send(server_port_, make_packet(begun_, Kind::kRequest));
    }
    if (ended_ == target_ || now > heard_ + kSilence) loop_->stop();
    return heard_ + kSilence + 1;
  }

  Packet make_packet(std::uint32_t slot, Kind kind) const {
    return {.slot = slot, .answer_port = static_cast<std::uint16_t>(server_port_ + 1), .kind = kind, .rest = {}};
  }

  const std::uint16_t server_port_;
  const std::uint32_t in_flight_;
  const Handshake handshake_;
  Samples& samples_;
  std::vector<TimeNs> started_;  // by slot
  TimeNs heard_ = 0;
  std::uint32_t target_ = 0;
  std::uint32_t begun_ = 0;
  std::uint32_t ended_ = 0;
};

class PacketServer final : public Server, PacketEnd {
 public:
  static Result<std::unique_ptr<Server>> make(const Workload& workload) {
    std::unique_ptr<PacketServer> server(new PacketServer);
    if (auto opened = server->open(workload.address, workload.service_port); !opened) {
      return tl::unexpected(opened.error());
    }
    return server;
  }
  Result<void> serve(int stop_fd) override {
    if (auto added = loop_->add(stop_fd, [this](std::uint32_t) { loop_->stop(); }); !added) return added;
    loop_->run();
    return {};
  }

 private:
  void on_packet(const Packet& packet) override {
    if (packet.kind != Kind::kRequest) return;
    Packet reply = packet;
    reply.kind = Kind::kReply;
    send(packet.answer_port, reply);
  }
  TimeNs on_turn(TimeNs) override { return kNever; }
};

}  // namespace

Result<std::unique_ptr<Client>> make_three_packet_client(const Workload& workload, std::uint32_t /*thread*/,
                                                         Samples& samples) {
  return PacketClient::make(workload, samples, Handshake::kThreePackets);
}
Result<std::unique_ptr<Client>> make_two_packet_client(const Workload& workload, std::uint32_t /*thread*/,
                                                       Samples& samples) {
  return PacketClient::make(workload, samples, Handshake::kTwoPackets);
}
Result<std::unique_ptr<Server>> make_packet_server(const Workload& workload, std::uint32_t /*thread*/,
                                                   Samples& /*samples*/) {
  return PacketServer::make(workload);
}

}  // namespace ucm::bench
