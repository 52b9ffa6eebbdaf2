// Random scenarios, one for each seed. See README.md.
//   sim_random                         a fixed set, then fresh seeds for some seconds
//   sim_random --seed=N [--trace]      one scenario, told in full
//   sim_random --first=N --count=M     M scenarios from N on
//   sim_random --fresh [--count=M] [--seconds=S]   seeds never used before; at most M, for at most S seconds
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>

#include "sim/random_scenario.h"

namespace {

using ucm::sim::run_random_scenario;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kFixedSeeds = 2000;
constexpr std::uint64_t kFreshSeeds = 4000;
constexpr std::uint64_t kFreshSeconds = 20;

std::string program;

bool run_one(std::uint64_t seed, bool trace) {
  const auto result = run_random_scenario(seed, {.trace = trace ? &std::cout : nullptr});
  std::cout << (trace ? "" : result.description) << result.packets << " packets, " << result.connections
            << " ends established\n"
            << (result.violation.empty() ? "all well" : result.violation) << "\n";
  return result.violation.empty();
}

bool run_many(const char* what, std::uint64_t first, std::uint64_t count, std::uint64_t seconds) {
  std::cout << what << ": seeds from " << first << " on" << std::endl;
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  std::uint64_t done = 0, packets = 0, connections = 0;
  for (; done < count && Clock::now() < end; ++done) {
    const auto result = run_random_scenario(first + done);
    packets += result.packets;
    connections += result.connections;
    if (result.violation.empty()) continue;
    std::cout << result.description << "FAILED: " << result.violation << "\nplay it again: " << program
              << " --seed=" << first + done << " --trace\n";
    return false;
  }
  std::cout << done << " scenarios, " << packets << " packets, " << connections << " ends established, all well"
            << std::endl;
  return true;
}

// Seeds that nobody has tried: from the time at the start.
std::uint64_t fresh_base() {
  return static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
}

std::optional<std::uint64_t> number_after(std::string_view argument, std::string_view name) {
  if (!argument.starts_with(name)) return std::nullopt;
  return std::strtoull(argument.data() + name.size(), nullptr, 10);
}

}  // namespace

int main(int argc, char** argv) {
  program = argv[0];
  std::optional<std::uint64_t> seed, first, count, seconds;
  bool trace = false, fresh = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (const auto n = number_after(argument, "--seed=")) {
      seed = n;
    } else if (const auto f = number_after(argument, "--first=")) {
      first = f;
    } else if (const auto c = number_after(argument, "--count=")) {
      count = c;
    } else if (const auto s = number_after(argument, "--seconds=")) {
      seconds = s;
    } else if (argument == "--trace") {
      trace = true;
    } else if (argument == "--fresh") {
      fresh = true;
    } else {
      std::cerr << "unknown argument " << argument << "\n";
      return 2;
    }
  }
  if (seed) return run_one(*seed, trace) ? 0 : 1;
  constexpr std::uint64_t kNoLimit = 1'000'000'000;
  if (first) return run_many("chosen", *first, count.value_or(1), seconds.value_or(kNoLimit)) ? 0 : 1;
  if (fresh) return run_many("fresh", fresh_base(), count.value_or(kNoLimit), seconds.value_or(kNoLimit)) ? 0 : 1;
  const bool fixed = run_many("fixed", 0, kFixedSeeds, kNoLimit);
  return fixed && run_many("fresh", fresh_base(), kFreshSeeds, kFreshSeconds) ? 0 : 1;
}
