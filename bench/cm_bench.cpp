// One connection's whole life between two protocol engines with nothing in between: REQ, REP, RTU, DREQ, DREP and both
// sides' events. The time is for both sides together.
#include <benchmark/benchmark.h>

#include <optional>

#include "base/check.h"
#include "cm/engine.h"

namespace {

using ucm::TimeNs;

constexpr std::uint64_t kServiceId = ucm::wire::ip_service_id(ucm::wire::PortSpace::kTcp, 7174);

struct Side {
  explicit Side(std::uint64_t seed) : engine(ucm::cm::Config{.random_key = {seed, ~seed}}) {}
  ucm::cm::Engine engine;
  std::optional<ucm::cm::Event> last;
};

class Pair {
 public:
  Pair() : active_(1), passive_(2) {
    UCM_CHECK(passive_.engine.listen({.service_id = kServiceId, .address = ucm::wire::IpAddress::ipv4_any()}));
  }

  // Time goes on by more than timewait takes, so that what is over is forgotten.
  void live() {
    const auto connection = active_.engine.connect(now_, {.path = {.local = kActive, .remote = kPassive},
                                                          .ca_guid = 1,
                                                          .service_id = kServiceId,
                                                          .params = {.qpn = next_qpn()}});
    UCM_CHECK(connection.has_value());
    carry();
    const auto request = passive_.last->connection;
    passive_.engine.request_taken(now_, request);
    UCM_CHECK(passive_.engine.accept(now_, request, {.ca_guid = 2, .params = {.qpn = next_qpn()}}));
    carry();
    UCM_CHECK(active_.engine.establish(now_, *connection));
    carry();
    UCM_CHECK(passive_.last->type == ucm::cm::EventType::kEstablished);
    active_.engine.disconnect(now_, *connection);
    carry();
    passive_.engine.disconnect(now_, request);
    carry();
    active_.engine.destroy(now_, *connection);
    passive_.engine.destroy(now_, request);
    carry();
    now_ += 10 * ucm::kNanosecondsPerSecond;
    expire(active_);
    expire(passive_);
  }

 private:
  static constexpr auto kActive = ucm::wire::IpAddress::ipv4(0x0A000001);
  static constexpr auto kPassive = ucm::wire::IpAddress::ipv4(0x0A000002);

  std::uint32_t next_qpn() { return qpn_ = (qpn_ + 1) & 0xFFFFFF; }

  void carry() {
    while (carry(active_, passive_) | carry(passive_, active_)) {
    }
  }

  bool carry(Side& from, Side& to) {
    bool any = false;
    while (const auto packet = from.engine.poll_packet()) {
      to.engine.on_packet(now_, {.local = packet->path.remote, .remote = packet->path.local}, packet->mad);
      any = true;
    }
    while (auto event = from.engine.poll_event()) from.last = event;
    return any;
  }

  void expire(Side& side) {
    while (side.engine.next_deadline() <= now_) side.engine.on_deadline(now_);
    while (side.engine.poll_event()) {
    }
  }

  Side active_, passive_;
  TimeNs now_ = ucm::kNanosecondsPerSecond;
  std::uint32_t qpn_ = 0x10;
};

void connection_life(benchmark::State& state) {
  Pair pair;
  for (auto _ : state) pair.live();
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(connection_life);

}  // namespace
