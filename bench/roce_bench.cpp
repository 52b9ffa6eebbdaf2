// What one work request costs in the software device's engine, both sides together and without any I/O.
#include <benchmark/benchmark.h>

#include <array>
#include <vector>

#include "base/check.h"
#include "roce/engine.h"

namespace {

using namespace ucm;
using namespace ucm::roce;

constexpr Qpn kQpn = 0x11;
constexpr std::size_t kMemorySize = 1 << 20;
constexpr std::uint32_t kAllAccess = 15;

struct Side {
  Engine engine{RandomKey{1, 2}};
  wire::IpAddress address;
  PdId pd{};
  CqId cq{};
  MrKeys keys;
  std::vector<std::uint64_t> memory = std::vector<std::uint64_t>(kMemorySize / sizeof(std::uint64_t));

  explicit Side(std::uint32_t ipv4) : address(wire::IpAddress::ipv4(ipv4)) {
    pd = *engine.alloc_pd();
    cq = *engine.create_cq(1024, 0);
    keys = *engine.reg_mr({.pd = pd, .address = memory.data(), .length = kMemorySize, .access = kAllAccess});
    QpParams params{.qpn = kQpn,
                    .pd = pd,
                    .send_cq = cq,
                    .recv_cq = cq,
                    .capacity = {.send_wr_max = 64, .recv_wr_max = 64, .send_sge_max = 1, .recv_sge_max = 1}};
    UCM_CHECK(engine.create_qp(params).has_value());
  }
  void modify(QpAttributes attributes, QpState state, std::uint32_t mask) {
    attributes.state = state;
    UCM_CHECK(engine.modify_qp(0, kQpn, attributes, mask | kQpState).has_value());
  }
  void connect(const Side& peer) {
    const QpAttributes attributes{.access = kAllAccess,
                                  .address = {.local = address, .remote = peer.address},
                                  .path_mtu = 5,
                                  .timeout = 14,
                                  .retry_count = 7,
                                  .rnr_retry = 7,
                                  .max_rd_atomic = 16,
                                  .max_dest_rd_atomic = 16,
                                  .dest_qpn = kQpn};
    modify(attributes, QpState::kInit, kQpAccess);
    modify(attributes, QpState::kRtr,
           kQpAddress | kQpPathMtu | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer | kQpDestQpn);
    modify(attributes, QpState::kRts, kQpTimeout | kQpRetryCount | kQpRnrRetry | kQpSqPsn | kQpMaxRdAtomic);
  }
  // Sends all it has to `peer`; whether there was anything.
  bool send_all(TimeNs now, Side& peer, std::int64_t& packets) {
    std::array<std::uint8_t, kPacketSizeMax> packet;
    wire::DatagramInfo info;
    bool any = false;
    while (const std::size_t size = engine.poll_packet(now, 0xC001, info, packet)) {
      peer.engine.on_packet(now, info, Bytes(packet).first(size));
      ++packets;
      any = true;
    }
    return any;
  }
};

void work_request(benchmark::State& state, SendOpcode opcode) {
  Side a(0x0A000001);
  Side b(0x0A000002);
  a.connect(b);
  b.connect(a);
  const auto length = static_cast<std::uint32_t>(state.range(0));
  const Sge from{0, length, a.keys.lkey};
  const Sge into{0, length, b.keys.lkey};
  std::int64_t packets = 0;
  TimeNs now = 0;
  for (auto _ : state) {
    ++now;
    if (opcode == SendOpcode::kSend) UCM_CHECK(b.engine.post_recv(now, kQpn, {.sges = {&into, 1}}).has_value());
    const SendRequest request{.opcode = opcode, .signaled = true, .rkey = b.keys.rkey, .sges = {&from, 1}};
    UCM_CHECK(a.engine.post_send(now, kQpn, request).has_value());
    while (a.send_all(now, b, packets) || b.send_all(now, a, packets)) {
    }
    Completion completion;
    UCM_CHECK(*a.engine.poll_cq(a.cq, {&completion, 1}) == 1 && completion.status == CompletionStatus::kSuccess);
    while (*b.engine.poll_cq(b.cq, {&completion, 1}) != 0) {
    }
  }
  state.SetBytesProcessed(state.iterations() * length);
  state.counters["packets"] = benchmark::Counter(static_cast<double>(packets), benchmark::Counter::kIsRate);
}
BENCHMARK_CAPTURE(work_request, send, SendOpcode::kSend)->Arg(64)->Arg(4096)->Arg(65536);
BENCHMARK_CAPTURE(work_request, write, SendOpcode::kWrite)->Arg(64)->Arg(65536);
BENCHMARK_CAPTURE(work_request, read, SendOpcode::kRead)->Arg(64)->Arg(65536);
BENCHMARK_CAPTURE(work_request, fetch_add, SendOpcode::kFetchAdd)->Arg(8);

}  // namespace
