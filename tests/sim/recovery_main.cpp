// Prints the tables of docs/recovery.md: what loss costs, by who is at which end and by when UCM repeats.
//   sim_recovery [--update=docs/recovery.md | --check=docs/recovery.md]
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "sim/application.h"
#include "sim/report.h"

namespace ucm::sim {
namespace {

using wire::Attribute;

constexpr TimeNs kMicrosecond = kNanosecondsPerMicrosecond;
constexpr TimeNs kMillisecond = kNanosecondsPerMillisecond;
constexpr TimeNs kSecond = kNanosecondsPerSecond;
constexpr TimeNs kTrip = 50 * kMicrosecond;
constexpr std::uint16_t kPort = 7174;

// A host: UCM with the given recovery, or Linux.
struct Party {
  bool is_linux = false;
  cm::Recovery recovery{};
};

constexpr Party kUcm{};
constexpr Party kLinux{.is_linux = true};

NodeIndex add(Simulator& simulator, const Party& party, std::uint32_t address) {
  const auto ip = wire::IpAddress::ipv4(address);
  if (party.is_linux) return simulator.add_linux(ip, {.packet_lifetime = kLinuxNewerLifetime});
  return simulator.add_ucm(ip, {.recovery = party.recovery});
}

// ---- One message lost.

struct Single {
  Party client, server;
  bool known;  // there was a connection before
};

// From connect() until both sides are established, and from disconnect() to its event on the same side.
struct Times {
  TimeNs setup = 0;
  TimeNs teardown = 0;
};

// Of messages by their numbers: the first one after the time is 0.
struct Loss {
  TimeNs after;
  std::uint64_t mask;
};

Times run_single(const Single& single, const Loss& loss, const Behaviour& client_does, const Behaviour& server_does) {
  Simulator simulator(1, {.delay = kTrip});
  Applications programs(simulator);
  const NodeIndex client = add(simulator, single.client, 0x0a4d0002);
  const NodeIndex server = add(simulator, single.server, 0x0a4d0001);
  programs.listen(server, kPort);
  if (single.known) {
    programs.set_behaviour(client, {.disconnect_delay = kSecond});
    for (int i = 0; i < 8; ++i) programs.connect(client, server, kPort);
    simulator.run();
  }
  programs.set_behaviour(client, client_does);
  programs.set_behaviour(server, server_does);
  simulator.after(loss.after, [&] { simulator.link().loss_mask = loss.mask << simulator.traffic().sent; });
  const std::size_t number = programs.ends().size();
  simulator.after(kMicrosecond, [&] { programs.connect(client, server, kPort); });
  simulator.run();
  const End& active = programs.ends()[number];
  const End& passive = *programs.peer_of(active);
  const End& closing = active.disconnecting ? active : passive;
  return {std::max(*active.established, passive.established.value_or(0)) - active.started,
          *closing.disconnected - *closing.disconnecting};
}

void print_single_losses(Report& report) {
  const Single singles[] = {{kLinux, kLinux, true}, {kUcm, kLinux, true}, {kUcm, kLinux, false}, {kLinux, kUcm, true},
                            {kLinux, kUcm, false},  {kUcm, kUcm, true},   {kUcm, kUcm, false}};
  report.text(
      "One message lost, round trip 100 µs: the time until both sides are established, or from disconnect() to its "
      "event.");
  report.header({"lost", "Linux → Linux", "UCM → Linux", "first contact", "Linux → UCM", "first contact", "UCM → UCM",
                 "first contact"});
  constexpr TimeNs kLife = 300 * kSecond;
  const Behaviour plain{.disconnect_delay = kLife};
  const Behaviour keeps_its_id{.destroys_when_over = false};
  struct Row {
    const char* name;
    Loss loss;
    bool teardown;
    Behaviour server;
  };
  constexpr TimeNs kEnd = kLife - kSecond;
  const Row rows[] = {{"nothing, connecting", {0, 0}, false, {}},
                      {"REQ", {0, 0b001}, false, {}},
                      {"REP", {0, 0b010}, false, {}},
                      {"RTU", {0, 0b100}, false, {}},
                      {"nothing, disconnecting", {kEnd, 0}, true, {}},
                      {"DREQ", {kEnd, 0b01}, true, {}},
                      {"DREP", {kEnd, 0b10}, true, {}},
                      {"DREP, and the other program keeps its ID", {kEnd, 0b10}, true, keeps_its_id}};
  for (const Row& row : rows) {
    std::vector<std::string> cells{row.name};
    for (const Single& single : singles) {
      const Times times = run_single(single, row.loss, plain, row.server);
      cells.push_back(time_text(row.teardown ? times.teardown : times.setup));
    }
    report.row(cells);
  }
  report.end_table();
}

// ---- Many connections under loss.

struct Conditions {
  std::uint32_t loss_per_mille;
  TimeNs slowness;
};

struct Sample {
  std::vector<TimeNs> setup, teardown;
  double packets = 0;
  double mras = 0;
};

std::string per_connection(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f", value);
  return text;
}

Sample run_many(const Party& client_party, const Party& server_party, const Conditions& conditions) {
  constexpr std::size_t kConnections = 5000;
  Simulator simulator(7, {.delay = kTrip, .loss_per_mille = conditions.loss_per_mille});
  simulator.record = false;
  Applications programs(simulator);
  const NodeIndex client = add(simulator, client_party, 0x0a4d0002);
  const NodeIndex server = add(simulator, server_party, 0x0a4d0001);
  programs.listen(server, kPort);
  programs.set_behaviour(server, {.accept_delay = conditions.slowness});
  programs.set_behaviour(client, {.establish_delay = conditions.slowness, .disconnect_delay = 400 * kSecond});
  for (std::size_t i = 0; i < kConnections; ++i) {
    simulator.after(static_cast<TimeNs>(i) * 20 * kMillisecond, [&] { programs.connect(client, server, kPort); });
  }
  simulator.run();
  Sample sample;
  for (const End& end : programs.ends()) {
    if (!end.active) continue;
    const End* peer = programs.peer_of(end);
    if (!end.established || peer == nullptr || !peer->established) continue;  // gave up
    sample.setup.push_back(std::max(*end.established, *peer->established) - end.started);
    sample.teardown.push_back(*end.disconnected - *end.disconnecting);
  }
  sample.packets = static_cast<double>(simulator.traffic().sent) / static_cast<double>(kConnections);
  sample.mras = static_cast<double>(simulator.sent(Attribute::kMra)) / static_cast<double>(kConnections);
  return sample;
}

// The first wait is `first`, whatever has been measured.
cm::Recovery always(TimeNs first, TimeNs longest_backoff) {
  cm::Recovery recovery;
  recovery.shortest_foreign = recovery.longest_foreign = recovery.first_contact = first;
  recovery.longest_backoff = longest_backoff;
  return recovery;
}

void print_policies(Report& report, const std::string& heading, std::pair<Party, Party> (*place)(const Party&)) {
  struct Policy {
    const char* name;
    Party party;
  };
  constexpr TimeNs kCap = cm::Recovery{}.longest_backoff;
  const auto at_most = [](TimeNs longest) {
    cm::Recovery recovery;
    recovery.longest_foreign = longest;
    return Party{.recovery = recovery};
  };
  cm::Recovery once;
  once.last_words_foreign = 0;
  const Policy policies[] = {{"Linux' own, fixed", kLinux},
                             {"1 s, doubling", {.recovery = always(kSecond, kCap)}},
                             {"256 ms, doubling", {.recovery = always(256 * kMillisecond, kCap)}},
                             {"64 ms, doubling", {.recovery = always(64 * kMillisecond, kCap)}},
                             {"16 ms, doubling", {.recovery = always(16 * kMillisecond, kCap)}},
                             {"4 ms, doubling", {.recovery = always(4 * kMillisecond, kCap)}},
                             {"measured, 16 to 64 ms", at_most(64 * kMillisecond)},
                             {"measured, 16 ms to 1 s", at_most(kSecond)},
                             {"measured, 16 to 256 ms: as the engine is", kUcm},
                             {"the same, RTU and DREP once", {.recovery = once}}};
  constexpr Conditions kConditions[] = {{10, 0}, {100, 0}, {10, 100 * kMillisecond}, {10, kSecond}};
  for (const Conditions& conditions : kConditions) {
    report.text(heading + ", " + std::to_string(conditions.loss_per_mille / 10) + " % loss, programs answer " +
                (conditions.slowness == 0 ? "at once" : "after " + time_text(conditions.slowness)) + ":");
    report.header({"first wait of UCM", "connect, mean", "p99", "worst", "disconnect, mean", "p99", "packets", "MRA"});
    for (const Policy& policy : policies) {
      const auto [client, server] = place(policy.party);
      Sample s = run_many(client, server, conditions);
      report.row({policy.name, time_text(mean(s.setup)), time_text(percentile(s.setup, 99)),
                  time_text(percentile(s.setup, 100)), time_text(mean(s.teardown)),
                  time_text(percentile(s.teardown, 99)), per_connection(s.packets), per_connection(s.mras)});
    }
    report.end_table();
  }
}

}  // namespace
}  // namespace ucm::sim

int main(int argc, char** argv) {
  using namespace ucm::sim;
  Report report;
  print_single_losses(report);
  print_policies(report, "UCM → Linux", [](const Party& party) { return std::pair{party, kLinux}; });
  print_policies(report, "Linux → UCM", [](const Party& party) { return std::pair{kLinux, party}; });
  return report.publish(argc, argv);
}
