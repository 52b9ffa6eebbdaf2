// The life of a connection between two protocol engines in one thread with nothing in between: REQ, REP, RTU, DREQ,
// DREP and both sides' events. Beside it, `live` other connections are established; every life ends one of them, picked
// at random, and takes its place. The time is for both sides together.
#include <benchmark/benchmark.h>

#include <vector>

#include "allocation_counter.h"
#include "base/check.h"
#include "base/random.h"
#include "cm/engine.h"

namespace {

using ucm::TimeNs;
using ucm::cm::ConnectionId;
using ucm::cm::Engine;

constexpr std::uint64_t kServiceId = ucm::wire::ip_service_id(ucm::wire::PortSpace::kTcp, 7174);
constexpr auto kActive = ucm::wire::IpAddress::ipv4(0x0A000001);
constexpr auto kPassive = ucm::wire::IpAddress::ipv4(0x0A000002);
constexpr ucm::cm::Path kToPassive{.local = kActive, .remote = kPassive};
constexpr ucm::cm::Path kToActive{.local = kPassive, .remote = kActive};

class Pair {
 public:
  struct Ends {
    ConnectionId active{}, passive{};
  };

  explicit Pair(std::size_t live) : active_(config(1)), passive_(config(2)) {
    UCM_CHECK(passive_.listen({.service_id = kServiceId, .address = ucm::wire::IpAddress::ipv4_any()}));
    ends_.reserve(live);
    for (std::size_t i = 0; i < live; ++i) ends_.push_back(connect(static_cast<std::uint32_t>(i)));
  }

  void live() {
    now_ += 1000;
    const auto victim = static_cast<std::uint32_t>(choice_.below(ends_.size()));
    disconnect(ends_[victim]);
    ends_[victim] = connect(victim);
  }

 private:
  static ucm::cm::Config config(std::uint64_t seed) {
    return {.random_key = {seed, ~seed}, .connections_max = 1u << 21};
  }

  Ends connect(std::uint32_t qpn) {
    const auto active = active_.connect(now_, {.path = kToPassive,
                                               .ca_guid = 1,
                                               .service_id = kServiceId,
                                               .params = {.qpn = qpn, .retry_count = 7, .rnr_retry_count = 7}});
    UCM_CHECK(active.has_value());
    carry(active_, passive_, kToActive);
    const ConnectionId passive = passive_.poll_event()->connection;
    passive_.request_taken(now_, passive);
    UCM_CHECK(passive_.accept(now_, passive, {.ca_guid = 2, .params = {.qpn = qpn}}));
    carry(passive_, active_, kToPassive);
    UCM_CHECK(active_.poll_event()->connection == *active);
    UCM_CHECK(active_.establish(now_, *active));
    carry(active_, passive_, kToActive);
    UCM_CHECK(passive_.poll_event()->type == ucm::cm::EventType::kEstablished);
    return {*active, passive};
  }

  void disconnect(const Ends& ends) {
    active_.disconnect(now_, ends.active);
    carry(active_, passive_, kToActive);
    UCM_CHECK(passive_.poll_event()->type == ucm::cm::EventType::kDisconnected);
    passive_.disconnect(now_, ends.passive);
    carry(passive_, active_, kToPassive);
    UCM_CHECK(active_.poll_event()->type == ucm::cm::EventType::kDisconnected);
    active_.destroy(now_, ends.active);
    passive_.destroy(now_, ends.passive);
  }

  void carry(Engine& from, Engine& to, const ucm::cm::Path& path) {
    while (const auto packet = from.poll_packet()) to.on_packet(now_, path, packet->mad);
  }

  Engine active_, passive_;
  std::vector<Ends> ends_;
  ucm::Random choice_{1};
  TimeNs now_ = ucm::kNanosecondsPerSecond;
};

void connection_life(benchmark::State& state) {
  const auto live = static_cast<std::size_t>(state.range(0));
  const std::size_t bytes_before = ucm::test::bytes_held();
  Pair pair(live);
  const std::size_t bytes = ucm::test::bytes_held() - bytes_before;
  for (int i = 0; i < 1000; ++i) pair.live();
  const std::size_t allocations_before = ucm::test::allocations();
  for (auto _ : state) pair.live();
  const std::size_t allocations = ucm::test::allocations() - allocations_before;
  const auto lives = static_cast<double>(state.iterations());
  state.counters["lives"] = benchmark::Counter(lives, benchmark::Counter::kIsRate);
  state.counters["seconds/side"] =
      benchmark::Counter(2 * lives, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["allocations"] = static_cast<double>(allocations) / lives;
  // Of one side; with few connections the engine itself is most of it.
  state.counters["bytes"] = static_cast<double>(bytes) / static_cast<double>(live) / 2;
}
BENCHMARK(connection_life)->ArgName("live")->Arg(1)->Arg(1'000)->Arg(100'000)->Arg(1'000'000);

}  // namespace
