// explore                           explores every scenario and prints a table; fails at the first violation
// explore SCENARIO...               those, quick or long
// explore --expect TEXT SCENARIO    fails unless a violation is found that contains TEXT
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "explore/scenarios.h"

namespace ucm::explore {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Report explore(const Scenario& scenario) {
  constexpr double kProgressSeconds = 5;
  const auto start = Clock::now();
  auto told = start;
  Explorer explorer(scenario);
  const Report report = explorer.run([&](const Report& r) {
    if (seconds_since(told) < kProgressSeconds) return;
    told = Clock::now();
    std::printf("  %s: %zu states so far, %zu transitions, %.0f s\n", scenario.name.c_str(), r.states, r.transitions,
                seconds_since(start));
    std::fflush(stdout);
  });
  std::printf("%s: %zu distinct states, %zu transitions, depth %u, %.1f s; %s\n", scenario.name.c_str(), report.states,
              report.transitions, report.depth, seconds_since(start),
              report.violation.empty() ? "every invariant holds" : "VIOLATION");
  std::printf(
      "  (a node alone: %zu and %zu states in %zu arrangements; %zu steps of the engine, %zu different packets)\n",
      report.node_states[0], report.node_states[1], report.arrangements, report.engine_steps, report.packets);
  if (!report.violation.empty()) std::printf("\n%s\n%s\n", report.violation.c_str(), report.trace.c_str());
  std::fflush(stdout);
  return report;
}

void print_table(const std::vector<std::pair<std::string, Report>>& reports) {
  std::printf("\n| scenario | distinct states | transitions |\n|---|---|---|\n");
  for (const auto& [name, report] : reports) {
    std::printf("| `%s` | %zu | %zu |\n", name.c_str(), report.states, report.transitions);
  }
}

const Scenario* find(const std::vector<Scenario>& scenarios, const char* name) {
  for (const Scenario& scenario : scenarios) {
    if (scenario.name == name) return &scenario;
  }
  return nullptr;
}

int run(int argc, char** argv) {
  auto all = quick_scenarios();
  const auto long_ones = long_scenarios();
  all.insert(all.end(), long_ones.begin(), long_ones.end());
  const bool expecting = argc == 4 && std::strcmp(argv[1], "--expect") == 0;
  std::vector<Scenario> chosen;
  for (int i = expecting ? 3 : 1; i < argc; ++i) {
    const Scenario* scenario = find(all, argv[i]);
    if (scenario == nullptr) {
      std::fprintf(stderr, "explore: no scenario %s; there are:\n", argv[i]);
      for (const Scenario& s : all) std::fprintf(stderr, "  %s\n", s.name.c_str());
      return 2;
    }
    chosen.push_back(*scenario);
  }
  if (argc == 1) chosen = all;
  std::vector<std::pair<std::string, Report>> reports;
  for (const Scenario& scenario : chosen) {
    const Report report = explore(scenario);
    if (expecting) return report.violation.find(argv[2]) != std::string::npos ? 0 : 1;
    if (!report.violation.empty()) return 1;
    reports.emplace_back(scenario.name, report);
  }
  if (reports.size() > 1) print_table(reports);
  return 0;
}

}  // namespace
}  // namespace ucm::explore

int main(int argc, char** argv) { return ucm::explore::run(argc, argv); }
