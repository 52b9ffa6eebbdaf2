// Programs on simulated nodes: they connect, listen, accept after a while, reject, vanish, disconnect; they check that
// the events of every connection come in a legal order, and keep a record of each.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "cm/engine.h"
#include "sim/simulator.h"

namespace ucm::sim {

// What a program does when something happens. kNever: it does not do it.
struct Behaviour {
  TimeNs accept_delay = 0;
  TimeNs establish_delay = 0;
  TimeNs disconnect_delay = kNever;  // after ESTABLISHED (passive) or RTU (active)
  TimeNs answer_delay = 0;           // from DISCONNECTED to the answering disconnect()
  bool rejects = false;
  bool destroys_when_over = true;  // after REJECTED, UNREACHABLE, TIMEWAIT_EXIT
};

// One end of a connection, as its program saw it.
struct End {
  NodeIndex node = 0;
  cm::ConnectionId id{};
  bool active = false;
  std::uint32_t local_qpn = 0;
  std::uint32_t peer_qpn = 0;
  std::vector<cm::EventType> events;
  std::optional<TimeNs> established;  // active: RTU sent; passive: event
  std::optional<TimeNs> disconnected;
  std::optional<TimeNs> failed;  // REJECTED or UNREACHABLE
  std::int32_t status = 0;       // of the last event
  bool destroyed = false;
};

class Applications {
 public:
  explicit Applications(Simulator& simulator);

  void set_behaviour(NodeIndex node, const Behaviour& behaviour) { behaviour_[node] = behaviour; }
  cm::ListenerId listen(NodeIndex node, std::uint16_t port, std::uint32_t backlog = 1024);
  // Returns the number of the end in ends().
  std::size_t connect(NodeIndex from, NodeIndex to, std::uint16_t port);
  void disconnect(std::size_t end);
  void destroy(std::size_t end);

  const std::vector<End>& ends() const { return ends_; }
  // The other end, found by the QP numbers; nullptr when it never came to be.
  const End* peer_of(const End& end) const;
  // Empty, or the first event that came out of order.
  const std::string& violation() const { return violation_; }

 private:
  void on_event(NodeIndex node, const cm::Event& event);
  void on_request(NodeIndex node, const cm::Event& event);
  void answer_request(std::size_t end);
  void establish(std::size_t end);
  void disconnect_after(std::size_t end, TimeNs delay);
  void check_order(const End& end, cm::EventType type);

  Simulator& simulator_;
  std::map<NodeIndex, Behaviour> behaviour_;
  std::vector<End> ends_;
  std::uint32_t next_qpn_ = 0x11;
  std::string violation_;
};

}  // namespace ucm::sim
