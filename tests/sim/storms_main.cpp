// Prints the table of docs/storms.md: storms with UCM on all hosts, and with Linux on all.
//   sim_storms [--update=docs/storms.md | --check=docs/storms.md]
#include <cstdio>
#include <functional>

#include "sim/report.h"
#include "sim/storms.h"

namespace ucm::sim {
namespace {

std::string number(double value, const char* unit = "") {
  char text[32];
  std::snprintf(text, sizeof(text), value < 10 ? "%.2f%s" : "%.0f%s", value, unit);
  return text;
}

void print(Report& report, const std::string& title, std::function<Storm(Policy)> run) {
  report.text("**" + title + "**");
  report.header({"", "UCM", "Linux"});
  Storm ucm = run(Policy::kUcm), linux_side = run(Policy::kLinux);
  const auto row = [&](const char* name, std::function<std::string(Storm&)> cell) {
    report.row({name, cell(ucm), cell(linux_side)});
  };
  row("all done after", [](Storm& s) { return s.complete ? time_text(s.total) : "not within 2 minutes"; });
  row("median", [](Storm& s) { return time_text(percentile(s.times, 50)); });
  row("p99", [](Storm& s) { return time_text(percentile(s.times, 99)); });
  row("longest", [](Storm& s) { return time_text(percentile(s.times, 100)); });
  row("failed, or ended by a timeout", [](Storm& s) { return std::to_string(s.failed); });
  if (ucm.accepts != 0) {
    row("accepts that were of no use",
        [](Storm& s) { return number(100.0 * static_cast<double>(s.wasted) / static_cast<double>(s.accepts), " %"); });
  }
  row("packets", [](Storm& s) { return std::to_string(s.packets); });
  row("of them dropped by a full receive queue", [](Storm& s) { return std::to_string(s.dropped); });
  report.end_table();
}

}  // namespace
}  // namespace ucm::sim

int main(int argc, char** argv) {
  using namespace ucm::sim;
  Report report;
  print(report, "10,000 connects of 100 clients to one server that accepts 50,000 a second, 1 % loss",
        [](Policy policy) { return connect_storm(policy, {}); });
  print(report, "2,400 connects of 240 clients, the same server, no loss", [](Policy policy) {
    return connect_storm(policy, {.clients = 240, .connections = 2400, .loss_per_mille = 0});
  });
  print(report, "10,000 connections disconnected at once, 5 % loss",
        [](Policy policy) { return disconnect_storm(policy, {}); });
  const ucm::TimeNs spread = 10 * ucm::kNanosecondsPerMillisecond;
  print(
      report,
      "256 clients with 16 queues each, a server that accepts 500 a second; queues given up after 3 s and tried again",
      [&](Policy policy) { return slow_server(policy, {.start_spread = spread}); });
  print(report, "The same, all clients at the same nanosecond", [](Policy policy) { return slow_server(policy, {}); });
  print(report, "The first again, but a client that has not got all of its queues gives up those it has",
        [&](Policy policy) { return slow_server(policy, {.start_spread = spread, .all_or_nothing = true}); });
  return report.publish(argc, argv);
}
