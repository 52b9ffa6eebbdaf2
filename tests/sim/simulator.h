// Engines joined by memory links in simulated time. Deterministic: one seed, one run.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "base/random.h"
#include "base/time.h"
#include "cm/engine.h"

namespace ucm::sim {

using NodeIndex = std::size_t;

// One link description for every pair of nodes. Masks name packets by their number in the run, 0 to 63.
struct LinkOptions {
  TimeNs delay = 50 * kNanosecondsPerMicrosecond;
  TimeNs jitter = 0;  // up to this is added, per packet: packets overtake each other
  std::uint32_t loss_per_mille = 0;
  std::uint32_t duplicate_per_mille = 0;
  std::uint64_t loss_mask = 0;
  std::uint64_t duplicate_mask = 0;
};

// A packet as it was sent.
struct SentPacket {
  TimeNs time = 0;
  NodeIndex from = 0;
  cm::Packet packet{};
  wire::Attribute attribute{};
  bool lost = false;
};

class Simulator {
 public:
  Simulator(std::uint64_t seed, const LinkOptions& link) : link_(link), random_(seed) {}

  // The node's random key comes from the simulation's seed.
  NodeIndex add_node(const wire::IpAddress& address, cm::Config config = {});
  // The node forgets everything, and has another random key.
  void restart(NodeIndex node);
  cm::Engine& engine(NodeIndex node) { return nodes_[node].engine; }
  const wire::IpAddress& address(NodeIndex node) const { return nodes_[node].address; }
  std::size_t node_count() const { return nodes_.size(); }

  TimeNs now() const { return now_; }
  LinkOptions& link() { return link_; }
  Random& random() { return random_; }
  const std::vector<SentPacket>& sent() const { return sent_; }

  // Called with every event of every node, in order.
  std::function<void(NodeIndex, const cm::Event&)> on_event;

  void after(TimeNs delay, std::function<void()> call);
  // Sends and reports what `node`'s engine has ready: after every command given to it.
  void settle(NodeIndex node);

  // Until nothing is scheduled any more, or the time is `end`; false in the latter case.
  bool run(TimeNs end = kNever);

 private:
  struct Node {
    wire::IpAddress address;
    cm::Config config;
    cm::Engine engine;
  };
  struct Happening {
    TimeNs time;
    std::uint64_t number;  // ties go in the order of scheduling
    std::function<void()> call;
    bool operator>(const Happening& other) const {
      return time != other.time ? time > other.time : number > other.number;
    }
  };

  void send(NodeIndex from, const cm::Packet& packet);
  void deliver_later(const cm::Packet& packet);
  TimeNs next_deadline() const;

  LinkOptions link_;
  Random random_;
  TimeNs now_ = 0;
  std::uint64_t happenings_ = 0;
  std::vector<Node> nodes_;
  std::vector<SentPacket> sent_;
  std::priority_queue<Happening, std::vector<Happening>, std::greater<>> queue_;
};

}  // namespace ucm::sim
