// Engines joined by a simulated network: delay, loss, duplication, reordering and corruption from a seed; simulated
// time. The same seed gives the same run.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/random.h"
#include "roce/engine.h"

namespace ucm::roce::test {

struct Faults {
  std::uint32_t loss_percent = 0;
  std::uint32_t duplicate_percent = 0;
  std::uint32_t reorder_percent = 0;  // delayed by up to reorder_delay_ns more
  std::uint32_t corrupt_percent = 0;
  TimeNs delay_ns = 20 * kNanosecondsPerMicrosecond;
  TimeNs reorder_delay_ns = 200 * kNanosecondsPerMicrosecond;
};

struct Host {
  explicit Host(wire::IpAddress ip, std::uint64_t seed) : address(ip), engine(RandomKey{seed, ~seed}) {}
  wire::IpAddress address;
  Engine engine;
  std::vector<Event> events;
};

class Network {
 public:
  explicit Network(std::uint64_t seed, Faults faults = {}) : faults_(faults), random_(seed) {}

  Host& add_host(std::uint32_t ipv4) {
    hosts_.push_back(std::make_unique<Host>(wire::IpAddress::ipv4(ipv4), random_.next()));
    return *hosts_.back();
  }
  Host& add_host(wire::IpAddress address) {
    hosts_.push_back(std::make_unique<Host>(address, random_.next()));
    return *hosts_.back();
  }

  TimeNs now() const { return now_; }
  Faults& faults() { return faults_; }
  std::uint64_t packets_carried() const { return carried_; }
  std::uint64_t digest() const { return digest_; }

  // Sees every packet as it enters the network; returning false loses it.
  std::function<bool(const wire::DatagramInfo&, Bytes)> filter;

  // Until `done`, or nothing is left to happen, or `limit` passes. Returns whether `done`.
  bool run_until(const std::function<bool()>& done, TimeNs limit = 1000 * kNanosecondsPerSecond);
  void run_for(TimeNs duration) {
    const TimeNs end = now_ + duration;
    run_until([] { return false; }, duration);
    now_ = end;
  }
  // A packet made by the test itself.
  void inject(const wire::DatagramInfo& info, Bytes payload) { enter(info, payload); }

 private:
  struct InFlight {
    wire::DatagramInfo info;
    std::vector<std::uint8_t> payload;
  };
  void drain(Host& host);
  void enter(const wire::DatagramInfo& info, Bytes payload);
  void schedule(const wire::DatagramInfo& info, Bytes payload);
  void deliver(const InFlight& packet);

  Faults faults_;
  Random random_;
  TimeNs now_ = kNanosecondsPerSecond;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::map<std::pair<TimeNs, std::uint64_t>, InFlight> in_flight_;
  std::uint64_t carried_ = 0;
  std::uint64_t digest_ = 0;
};

}  // namespace ucm::roce::test
