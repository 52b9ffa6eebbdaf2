// Nodes joined by memory links in simulated time. Deterministic: one seed, one run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/deadline_heap.h"
#include "base/random.h"
#include "base/time.h"
#include "cm/engine.h"
#include "sim/linux_peer.h"
#include "sim/node.h"
#include "sim/ucm_node.h"

namespace ucm::sim {

using NodeIndex = std::size_t;

// What happens to packets between two nodes. All chances are per packet.
struct LinkOptions {
  TimeNs delay = 50 * kNanosecondsPerMicrosecond;
  TimeNs jitter = 0;                     // up to this is added: packets overtake each other
  std::uint64_t packets_per_second = 0;  // 0: no limit; a queue forms before the link
  std::uint32_t loss_per_mille = 0;
  std::uint32_t duplicate_per_mille = 0;
  std::uint32_t reorder_per_mille = 0;  // held back for reorder_delay
  TimeNs reorder_delay = kNanosecondsPerMillisecond;
  std::uint32_t replay_per_mille = 0;  // arrives once more, up to replay_delay later
  TimeNs replay_delay = 10 * kNanosecondsPerSecond;
  std::uint32_t corrupt_per_mille = 0;  // one to three bits are flipped
  bool icrc_checked = true;             // false: what was corrupted reaches the node
  // Packets by their number in the run, 0 to 63.
  std::uint64_t loss_mask = 0;
  std::uint64_t duplicate_mask = 0;
};

// The host's one processor: packets, those it sends and those it receives, take their time one after the other.
struct Cpu {
  TimeNs packet_cost = 0;
  std::size_t queue_max = 4096;  // of those received; what arrives beyond is dropped
};

// A packet as it was sent.
struct SentPacket {
  TimeNs time = 0;
  NodeIndex from = 0;
  Packet packet{};
  wire::Attribute attribute{};
  bool lost = false;
};

struct Traffic {
  std::uint64_t sent = 0;
  std::uint64_t lost = 0;  // by chance, mask or partition
  std::uint64_t duplicated = 0;
  std::uint64_t reordered = 0;
  std::uint64_t replayed = 0;
  std::uint64_t corrupted = 0;
  std::uint64_t bad_icrc = 0;    // of the corrupted: dropped by the check
  std::uint64_t queue_full = 0;  // dropped by a busy host
  std::uint64_t nobody = 0;      // to a node that is down, or an address nobody has
};

class Simulator {
 public:
  Simulator(std::uint64_t seed, const LinkOptions& link) : link_(link), random_(seed) {}

  // Random keys of the nodes come from the simulation's seed.
  NodeIndex add_ucm(const wire::IpAddress& address, const cm::Config& config = {});
  // `config.address`, `guid` and `seed` are set here.
  NodeIndex add_linux(const wire::IpAddress& address, const LinuxConfig& config = {});
  // As either, wrapped: for nodes with a fault of their own. Called again after every restart.
  NodeIndex add_node(const wire::IpAddress& address, std::function<std::unique_ptr<Node>(std::uint64_t seed)> make);

  // The node forgets everything and is deaf until restart(), which gives it another random key.
  void crash(NodeIndex node);
  void restart(NodeIndex node);
  bool is_up(NodeIndex node) const { return hosts_[node].node != nullptr; }

