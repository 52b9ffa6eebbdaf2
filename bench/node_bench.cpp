// The life of a connection between two nodes in one thread, with all that ucmd does for it but sockets and rings:
// calls, address resolution, the CM engine, ICRCs, events; with and without the flight recorder. The time is for both
// sides together.
#include <benchmark/benchmark.h>

#include <memory>
#include <optional>

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

ucm::ipc::SocketAddress address(const ucm::wire::IpAddress& ip) {
  return {.family = 4, .port = kPort, .address = ip.bytes};
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
    const auto reply = core.execute(now, 1, 1, command);
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

  ucm::test::FakeHost host;
  std::unique_ptr<ucm::net::PacketPort> port;
  ucm::ipc::CmEvent last;
  std::optional<FlightRecorder> recorder;
  ucm::node::Core core;
};

class Pair {
 public:
  explicit Pair(std::size_t records)
      : active_(network_, kActive, 1, records), passive_(network_, kPassive, 2, records) {
    const std::uint32_t id = create(passive_);
    passive_.call(now_, {.call = CmCall::kBindAddr, .id = id, .source = address(kPassive)});
    passive_.call(now_, {.call = CmCall::kListen, .id = id});
  }

  void live() {
    now_ += 1000;
    const std::uint32_t active = create(active_);
    active_.call(now_, {.call = CmCall::kResolveAddr, .id = active, .timeout_ms = 1, .destination = address(kPassive)});
    active_.call(now_, {.call = CmCall::kResolveRoute, .id = active, .timeout_ms = 1});
    active_.call(now_, {.call = CmCall::kConnect, .id = active, .conn = {.qp_num = active}});
    const std::uint32_t passive = passive_.expect(now_, CmEventType::kConnectRequest);
    passive_.call(now_, {.call = CmCall::kRequestTaken, .id = passive});
    passive_.call(now_, {.call = CmCall::kAccept, .id = passive, .conn = {.qp_num = passive}});
    active_.expect(now_, CmEventType::kConnectResponse);
    active_.call(now_, {.call = CmCall::kEstablish, .id = active});
    passive_.expect(now_, CmEventType::kEstablished);
    active_.call(now_, {.call = CmCall::kDisconnect, .id = active});
    passive_.expect(now_, CmEventType::kDisconnected);
    passive_.call(now_, {.call = CmCall::kDisconnect, .id = passive});
    active_.expect(now_, CmEventType::kDisconnected);
    active_.call(now_, {.call = CmCall::kDestroyId, .id = active});
    passive_.call(now_, {.call = CmCall::kDestroyId, .id = passive});
  }

 private:
  std::uint32_t create(BenchNode& node) {
    return node.call(now_, {.call = CmCall::kCreateId, .qp_type = 2, .port_space = 0x0106}).id;
  }

  ucm::net::MemoryNetwork network_;
  BenchNode active_, passive_;
  TimeNs now_ = ucm::kNanosecondsPerSecond;
};

void connection_life(benchmark::State& state) {
  Pair pair(static_cast<std::size_t>(state.range(0)));
  for (int i = 0; i < 1000; ++i) pair.live();
  for (auto _ : state) pair.live();
}
BENCHMARK(connection_life)->ArgName("records")->Arg(0)->Arg(65536)->Iterations(20'000);

}  // namespace
