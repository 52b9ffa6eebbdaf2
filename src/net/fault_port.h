// Faults for tests: a wrapper round any port that loses, repeats, reorders and damages what is received.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "base/result.h"
#include "net/packet_port.h"

namespace ucm::net {

// Each fault is a probability in percent, 0 to 100.
struct FaultSpec {
  std::uint32_t loss = 0;
  std::uint32_t duplicate = 0;
  std::uint32_t reorder = 0;
  std::uint32_t corrupt = 0;  // one bit flipped
  std::uint64_t seed = 1;     // same seed and same datagrams: same faults
  // Nothing happens to packets of UC and UD QPs but the CM's: there is nobody who would repeat them.
  bool spare_unreliable = false;
  bool operator==(const FaultSpec&) const = default;

  // "loss=5,duplicate=2,reorder=2,corrupt=0,seed=1,spare-unreliable" in any order and number. EINVAL names the part
  // that is wrong.
  static Result<FaultSpec> parse(std::string_view text);
};

struct FaultCounters {
  std::uint64_t lost = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t reordered = 0;
  std::uint64_t corrupted = 0;
};

class FaultPort final : public PacketPort {
 public:
  FaultPort(std::unique_ptr<PacketPort> inner, const FaultSpec& spec);

  // A reordered datagram is held back until one to four later ones have passed, or until a receive() that finds nothing
  // else.
  std::size_t receive(const Sink& sink, std::size_t datagrams_max) override;
  void send(std::span<const Datagram> datagrams) override { inner_->send(datagrams); }
  std::uint16_t source_port() const override { return inner_->source_port(); }
  Result<void> join_group(const wire::MulticastGroup& group) override { return inner_->join_group(group); }
  void leave_group(const wire::MulticastGroup& group) override { inner_->leave_group(group); }
  std::vector<int> wait_fds() const override { return inner_->wait_fds(); }
  bool holds_datagrams() const override { return !held_.empty() || inner_->holds_datagrams(); }

  const FaultCounters& counters() const { return counters_; }

 private:
  struct Held {
    wire::DatagramInfo info;
    std::vector<std::uint8_t> payload;
    std::uint32_t passes_left;
  };

  void on_datagram(const Datagram& datagram, const Sink& sink);
  void deliver(const Datagram& datagram, const Sink& sink);
  void count_passed(const Sink& sink);
  std::size_t release_all(const Sink& sink);
  bool happens(std::uint32_t percent) { return random_.chance(percent, 100); }

  std::unique_ptr<PacketPort> inner_;
  FaultSpec spec_;
  Random random_;
  std::deque<Held> held_;
  FaultCounters counters_;
};

}  // namespace ucm::net