  Node& node(NodeIndex node) { return *hosts_[node].node; }
  // Of a node made by add_ucm().
  cm::Engine& engine(NodeIndex node) { return static_cast<UcmNode&>(*hosts_[node].node).engine(); }
  const wire::IpAddress& address(NodeIndex node) const { return hosts_[node].address; }
  std::uint64_t guid(NodeIndex node) const { return 0x0200'00ff'fe00'0000 + node; }
  std::size_t node_count() const { return hosts_.size(); }
  void set_cpu(NodeIndex node, const Cpu& cpu) { hosts_[node].cpu = cpu; }

  TimeNs now() const { return now_; }
  // Of all pairs of nodes that have no link of their own.
  LinkOptions& link() { return link_; }
  // From `from` to `to`; a copy of the common one at first.
  LinkOptions& link(NodeIndex from, NodeIndex to);
  // Nothing passes between two groups of nodes, by bits of their numbers (of the first 64), until `end`.
  void partition(std::uint64_t group, TimeNs end) { partition_ = {group, end}; }
  // No faults from now on, on any link: delay alone; and no host is too busy. When nothing is on its way.
  void heal();
  // So far every packet has arrived, once or twice, and in order.
  bool was_faithful() const;
  Random& random() { return random_; }
  const Traffic& traffic() const { return traffic_; }
  // Packets sent, by attribute ID.
  std::uint64_t sent(wire::Attribute attribute) const;

  // Every packet is kept in sent(), unless switched off before the first one.
  bool record = true;
  const std::vector<SentPacket>& sent() const { return sent_; }

  // Called with every packet sent, lost or not.
  std::function<void(const SentPacket&)> on_send;
  // Called with every event of every node, in order.
  std::function<void(NodeIndex, const Event&)> on_event;
  // Called when a node has come to rest after anything that happened to it.
  std::function<void(NodeIndex)> on_rest;

  void after(TimeNs delay, std::function<void()> call);
  // Sends and reports what `node` has ready: after every command given to it.
  void settle(NodeIndex node);

  // Until nothing is scheduled any more, or the time is `end`; false in the latter case.
  bool run(TimeNs end = kNever);

 private:
  struct Host {
    wire::IpAddress address;
    std::function<std::unique_ptr<Node>(std::uint64_t seed)> make;
    std::unique_ptr<Node> node{};  // none while it is down
    Cpu cpu{};
    TimeNs busy_until = 0;
    std::size_t queued = 0;
    unsigned depth = 0;  // of settle()
  };
  struct AddressHash {
    std::size_t operator()(const wire::IpAddress& address) const {
      return load_be64(&address.bytes[8]) * 0x9e3779b97f4a7c15 ^ load_be64(address.bytes.data());
    }
  };
  enum class Kind : std::uint8_t { kArrival, kProcessing, kCall };
  struct Happening {
    TimeNs time;
    std::uint64_t number;  // ties go in the order of scheduling
    Kind kind;
    std::uint32_t index;  // into packets_ or calls_
    bool operator>(const Happening& other) const {
      return time != other.time ? time > other.time : number > other.number;
    }
  };
  // A vector with a free list.
  template <class T>
  struct Pool {
    std::vector<T> items;
    std::vector<std::uint32_t> free;
    std::uint32_t take() {
      if (free.empty()) {
        items.emplace_back();
        return static_cast<std::uint32_t>(items.size() - 1);
      }
      const std::uint32_t index = free.back();
      free.pop_back();
      return index;
    }
  };

  static std::uint64_t pair_of(NodeIndex from, NodeIndex to) { return std::uint64_t{from} << 32 | to; }
  void schedule(TimeNs time, Kind kind, std::uint32_t index);
  void send(NodeIndex from, const Packet& packet);
  bool is_lost(const LinkOptions& link, NodeIndex from, NodeIndex to, std::uint64_t bit);
  bool corrupt(const LinkOptions& link, Packet& packet);
  void deliver_later(TimeNs delay, const Packet& packet);
  void arrive(std::uint32_t index);
  void process(std::uint32_t index);
  TimeNs chosen_below(TimeNs bound) {
    return bound == 0 ? 0 : static_cast<TimeNs>(random_.below(static_cast<std::uint64_t>(bound)));
  }

  LinkOptions link_;
  std::unordered_map<std::uint64_t, LinkOptions> links_;  // by pair_of()
  std::unordered_map<std::uint64_t, TimeNs> link_free_at_;
  std::pair<std::uint64_t, TimeNs> partition_{0, 0};
  Random random_;
  TimeNs now_ = 0;
  std::uint64_t happenings_ = 0;
  std::vector<Host> hosts_;
  std::unordered_map<wire::IpAddress, NodeIndex, AddressHash> by_address_;
  DeadlineHeap deadlines_;  // of the nodes
  Traffic traffic_;
  std::array<std::uint64_t, 32> sent_by_attribute_{};
  std::vector<SentPacket> sent_;
  Pool<Packet> packets_;
  Pool<std::function<void()>> calls_;
  std::priority_queue<Happening, std::vector<Happening>, std::greater<>> queue_;
};

}  // namespace ucm::sim
