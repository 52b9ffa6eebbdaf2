// A network in memory for tests: ports with addresses, a switch between them, and a hook that sees and may drop or
// change every datagram. No time: what is sent can be received at once.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "net/packet_port.h"

namespace ucm::net {

class MemoryNetwork {
 public:
  using Payload = std::vector<std::uint8_t>;
  // Returns false to lose the datagram. May change the payload.
  using Tap = std::function<bool(const wire::DatagramInfo&, Payload&)>;

  // The ports must not outlive the network. An address belongs to the port attached last with it.
  std::unique_ptr<PacketPort> attach(std::vector<wire::IpAddress> addresses, std::uint16_t source_port);
  void set_tap(Tap tap) { tap_ = std::move(tap); }

  std::uint64_t sent_count() const { return sent_count_; }
  // Sent to an address that no port has.
  std::uint64_t unroutable_count() const { return unroutable_count_; }

 private:
  struct Stored {
    wire::DatagramInfo info;
    Payload payload;
  };
  struct Queue {
    std::deque<Stored> datagrams;
  };
  class Port;

  void send(const Datagram& datagram, std::uint16_t source_port);

  std::map<wire::IpAddress, std::shared_ptr<Queue>> queues_;
  std::map<wire::IpAddress, std::set<std::shared_ptr<Queue>>> groups_;  // one segment: interfaces do not matter
  Tap tap_;
  std::uint64_t sent_count_ = 0;
  std::uint64_t unroutable_count_ = 0;
};

}  // namespace ucm::net
