#include "sim/storms.h"

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "sim/application.h"

namespace ucm::sim {
namespace {

constexpr TimeNs kMicrosecond = kNanosecondsPerMicrosecond;
constexpr TimeNs kMillisecond = kNanosecondsPerMillisecond;
constexpr TimeNs kSecond = kNanosecondsPerSecond;
constexpr std::uint16_t kPort = 7174;

// What hosts are: a packet takes 2 us of the processor, and the receive queue is as long as Linux' for QP 1, or as what
// a stock socket buffer holds.
constexpr Cpu kHost{.packet_cost = 2 * kMicrosecond, .queue_max = 512};
constexpr std::uint32_t kBacklog = 1024;     // the most that Linux grants
constexpr TimeNs kPatience = 120 * kSecond;  // of the scenarios themselves

// One server and some clients.
class Cluster {
 public:
  Cluster(Policy policy, std::size_t client_count, std::uint64_t seed = 1)
      : simulator(seed, {.delay = 50 * kMicrosecond}), programs(simulator) {
    simulator.record = false;
    for (std::size_t i = 0; i <= client_count; ++i) {
      const auto address = wire::IpAddress::ipv4(0x0a4d0001 + static_cast<std::uint32_t>(i));
      const NodeIndex node = policy == Policy::kUcm
                                 ? simulator.add_ucm(address)
                                 : simulator.add_linux(address, {.packet_lifetime = kLinuxNewerLifetime});
      simulator.set_cpu(node, kHost);
    }
    programs.listen(kServer, kPort, kBacklog);
  }

  static NodeIndex client(std::size_t number) { return 1 + number; }

  // When both ends were established; kNever when one was not.
  TimeNs established_at(const End& end) const {
    const End* peer = programs.peer_of(end);
    if (!end.established || peer == nullptr || !peer->established) return kNever;
    return std::max(*end.established, *peer->established);
  }
  void count_accepts(Storm& result, std::size_t useful) const {
    for (const End& end : programs.ends()) result.accepts += end.accepted || end.accept_failed;
    result.wasted = result.accepts - std::min(result.accepts, useful);
  }
  void count_packets(Storm& result) const {
    result.packets = simulator.traffic().sent;
    result.dropped = simulator.traffic().queue_full;
    UCM_CHECK(programs.violation().empty());
  }

