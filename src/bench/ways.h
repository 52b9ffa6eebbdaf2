// The ways to connect that are compared. Each has a client and a server, run in a process each.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "bench/gate.h"
#include "bench/workload.h"

namespace ucm::bench {

// One thread's share. What a client prepares is ready when its constructor has returned.
class Client {
 public:
  virtual ~Client() = default;
  // Brings up the next `count` of this thread's connections, with its share in flight.
  virtual Result<void> set_up(std::uint32_t count) = 0;
  // Takes all of them down.
  virtual Result<void> take_down() = 0;
};

class Server {
 public:
  virtual ~Server() = default;
  // Until `stop_fd` is readable.
  virtual Result<void> serve(int stop_fd) = 0;
};

struct Way {
  std::string_view name;
  std::string_view text;  // one line, for people
  bool threads;           // works with several
  Result<std::unique_ptr<Client>> (*make_client)(const Workload&, std::uint32_t thread, Samples&);
  Result<std::unique_ptr<Server>> (*make_server)(const Workload&, std::uint32_t thread, Samples&);
};

std::span<const Way> all_ways();
// nullptr: there is none of that name.
const Way* find_way(std::string_view name);

}  // namespace ucm::bench
