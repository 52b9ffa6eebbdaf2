// The life of a connection between two nodes in one thread, with all that ucmd does for it but sockets and rings:
// calls, address resolution, the CM engine, ICRCs, events; with and without the flight recorder, and beside connections
// that stay. The time is for both sides together.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <memory>
#include <optional>
#include <vector>

#include "base/check.h"
#include "net/memory_port.h"
#include "node/core.h"
#include "unit/node/fake_host.h"

namespace {

using ucm::TimeNs;
using ucm::ipc::CmCall;
using ucm::ipc::CmCommand;
using ucm::ipc::CmEventType;
using ucm::node::FlightRecorder;

constexpr auto kActive = ucm::wire::IpAddress::ipv4(0x0A000001);
constexpr auto kPassive = ucm::wire::IpAddress::ipv4(0x0A000002);
constexpr std::uint16_t kPort = 7174;
// Of one program, each with a listener of its own; a node refuses more IDs than that.
constexpr std::uint32_t kConnectionsOfASession = 200'000;
// A peer has only so many ports to connect from.
constexpr std::uint32_t kConnectionsOfAPeer = 20'000;

ucm::ipc::SocketAddress address(const ucm::wire::IpAddress& ip, ucm::node::SessionId listener) {
  return {.family = 4, .port = static_cast<std::uint16_t>(kPort + listener), .address = ip.bytes};
}

struct BenchNode {
  BenchNode(ucm::net::MemoryNetwork& network, const ucm::wire::IpAddress& ip, std::uint64_t seed, std::size_t records)
      : host(ip),
        port(network.attach({ip}, static_cast<std::uint16_t>(0xC000 + seed))),
        core(*port, host,
             {.deliver_event = [this](ucm::node::LinkId, const ucm::ipc::CmEvent& event) { last = event; },
              .deliver_data = [](std::uint32_t, const ucm::wire::DatagramInfo&, ucm::Bytes) {},
              .owns_qpn = [](ucm::node::SessionId, std::uint32_t) { return true; }},
             ucm::RandomKey{seed, seed}) {
    if (records == 0) return;
    recorder.emplace(records);
    core.record(*recorder);
  }

  ucm::ipc::CmReply call(TimeNs now, const CmCommand& command) {
    const auto reply = core.execute(now, session, 1, command);
    UCM_CHECK(reply.error == 0);
    core.turn(now);
    return reply;
  }
  std::uint32_t expect(TimeNs now, CmEventType type) {
    core.receive(now);
    core.turn(now);
    UCM_CHECK(last.type == type);
    return last.id;
  }

  ucm::node::SessionId session = 1;
  ucm::test::FakeHost host;
  std::unique_ptr<ucm::net::PacketPort> port;
  ucm::ipc::CmEvent last;
  std::optional<FlightRecorder> recorder;
  ucm::node::Core core;
};

struct Ends {
  std::uint32_t active, passive;
};

class World {
 public:
  // With one node that listens, and as many that connect to it as it takes.
  explicit World(std::size_t records, std::uint32_t live = 0) : passive_(network_, kPassive, 2, records) {
    for (std::uint32_t first = 0; first < live + kConnectionsOfAPeer; first += kConnectionsOfAPeer) {
      const auto number = static_cast<std::uint32_t>(peers_.size());
      const auto ip = number == 0 ? kActive : ucm::wire::IpAddress::ipv4(0x0A010000 + number);
      peers_.push_back(std::make_unique<BenchNode>(network_, ip, 100 + number, records));
    }
    for (std::uint32_t i = 0; i < live; ++i) {
      if (i % kConnectionsOfASession == 0) start_program();
      connect(*peers_[1 + i / kConnectionsOfAPeer]);
    }
    start_program();
  }

  void life() {
    BenchNode& active = *peers_[0];
    disconnect(active, connect(active));
  }

 private:
  void start_program() {
    ++passive_.session;
    const std::uint32_t id = create(passive_);
    passive_.call(now_, {.call = CmCall::kBindAddr, .id = id, .source = address(kPassive, passive_.session)});
    passive_.call(now_, {.call = CmCall::kListen, .id = id});
  }

  std::uint32_t create(BenchNode& node) {
    return node.call(now_, {.call = CmCall::kCreateId, .qp_type = 2, .port_space = 0x0106}).id;
  }

  Ends connect(BenchNode& peer) {
    now_ += 1000;
    const std::uint32_t active = create(peer);
    peer.call(now_, {.call = CmCall::kResolveAddr,
                     .id = active,
                     .timeout_ms = 1,
                     .destination = address(kPassive, passive_.session)});
    peer.call(now_, {.call = CmCall::kResolveRoute, .id = active, .timeout_ms = 1});
    peer.call(now_, {.call = CmCall::kConnect, .id = active, .conn = {.qp_num = active}});
    const std::uint32_t passive = passive_.expect(now_, CmEventType::kConnectRequest);
    passive_.call(now_, {.call = CmCall::kRequestTaken, .id = passive});
    passive_.call(now_, {.call = CmCall::kAccept, .id = passive, .conn = {.qp_num = passive}});
    peer.expect(now_, CmEventType::kConnectResponse);
    peer.call(now_, {.call = CmCall::kEstablish, .id = active});
    passive_.expect(now_, CmEventType::kEstablished);
    return {active, passive};
  }

  void disconnect(BenchNode& peer, Ends ends) {
    peer.call(now_, {.call = CmCall::kDisconnect, .id = ends.active});
    passive_.expect(now_, CmEventType::kDisconnected);
    passive_.call(now_, {.call = CmCall::kDisconnect, .id = ends.passive});
    peer.expect(now_, CmEventType::kDisconnected);
    peer.call(now_, {.call = CmCall::kDestroyId, .id = ends.active});
    passive_.call(now_, {.call = CmCall::kDestroyId, .id = ends.passive});
  }

  ucm::net::MemoryNetwork network_;
  BenchNode passive_;
  std::vector<std::unique_ptr<BenchNode>> peers_;  // the first is for connections that do not stay
  TimeNs now_ = ucm::kNanosecondsPerSecond;
};

void connection_life(benchmark::State& state) {
  World world(static_cast<std::size_t>(state.range(0)));
  for (int i = 0; i < 1000; ++i) world.life();
  for (auto _ : state) world.life();
}
BENCHMARK(connection_life)->ArgName("records")->Arg(0)->Arg(65536)->Iterations(20'000);

std::size_t allocated() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// Each connection that stays has its two ends in this process: bytes are of one end.
void connection_life_beside(benchmark::State& state) {
  const auto live = static_cast<std::uint32_t>(state.range(0));
  const std::size_t before = allocated();
  World world(0, live);
  state.counters["bytes"] = static_cast<double>(allocated() - before) / (2.0 * live);
  for (int i = 0; i < 1000; ++i) world.life();
  for (auto _ : state) world.life();
}
BENCHMARK(connection_life_beside)->ArgName("live")->Arg(1'000)->Arg(100'000)->Arg(1'000'000)->Iterations(20'000);

}  // namespace
