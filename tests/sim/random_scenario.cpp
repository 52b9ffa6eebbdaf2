#include "sim/random_scenario.h"

#include <algorithm>
#include <sstream>

#include "base/hash.h"
#include "sim/application.h"
#include "support/cm_text.h"

namespace ucm::sim {
namespace {

constexpr TimeNs kMicrosecond = kNanosecondsPerMicrosecond;
constexpr TimeNs kMillisecond = kNanosecondsPerMillisecond;
constexpr TimeNs kSecond = kNanosecondsPerSecond;
constexpr std::uint16_t kPort = 7174;

constexpr TimeNs kTroubleTime = 20 * kSecond;  // when everything begins
// Long beyond any timer, even those that a corrupted message can set.
constexpr TimeNs kEnd = 1'000'000 * kSecond;

class Scenario {
 public:
  Scenario(std::uint64_t seed, const ScenarioOptions& options)
      : options_(options), choice_(seed * 0x9e3779b97f4a7c15 + 1), simulator_(seed, {}), programs_(simulator_) {
    choose_network();
    const std::size_t nodes = 2 + choice_.below(4);
    for (NodeIndex node = 0; node < nodes; ++node) add_node(node);
    if (once_in(4)) choose_bad_link();
    for (std::uint64_t i = 1 + choice_.below(30); i > 0; --i) plan_connect();
    if (once_in(8)) plan_burst();
    for (std::uint64_t i = choice_.below(6); i > 0; --i) plan_accident();
    trace();
  }

  ScenarioResult run() {
    ScenarioResult result;
    const bool at_rest = simulator_.run(kEnd);
    if (at_rest) programs_.finish();
    result.violation = at_rest || !programs_.violation().empty() ? programs_.violation() : "never at rest";
    result.description = text_.str();
    StateHash hash;
    for (const SentPacket& packet : simulator_.sent()) hash.add(Bytes(packet.packet.mad));
    result.hash = hash.value();
    result.packets = simulator_.sent().size();
    result.connections = static_cast<std::uint64_t>(
        std::count_if(programs_.ends().begin(), programs_.ends().end(), [](const End& e) { return e.established; }));
    return result;
  }

 private:
  bool once_in(std::uint64_t n) { return choice_.chance(1, n); }
  TimeNs below(TimeNs bound) { return static_cast<TimeNs>(choice_.below(static_cast<std::uint64_t>(bound))); }
  std::uint32_t per_mille(std::uint64_t bound) { return static_cast<std::uint32_t>(choice_.below(bound)); }
  NodeIndex any_node() { return choice_.below(simulator_.node_count()); }

  LinkOptions faults() {
    LinkOptions link{.delay = kMicrosecond << choice_.below(13)};
    if (once_in(2)) link.loss_per_mille = per_mille(once_in(4) ? 500 : 100);
    if (once_in(4)) link.jitter = below(20 * kMillisecond);
    if (once_in(3)) link.duplicate_per_mille = per_mille(200);
    if (once_in(4)) link.reorder_per_mille = per_mille(200);
    if (once_in(4)) link.replay_per_mille = per_mille(100);
    if (once_in(8)) link.corrupt_per_mille = per_mille(100);
    if (once_in(8)) link.packets_per_second = 1 + choice_.below(1000);
    return link;
  }

  void describe(const char* name, const LinkOptions& link) {
    text_ << name << ": delay " << link.delay / kMicrosecond << " us, jitter " << link.jitter / kMicrosecond
          << " us, rate " << link.packets_per_second << ", per mille: loss " << link.loss_per_mille << ", duplicate "
          << link.duplicate_per_mille << ", reorder " << link.reorder_per_mille << ", replay " << link.replay_per_mille
          << ", corrupt " << link.corrupt_per_mille << (link.icrc_checked ? "" : " unchecked") << "\n";
  }

  void choose_network() {
    if (!once_in(6)) simulator_.link() = faults();
    if (once_in(12)) {
      simulator_.link().corrupt_per_mille = 1 + per_mille(50);
      simulator_.link().icrc_checked = false;
      programs_.believes_messages = false;
    }
    describe("network", simulator_.link());
  }

  void choose_bad_link() {
    const NodeIndex from = any_node(), to = any_node();
    const bool icrc_checked = simulator_.link().icrc_checked;
    LinkOptions& link = simulator_.link(from, to);
    link = faults();
    link.icrc_checked = icrc_checked;
    if (once_in(8)) link.loss_per_mille = 1000;
    text_ << "from " << from << " to " << to << " ";
    describe("link", link);
  }

