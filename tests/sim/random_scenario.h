// One seed, one scenario: nodes of either kind, a network with faults, programs with habits, and accidents.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "sim/node.h"

namespace ucm::sim {

struct ScenarioOptions {
  std::ostream* trace = nullptr;  // every packet and event
  // Wraps every node: the test of the checks plants faults with it.
  std::function<std::unique_ptr<Node>(std::unique_ptr<Node>)> wrap = nullptr;
};

struct ScenarioResult {
  std::string violation;    // empty: all that must hold did
  std::string description;  // what the seed stands for
  std::uint64_t hash = 0;   // of every packet sent
  std::uint64_t packets = 0;
  std::uint64_t connections = 0;  // ends established
};

ScenarioResult run_random_scenario(std::uint64_t seed, const ScenarioOptions& options = {});

}  // namespace ucm::sim
