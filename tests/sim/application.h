// Programs on simulated nodes: they connect, listen, accept after a while, reject, vanish, disconnect; they check that
// the events of every connection come in a legal order and in time, that both ends mean each other, and that the node
// holds what they hold and no more. A record of each connection is kept.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/simulator.h"

namespace ucm::sim {

// What a program does when something happens. kNever: it does not do it.
struct Behaviour {
  TimeNs accept_delay = 0;
  // Not 0: the program has one thread, which takes this long for every request; the next one stays unread meanwhile.
  TimeNs accept_cost = 0;
  TimeNs establish_delay = 0;
  TimeNs disconnect_delay = kNever;  // after ESTABLISHED (passive) or RTU (active)
  TimeNs answer_delay = 0;           // from DISCONNECTED to the answering disconnect()
  TimeNs patience = kNever;          // active: destroys an attempt that is not established by then
  unsigned tries = 1;                // when out of patience, at once
  TimeNs vanish_delay = kNever;      // destroys every end this long after it came to be, whatever it is doing
  bool rejects = false;
  bool destroys_when_over = true;  // after REJECTED, UNREACHABLE, TIMEWAIT_EXIT
};

// One end of a connection, as its program saw it.
struct End {
  NodeIndex node = 0;
  Handle id = 0;
  bool active = false;
  std::uint16_t port = 0;
  std::uint32_t local_qpn = 0;
  std::optional<std::size_t> peer;  // the other end's number, from the private data of REQ or REP
  std::size_t first = 0;            // active: the first of the attempts this one is of
  unsigned attempt = 1;             // counted from there
  std::vector<EventType> events;
  TimeNs started = 0;  // connect() or CONNECT_REQUEST
  std::optional<TimeNs> accepted;
  std::optional<TimeNs> established;  // active: RTU sent; passive: event
  std::optional<TimeNs> disconnecting;
  std::optional<TimeNs> disconnected;
  std::int32_t disconnect_status = 0;
  std::optional<TimeNs> failed;  // REJECTED or UNREACHABLE
  std::int32_t status = 0;       // of the last event
  bool accept_failed = false;    // the peer had given up
  bool destroyed = false;        // by the program, or with its node
  bool crashed = false;          // with its node
};

class Applications {
 public:
  explicit Applications(Simulator& simulator);

  void set_behaviour(NodeIndex node, const Behaviour& behaviour) { programs_[node].behaviour = behaviour; }
  Handle listen(NodeIndex node, std::uint16_t port, std::uint32_t backlog = 1024);
  // Returns the number of the end in ends().
  std::size_t connect(NodeIndex from, NodeIndex to, std::uint16_t port);
  void disconnect(std::size_t end);
  void destroy(std::size_t end);
  // The node and the programs on it are gone. restart() starts them again: with their listeners, and their QP numbers
  // from the beginning.
  void crash(NodeIndex node);
  void restart(NodeIndex node);

  const std::vector<End>& ends() const { return ends_; }
  // The other end; nullptr when it never came to be or is not known.
  const End* peer_of(const End& end) const { return end.peer ? &ends_[*end.peer] : nullptr; }
  // Empty, or the first thing that should not have happened.
  const std::string& violation() const { return violation_; }

  // Off when corrupted messages get through: they can say anything.
  bool believes_messages = true;

  // When nothing is scheduled any more: repairs the network, disconnects what is connected, lets both sides come to
  // rest, and checks that everybody knows how every connection ended and that nothing is left.
  void finish();

 private:
  struct Listening {
    std::uint16_t port = 0;
    std::uint32_t backlog = 0;
    Handle listener = 0;
  };
  struct Program {
    Behaviour behaviour;
    std::uint32_t next_qpn = 0x11;
    std::uint16_t next_port = 40000;
    std::size_t live = 0;  // ends not destroyed
    std::vector<Listening> listening;
    std::deque<std::size_t> unread;  // requests, when there is one thread
    bool busy = false;
  };

  std::size_t begin(NodeIndex node, bool active);
  std::size_t connect(NodeIndex from, NodeIndex to, std::uint16_t port, const End* before);
  void on_event(NodeIndex node, const Event& event);
  void on_request(NodeIndex node, const Event& event);
  void read_request(NodeIndex node);
  void answer_request(std::size_t end);
  void establish(std::size_t end);
  void lose_patience(std::size_t end, NodeIndex to);
  void disconnect_after(std::size_t end, TimeNs delay);
  void learn_peer(std::size_t end, std::uint64_t note);

  void violate(std::size_t end, const std::string& what);
  void check_order(std::size_t end, EventType type);
  void check_time(std::size_t end, const char* what, TimeNs since);
  void check_pair(std::size_t end);
  void check_node(NodeIndex node);
  void check_settled(std::size_t end);
  void check_agreement(std::size_t end);
  void check_answered(std::size_t end);

  Simulator& simulator_;
  std::map<NodeIndex, Program> programs_;
  std::vector<End> ends_;
  std::string violation_;
};

}  // namespace ucm::sim