  void add_node(NodeIndex node) {
    const auto address = wire::IpAddress::ipv4(0x0a4d0001 + static_cast<std::uint32_t>(node));
    const std::uint64_t kind = choice_.below(6);  // 0, 1: Linux
    const LinuxConfig linux_config{.packet_lifetime = once_in(2) ? kLinuxOlderLifetime : kLinuxNewerLifetime,
                                   .timer_wheel = once_in(2)};
    if (options_.wrap) {
      simulator_.add_node(address, [this, address, node](std::uint64_t seed) {
        const cm::Config config{.random_key = {seed, ~seed}};
        return options_.wrap(std::make_unique<UcmNode>(address, simulator_.guid(node), config));
      });
    } else if (kind < 2) {
      simulator_.add_linux(address, linux_config);
    } else {
      simulator_.add_ucm(address);
    }
    if (once_in(8)) {
      simulator_.set_cpu(node, {.packet_cost = below(10 * kMillisecond) + 1, .queue_max = 1 + choice_.below(20)});
    }

    const auto delay = [&](TimeNs usual, TimeNs rare) { return once_in(4) ? below(rare) : below(usual); };
    Behaviour b;
    b.accept_delay = once_in(20) ? kNever : delay(100 * kMillisecond, 30 * kSecond);
    if (once_in(6)) b.accept_cost = 1 + below(once_in(3) ? 2 * kSecond : 20 * kMillisecond);
    b.establish_delay = once_in(20) ? kNever : delay(10 * kMillisecond, 10 * kSecond);
    if (!once_in(6)) b.disconnect_delay = kMillisecond + delay(100 * kMillisecond, 10 * kSecond);
    b.answer_delay = once_in(12) ? kNever : delay(10 * kMillisecond, 3 * kSecond);
    if (once_in(8)) b.patience = 1 + below(5 * kSecond);
    b.tries = 1 + static_cast<unsigned>(choice_.below(4));
    if (once_in(8)) b.vanish_delay = 1 + delay(50 * kMillisecond, 10 * kSecond);
    b.rejects = once_in(10);
    b.destroys_when_over = !once_in(5);
    programs_.set_behaviour(node, b);
    const auto backlog = static_cast<std::uint32_t>(1 + choice_.below(once_in(3) ? 3 : 256));
    programs_.listen(node, kPort, backlog);
    text_ << "node " << node << ": " << (options_.wrap || kind >= 2 ? "UCM" : "Linux, packet lifetime ");
    if (!options_.wrap && kind < 2) text_ << int{linux_config.packet_lifetime};
    text_ << ", backlog " << backlog << "\n";
  }

  // Now and then to a port where nobody listens, and to an address that nobody has.
  void plan_connect() {
    const NodeIndex from = any_node(), to = any_node();
    const std::uint16_t port = once_in(16) ? kPort + 1 : kPort;
    simulator_.after(below(kTroubleTime), [this, from, to, port] {
      if (simulator_.is_up(from)) programs_.connect(from, to, port);
    });
  }

  // Everybody wants to one server, at once.
  void plan_burst() {
    const NodeIndex to = any_node();
    const TimeNs when = below(kTroubleTime);
    const std::uint64_t connects = 20 + choice_.below(180);
    text_ << connects << " connects to node " << to << " at " << when / kMillisecond << " ms\n";
    for (std::uint64_t i = 0; i < connects; ++i) {
      const NodeIndex from = any_node();
      simulator_.after(when, [this, from, to] {
        if (simulator_.is_up(from)) programs_.connect(from, to, kPort);
      });
    }
  }

  void plan_accident() {
    const TimeNs when = below(kTroubleTime);
    switch (choice_.below(4)) {
      case 0: {
        const NodeIndex node = any_node();
        const TimeNs down = below(kTroubleTime);
        text_ << "node " << node << " crashes at " << when / kMillisecond << " ms for " << down / kMillisecond
              << " ms\n";
        simulator_.after(when, [this, node, down] {
          if (!simulator_.is_up(node)) return;
          programs_.crash(node);
          simulator_.after(down, [this, node] { programs_.restart(node); });
        });
        return;
      }
      case 1: {
        const std::uint64_t group = choice_.next();
        const TimeNs length = below(once_in(4) ? 120 * kSecond : kSecond);
        text_ << "partition at " << when / kMillisecond << " ms for " << length / kMillisecond << " ms\n";
        simulator_.after(when, [this, group, length] { simulator_.partition(group, simulator_.now() + length); });
        return;
      }
      case 2:
      case 3: {
        const bool destroys = once_in(2);
        const std::uint64_t draw = choice_.next();
        simulator_.after(when, [this, destroys, draw] {
          if (programs_.ends().empty()) return;
          const std::size_t end = draw % programs_.ends().size();
          if (destroys) {
            programs_.destroy(end);
          } else if (programs_.ends()[end].established) {
            programs_.disconnect(end);
          }
        });
        return;
      }
    }
  }

  void trace() {
    if (options_.trace == nullptr) return;
    *options_.trace << text_.str();
    const auto deliver = simulator_.on_event;
    simulator_.on_event = [this, deliver](NodeIndex node, const Event& event) {
      *options_.trace << simulator_.now() << " node " << node << " event " << static_cast<int>(event.type) << " of "
                      << std::hex << event.connection << std::dec << " user " << event.user << " status "
                      << event.status << "\n";
      deliver(node, event);
    };
    simulator_.on_send = [this](const SentPacket& sent) {
      *options_.trace << sent.time << " " << test::address_text(sent.packet.from) << " > "
                      << test::address_text(sent.packet.to) << (sent.lost ? " LOST " : " ")
                      << test::cm_text(sent.packet.mad) << "\n";
    };
  }

  const ScenarioOptions& options_;
  Random choice_;
  Simulator simulator_;
  Applications programs_;
  std::ostringstream text_;
};

}  // namespace

ScenarioResult run_random_scenario(std::uint64_t seed, const ScenarioOptions& options) {
  return Scenario(seed, options).run();
}

}  // namespace ucm::sim
