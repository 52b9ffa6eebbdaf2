// Storms: many connections at once, as clusters make them when they start, end or fail. Each can be played with UCM on
// all hosts or with Linux on all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"

namespace ucm::sim {

enum class Policy { kUcm, kLinux };

struct Storm {
  bool complete = false;      // everything that was to happen has happened
  TimeNs total = 0;           // from the beginning until then
  std::vector<TimeNs> times;  // of each connection, see below
  std::size_t failed = 0;
  std::size_t accepts = 0;  // the server's, and how many of them were of no use
  std::size_t wasted = 0;
  std::uint64_t packets = 0;
  std::uint64_t dropped = 0;  // by the server's full receive queue
};

// Clients connect to one server at the same moment; the server's program accepts one after the other. Times: until both
// ends are established.
struct ConnectStorm {
  std::size_t clients = 100;
  std::size_t connections = 10'000;
  std::uint32_t loss_per_mille = 10;
  std::size_t accepts_per_second = 50'000;
};
Storm connect_storm(Policy policy, const ConnectStorm& storm);

// Established connections between 100 clients and one server are disconnected by the clients at the same moment. Times:
// until the client's event.
struct DisconnectStorm {
  std::size_t connections = 10'000;
  std::uint32_t loss_per_mille = 50;
};
Storm disconnect_storm(Policy policy, const DisconnectStorm& storm);

// A server disconnects from a client that is gone, very often, and every millisecond somebody else connects to it.
// Times: of the latter.
struct DisconnectsInProgress {
  std::size_t connections = 2048;
};
Storm disconnects_in_progress(const DisconnectsInProgress& storm);

// A client connects to an address that nobody has, very often, and every 10 ms to one that somebody has. Times: of the
// latter, from one round trip after the storm began until after everything else has timed out.
struct DeadAddress {
  std::size_t requests = 50'000;
};
Storm dead_address(Policy policy, const DeadAddress& storm);

// Clients want 16 connections each, their queues, from a server that accepts few. What is not established within 3
// seconds is given up and begun again: one queue by itself, or, as storage clients do it, all that the client has.
// Times: of each client, from the beginning until it has all of its queues.
struct SlowServer {
  std::size_t clients = 256;
  std::size_t queues = 16;
  std::size_t accepts_per_second = 500;
  TimeNs patience = 3 * kNanosecondsPerSecond;
  TimeNs start_spread = 0;  // clients begin within this time
  bool all_or_nothing = false;
  std::uint64_t seed = 1;
};
Storm slow_server(Policy policy, const SlowServer& storm);

}  // namespace ucm::sim
