// The ICRC of a CM packet (308 bytes) and of a full data packet, as computed on this CPU and portably.
#include <benchmark/benchmark.h>

#include <vector>

#include "wire/icrc.h"

namespace {

void icrc_of_packet(benchmark::State& state) {
  const std::vector<std::uint8_t> payload(static_cast<std::size_t>(state.range(0)), 0x5A);
  const ucm::wire::DatagramInfo info{.source = ucm::wire::IpAddress::ipv4(0x0A000001),
                                     .destination = ucm::wire::IpAddress::ipv4(0x0A000002),
                                     .source_port = 0xC000};
  for (auto _ : state) benchmark::DoNotOptimize(ucm::wire::icrc(info, payload));
  state.SetBytesProcessed(state.iterations() * state.range(0));
  state.SetLabel(ucm::wire::crc32_is_accelerated() ? "carry-less multiply" : "portable");
}
BENCHMARK(icrc_of_packet)->Arg(276)->Arg(1040)->Arg(4112);

void crc32_portable(benchmark::State& state) {
  const std::vector<std::uint8_t> bytes(static_cast<std::size_t>(state.range(0)), 0x5A);
  for (auto _ : state) benchmark::DoNotOptimize(ucm::wire::crc32_portable(0xFFFFFFFF, bytes));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(crc32_portable)->Arg(276)->Arg(4112);

}  // namespace
