// What is measured: connections set up, held and taken down between two processes, one way or another.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "base/time.h"

namespace ucm::bench {

struct Workload {
  std::string way;                 // its name: ways.h
  std::string address;             // numeric, of this host
  std::uint16_t service_port = 0;  // of the first thread; the others have those after it
  std::uint32_t connections = 0;   // measured
  std::uint32_t live = 0;          // set up before, not measured, and held meanwhile
  std::uint32_t in_flight = 0;     // being set up at once, by all threads together
  std::uint32_t threads = 1;       // of the client, and of the server
  bool qps = true;                 // every connection makes its QP; or they are there before the clock runs
  std::uint32_t data_bytes = 0;    // sent and echoed once when connected; 0: nothing

  std::uint32_t all() const { return live + connections; }
  // The share of one thread: first those that are only held, then those that are measured.
  std::uint32_t held_by(std::uint32_t thread) const { return split(live, thread + 1) - split(live, thread); }
  std::uint32_t measured_by(std::uint32_t thread) const {
    return split(connections, thread + 1) - split(connections, thread);
  }
  std::uint32_t slots_of(std::uint32_t thread) const { return held_by(thread) + measured_by(thread); }
  std::uint32_t in_flight_of_thread() const { return std::max(1u, in_flight / threads); }
  // How many of `count` the threads before `thread` have.
  std::uint32_t split(std::uint32_t count, std::uint32_t thread) const {
    return static_cast<std::uint32_t>(std::uint64_t{count} * thread / threads);
  }
};

// What one connection's life consists of. A way has those that it has.
enum class Phase : std::uint8_t {
  kResolve,     // address and route
  kCreateQp,    // made, and brought to INIT
  kConnect,     // from the first message until data may be sent
  kEstablish,   // at the server: from the request until it knows that the client is ready
  kData,        // a message there and back
  kDisconnect,  // from the call until the client knows that both ends are down
};
inline constexpr std::size_t kPhaseCount = 6;
inline constexpr std::array<const char*, kPhaseCount> kPhaseNames{"resolve",   "create QP", "connect",
                                                                  "establish", "data",      "disconnect"};

// Memory that both processes and the one that measures them share: how long each phase of each connection took.
class Samples {
 public:
  explicit Samples(const Workload& workload);

  // Of the connection in a thread's slot; at the server, slots are taken in the order of the requests. Those that are
  // only held are not recorded. Any thread or process.
  void record(Phase phase, std::uint32_t thread, std::uint32_t slot, TimeNs duration);
  void count_up() { header_->up.fetch_add(1, std::memory_order_relaxed); }
  void count_down() { header_->down.fetch_add(1, std::memory_order_relaxed); }
  void count_failure() { header_->failures.fetch_add(1, std::memory_order_relaxed); }

  std::uint32_t up() const { return header_->up.load(std::memory_order_relaxed); }
  std::uint32_t down() const { return header_->down.load(std::memory_order_relaxed); }
  std::uint32_t failures() const { return header_->failures.load(std::memory_order_relaxed); }
  // In nanoseconds; 0: not recorded.
  std::span<const std::uint32_t> of(Phase phase) const;

 private:
  struct Header {
    std::atomic<std::uint32_t> up, down, failures;
  };
  struct Unmap {
    std::size_t size;
    void operator()(void* memory) const { munmap(memory, size); }
  };

  const Workload workload_;
  std::unique_ptr<void, Unmap> memory_;
  Header* header_;
  std::uint32_t* durations_;  // [phase][connection]
};

TimeNs monotonic_now();

}  // namespace ucm::bench
