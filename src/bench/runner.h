// Runs a workload: a server and a client, each a process of its own, led and measured by this one.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/workload.h"

namespace ucm::bench {

// Per connection, of one process.
struct Cost {
  std::optional<double> cpu_us;        // its life: up and down
  std::optional<double> system_calls;  // the same
  std::optional<double> memory_bytes;  // while it is up
};

struct Run {
  double set_up_s = 0;     // all of the measured connections
  double take_down_s = 0;  // those and the held ones; 0: the way has nothing to take down
  std::uint32_t connected = 0;
  std::uint32_t failed = 0;
  std::map<std::string, Cost> costs;                              // by process: client, server, others by their names
  std::array<std::vector<std::uint32_t>, kPhaseCount> durations;  // ns, of each connection that had the phase
};

// Other processes that take part, such as ucmd: measured as well, touched never.
using Others = std::map<std::string, pid_t>;
// Told about once a second, for people who wait.
using Progress = std::function<void(const std::string& doing, std::uint32_t done, std::uint32_t all)>;

Result<Run> run(const Workload& workload, const Others& others, const Progress& progress);

}  // namespace ucm::bench