  static constexpr NodeIndex kServer = 0;
  Simulator simulator;
  Applications programs;
};

// Takes the time since `start`, or counts a failure.
void take(Storm& result, TimeNs time, TimeNs start) {
  if (time == kNever) {
    ++result.failed;
    return;
  }
  result.times.push_back(time - start);
  result.total = std::max(result.total, time - start);
}

}  // namespace

Storm connect_storm(Policy policy, const ConnectStorm& storm) {
  Cluster cluster(policy, storm.clients);
  cluster.simulator.link().loss_per_mille = storm.loss_per_mille;
  cluster.programs.set_behaviour(Cluster::kServer,
                                 {.accept_cost = kSecond / static_cast<TimeNs>(storm.accepts_per_second)});
  for (std::size_t i = 0; i < storm.connections; ++i) {
    cluster.programs.connect(Cluster::client(i % storm.clients), Cluster::kServer, kPort);
  }
  cluster.simulator.run(kPatience);
  Storm result;
  for (std::size_t i = 0; i < storm.connections; ++i) {
    take(result, cluster.established_at(cluster.programs.ends()[i]), 0);
  }
  result.complete = result.failed == 0;
  cluster.count_accepts(result, storm.connections - result.failed);
  cluster.count_packets(result);
  return result;
}

Storm disconnect_storm(Policy policy, const DisconnectStorm& storm) {
  constexpr std::size_t kClients = 100;
  Cluster cluster(policy, kClients);
  std::vector<std::size_t> ends;
  for (std::size_t i = 0; i < storm.connections; ++i) {
    cluster.simulator.after(static_cast<TimeNs>(i) * 50 * kMicrosecond, [&cluster, &ends, i] {
      ends.push_back(cluster.programs.connect(Cluster::client(i % kClients), Cluster::kServer, kPort));
    });
  }
  cluster.simulator.run(kPatience);
  for (const std::size_t end : ends) UCM_CHECK(cluster.programs.ends()[end].established);
  cluster.simulator.link().loss_per_mille = storm.loss_per_mille;
  const TimeNs start = cluster.simulator.now();
  const std::uint64_t sent = cluster.simulator.traffic().sent;
  for (const std::size_t end : ends) cluster.programs.disconnect(end);
  cluster.simulator.run(start + kPatience);
  Storm result;
  for (const std::size_t number : ends) {
    const End& end = cluster.programs.ends()[number];
    const bool answered = end.disconnected && end.disconnect_status == 0;
    take(result, answered ? *end.disconnected : kNever, start);
  }
  result.complete = result.failed == 0;
  cluster.count_packets(result);
  result.packets -= sent;
  return result;
}

Storm disconnects_in_progress(const DisconnectsInProgress& storm) {
  Cluster cluster(Policy::kUcm, 2);
  const NodeIndex client = Cluster::client(0), gone = Cluster::client(1);
  for (std::size_t i = 0; i < storm.connections; ++i) cluster.programs.connect(gone, Cluster::kServer, kPort);
  cluster.simulator.run();
  cluster.programs.crash(gone);
  const TimeNs start = cluster.simulator.now();
  const std::size_t ends = cluster.programs.ends().size();
  for (std::size_t i = 0; i < ends; ++i) cluster.programs.disconnect(i);
  std::vector<std::size_t> others;
  for (int i = 10; i < 200; ++i) {
    cluster.simulator.after(i * kMillisecond,
                            [&] { others.push_back(cluster.programs.connect(client, Cluster::kServer, kPort)); });
  }
  cluster.simulator.run(start + kPatience);
  Storm result;
  for (const std::size_t number : others) {
    const End& end = cluster.programs.ends()[number];
    take(result, cluster.established_at(end), end.started);
  }
  result.complete = result.failed == 0;
  cluster.count_packets(result);
  return result;
}

Storm dead_address(Policy policy, const DeadAddress& storm) {
  Cluster cluster(policy, 2);
  const NodeIndex client = Cluster::client(0), dead = Cluster::client(1);
  cluster.programs.crash(dead);
  std::vector<std::size_t> doomed, others;
  for (std::size_t i = 0; i < storm.requests; ++i) doomed.push_back(cluster.programs.connect(client, dead, kPort));
  cluster.programs.set_behaviour(client, {.disconnect_delay = kMillisecond});
  for (TimeNs when = 10 * kMillisecond; when < 90 * kSecond; when += 10 * kMillisecond) {
    cluster.simulator.after(when, [&] { others.push_back(cluster.programs.connect(client, Cluster::kServer, kPort)); });
  }
  cluster.simulator.run(kPatience);
  Storm result;
  for (const std::size_t number : others) {
    const End& end = cluster.programs.ends()[number];
    take(result, cluster.established_at(end), end.started);
    if (cluster.established_at(end) != kNever) result.times.back() = cluster.established_at(end) - end.started;
  }
  result.complete = result.failed == 0;
  result.total = 0;
  for (const std::size_t number : doomed) {
    const End& end = cluster.programs.ends()[number];
    result.complete = result.complete && end.failed && end.status == -110;
    if (end.failed) result.total = std::max(result.total, *end.failed);
  }
  cluster.count_packets(result);
  return result;
}

Storm slow_server(Policy policy, const SlowServer& storm) {
  Cluster cluster(policy, storm.clients, storm.seed);
  cluster.programs.set_behaviour(Cluster::kServer,
                                 {.accept_cost = kSecond / static_cast<TimeNs>(storm.accepts_per_second)});
  // The current attempt at each queue of each client.
  std::vector<std::vector<std::size_t>> clients(storm.clients);
  const auto done_at = [&](std::size_t queue) { return cluster.established_at(cluster.programs.ends()[queue]); };
  std::function<void(std::size_t, std::size_t)> begin = [&](std::size_t client, std::size_t queue) {
    clients[client][queue] = cluster.programs.connect(Cluster::client(client), Cluster::kServer, kPort);
    if (storm.all_or_nothing && queue != 0) return;
    cluster.simulator.after(storm.patience, [&, client, queue] {
      auto& queues = clients[client];
      const std::size_t first = storm.all_or_nothing ? 0 : queue,
                        last = storm.all_or_nothing ? storm.queues : queue + 1;
      bool complete = true;
      for (std::size_t i = first; i < last; ++i) complete = complete && done_at(queues[i]) != kNever;
      if (complete) return;
      for (std::size_t i = first; i < last; ++i) cluster.programs.destroy(queues[i]);
      for (std::size_t i = first; i < last; ++i) begin(client, i);
    });
  };
  for (std::size_t client = 0; client < storm.clients; ++client) {
    clients[client].resize(storm.queues);
    const auto spread = static_cast<std::uint64_t>(storm.start_spread) + 1;
    cluster.simulator.after(static_cast<TimeNs>(cluster.simulator.random().below(spread)), [&, client] {
      for (std::size_t queue = 0; queue < storm.queues; ++queue) begin(client, queue);
    });
  }
  cluster.simulator.run(kPatience);
  Storm result;
  for (const auto& queues : clients) {
    TimeNs complete = 0;
    for (const std::size_t queue : queues) complete = std::max(complete, done_at(queue));
    take(result, complete, 0);
  }
  result.complete = result.failed == 0;
  cluster.count_accepts(result, result.times.size() * storm.queues);
  cluster.count_packets(result);
  return result;
}

}  // namespace ucm::sim
