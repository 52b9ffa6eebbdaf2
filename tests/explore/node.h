// One node: a real engine, and an application that may do anything an application may do. What it knows of each
// connection is a phase; the engine's state and events have to fit it in every step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cm/engine.h"
#include "explore/engine_access.h"

namespace ucm::explore {

// What the application knows of one end of a connection.
enum class Phase : std::uint8_t {
  kConnecting,    // connect() done
  kResponded,     // kConnectResponse seen: establish() is due
  kWaiting,       // the application knows nothing: the engine has a request for it
  kUnread,        // nor does it here: kConnectRequest is there to be read
  kRequested,     // kConnectRequest seen: accept() or reject() is due
  kAccepted,      // accept() done
  kEstablished,   // kEstablished seen, or establish() done
  kClosing,       // disconnect() called
  kDisconnected,  // kDisconnected seen
  kExited,        // kTimewaitExit seen
  kRejected,      // kRejected seen
  kUnreachable,   // kUnreachable seen
  kDeclined,      // reject() called
  kOrphaned,      // destroy() called, and the engine still tells the peer
};
std::string_view name(Phase phase);
// Nothing more is to come of the connection, and the application knows it.
constexpr bool is_over(Phase phase) { return phase >= Phase::kExited; }

// The application has no handle, yet or any more.
constexpr bool is_unknown(Phase phase) {
  return phase == Phase::kWaiting || phase == Phase::kUnread || phase == Phase::kOrphaned;
}

enum class Call : std::uint8_t {
  kConnect,
  kAccept,
  kReject,
  kEstablish,
  kNotify,
  kDisconnect,
  kDestroy,
  kRead,  // the connection's request
  kCloseListener,
};
std::string_view name(Call call);

struct End {
  cm::ConnectionId id{};
  Phase phase{};
  bool active = false;
  std::uint32_t qpn = 0;
  unsigned number = 0;  // of its comm ID; the ends of a node are in this order
};

// The application has to answer before the peer can go on.
constexpr bool owes_answer(cm::State state) {
  return state == cm::State::kReqQueued || state == cm::State::kReqReceived || state == cm::State::kRepReceived ||
         state == cm::State::kDreqReceived;
}

struct NodeSetup {
  unsigned index = 0;
  cm::Config config{};
  wire::IpAddress address{};
  wire::IpAddress peer_address{};
  unsigned window = 2;           // requests in flight at a time; the others are held back
  unsigned connects = 0;         // how often the application calls connect()
  bool destroys_idle = false;    // the application destroys what is over at once
  bool closes_listener = false;  // the application may do so at any time
  bool reads_late = false;       // requests stay unread until it likes; of two the second waits in the engine
  bool reuses_qp = false;        // a destroyed connection's QP number serves the next one
};

// An end that was told of a timeout, as it was just before.
struct Timeout {
  End end{};
  cm::EngineAccess::Facts facts{};
  cm::EventType event{};
};

// What one step did.
struct Effects {
  std::vector<cm::Packet> sent;
  std::vector<std::string> events;  // for people
  std::optional<Timeout> timeout;
  std::string violation;  // empty: every invariant holds
};

class Node {
 public:
  explicit Node(const NodeSetup& setup);

  // The steps. `fresh_comm_id` is the number of the comm ID that a new connection gets.
  Effects deliver(const cm::Path& path, Bytes mad, unsigned fresh_comm_id);
  Effects call(Call call, std::size_t end, unsigned fresh_comm_id);
  Effects expire_timer(std::size_t end);

  unsigned connects() const { return connects_; }
  const std::vector<End>& ends() const { return ends_; }
  cm::EngineAccess::Facts facts(std::size_t end) const;
  cm::QpParameters qp_parameters(std::size_t end) const { return *engine_.qp_parameters(ends_[end].id); }

  // The calls that do something here.
  struct PossibleCall {
    Call call{};
    std::size_t end = 0;
  };
  std::vector<PossibleCall> possible_calls() const;
  // Every other call is refused and leaves no trace; empty, or which one was not.
  std::string probe_refusals() const;

  // Of all that anybody can tell by what the node does.
  std::uint64_t hash() const;
  // Also of where the engine keeps its connections.
  std::uint64_t arrangement() const;

 private:
  template <class Act>
  Effects step(Act act);
  void connect();
  void add(const End& end);
  void destroy(std::size_t end);
  void destroy_idle();
  Result<void> command(Call call, const End& end);
  void take_event(const cm::Event& event, Effects& effects);
  void see_unknown();
  void take_request(const cm::Event& event, Effects& effects);
  std::string check() const;
  std::string check_usage() const;
  std::string check_requests() const;
  bool may(Call call, std::size_t end) const;
  std::uint32_t qpn_for_request(unsigned fresh_comm_id) const;
  bool handle_is_new(cm::ConnectionId id) const;

  NodeSetup setup_;
  cm::Engine engine_;
  cm::ListenerId listener_{};
  bool listening_ = true;
  std::vector<End> ends_;
  unsigned connects_ = 0;
  unsigned fresh_comm_id_ = 0;          // of the step going on
  std::vector<cm::ConnectionId> gone_;  // handles destroyed on the way here; not part of the state
};

}  // namespace ucm::explore
