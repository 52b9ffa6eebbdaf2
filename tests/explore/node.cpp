#include "explore/node.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>

#include "base/check.h"
#include "base/hash.h"
#include "wire/ip_cm.h"

namespace ucm::explore {

using cm::EventType;
using cm::State;

namespace {

constexpr TimeNs kNow = 1'000 * kNanosecondsPerSecond;  // it stands still: see EngineAccess::expire_timer()
constexpr std::uint8_t kPacketLifetime = 8;             // a millisecond: a REQ has as many tries as a REP
constexpr std::uint64_t kServiceId = wire::ip_service_id(wire::PortSpace::kTcp, 7174);

constexpr std::size_t kUnreadMax = 1;  // with reads_late

std::uint64_t guid_of(unsigned node) { return 0x0200'00ff'fe00'0000 + node; }
std::uint32_t first_qpn(unsigned node, bool active) { return 0x1000 * (node + 1) + (active ? 0x100 : 0x200); }

bool has_timer(State state) { return cm::retransmits(state) || state == State::kReqHeld || state == State::kTimewait; }

// Whether the engine's state fits what the application knows.
bool fits(Phase phase, State state) {
  switch (phase) {
    case Phase::kConnecting:
      return state == State::kReqHeld || state == State::kReqSent || state == State::kMraReqReceived;
    case Phase::kResponded:
      return state == State::kRepReceived;
    case Phase::kWaiting:
      return state == State::kReqQueued;
    case Phase::kUnread:
    case Phase::kRequested:  // the last two: withdrawn, which accept() will tell
      return state == State::kReqReceived || state == State::kIdle || state == State::kTimewait;
    case Phase::kAccepted:
      return state == State::kRepSent || state == State::kMraRepReceived;
    case Phase::kEstablished:  // kDreqSent: the peer has forgotten the connection, and the engine ends it
      return state == State::kEstablished || state == State::kDreqSent;
    case Phase::kClosing:
      return state == State::kDreqSent;
    case Phase::kDisconnected:
      return state == State::kDreqReceived || state == State::kTimewait;
    case Phase::kExited:
    case Phase::kUnreachable:
      return state == State::kIdle;
    case Phase::kRejected:
    case Phase::kDeclined:
      return state == State::kIdle || state == State::kTimewait;
    case Phase::kOrphaned:
      return state == State::kOrphaned;
  }
  return false;
}

// The phase after an event; nullopt when the event may not come in this one.
std::optional<Phase> phase_after(Phase phase, EventType event) {
  const auto from = [&](std::initializer_list<Phase> allowed, Phase next) -> std::optional<Phase> {
    if (std::find(allowed.begin(), allowed.end(), phase) == allowed.end()) return std::nullopt;
    return next;
  };
  switch (event) {
    case EventType::kConnectResponse:
      return from({Phase::kConnecting}, Phase::kResponded);
    case EventType::kEstablished:
      return from({Phase::kAccepted}, Phase::kEstablished);
    case EventType::kRejected:
      return from({Phase::kConnecting, Phase::kResponded, Phase::kAccepted, Phase::kEstablished, Phase::kClosing},
                  Phase::kRejected);
    case EventType::kUnreachable:
      return from({Phase::kConnecting, Phase::kAccepted}, Phase::kUnreachable);
    case EventType::kDisconnected:
      return from({Phase::kResponded, Phase::kAccepted, Phase::kEstablished, Phase::kClosing}, Phase::kDisconnected);
    case EventType::kTimewaitExit:
      return from({Phase::kDisconnected}, Phase::kExited);
    case EventType::kConnectRequest:
      return std::nullopt;
  }
  return std::nullopt;
}

bool status_fits(const cm::Event& event) {
  switch (event.type) {
    case EventType::kRejected:
      return event.status > 0;
    case EventType::kUnreachable:
      return event.status == -ETIMEDOUT;
    case EventType::kDisconnected:
      return event.status == 0 || event.status == -ETIMEDOUT;
    case EventType::kConnectRequest:
    case EventType::kConnectResponse:
    case EventType::kEstablished:
    case EventType::kTimewaitExit:
      return event.status == 0;
  }
  return false;
}

std::string text(const cm::Event& event) {
  constexpr std::array<std::string_view, 7> kNames = {"CONNECT_REQUEST", "CONNECT_RESPONSE", "ESTABLISHED",  "REJECTED",
                                                      "UNREACHABLE",     "DISCONNECTED",     "TIMEWAIT_EXIT"};
  std::string text(kNames[static_cast<std::size_t>(event.type)]);
  if (event.status != 0) text += "(" + std::to_string(event.status) + ")";
  return text;
}

}  // namespace

std::string_view name(Phase phase) {
  constexpr std::array<std::string_view, 14> kNames = {
      "connecting", "responded",    "waiting", "unread",   "requested",   "accepted", "established",
      "closing",    "disconnected", "exited",  "rejected", "unreachable", "declined", "orphaned"};
  return kNames[static_cast<std::size_t>(phase)];
}

std::string_view name(Call call) {
  constexpr std::array<std::string_view, 9> kNames = {"connect",    "accept",  "reject", "establish",     "notify",
                                                      "disconnect", "destroy", "read",   "close_listener"};
  return kNames[static_cast<std::size_t>(call)];
}

Node::Node(const NodeSetup& setup) : setup_(setup), engine_(setup.config) {
  const auto listener = engine_.listen({.service_id = kServiceId, .address = wire::IpAddress::ipv4_any()});
  UCM_CHECK(listener);
  listener_ = *listener;
  if (setup.reads_late) cm::EngineAccess::set_unread_max(engine_, kUnreadMax);
}

// --------------------------------------------------------------------------------------------------------------------
// Steps.

template <class Act>
Effects Node::step(Act act) {
  Effects effects;
  try {
    act(effects);
    while (const auto event = engine_.poll_event()) take_event(*event, effects);
    if (setup_.destroys_idle) destroy_idle();
    see_unknown();
    while (const auto packet = engine_.poll_packet()) effects.sent.push_back(*packet);
    cm::EngineAccess::normalize(engine_, setup_.window);
    if (effects.violation.empty()) effects.violation = check();
  } catch (const std::exception& failure) {
    effects.violation = failure.what();
  }
  return effects;
}

Effects Node::deliver(const cm::Path& path, Bytes mad, unsigned fresh_comm_id) {
  return step([&](Effects&) {
    fresh_comm_id_ = fresh_comm_id;
    cm::EngineAccess::set_next_comm_id(engine_, fresh_comm_id);
    engine_.on_packet(kNow, path, mad);
  });
}

Effects Node::expire_timer(std::size_t end) {
  const End before = ends_[end];
  const auto facts_before = facts(end);
  return step([&](Effects& effects) {
    cm::EngineAccess::expire_timer(engine_, kNow, before.id);
    const bool gone = cm::EngineAccess::facts(engine_, before.id).state == State::kGone;
    if (gone) effects.timeout = Timeout{.end = before, .facts = facts_before, .event = EventType::kDisconnected};
  });
}

Effects Node::call(Call call, std::size_t end, unsigned fresh_comm_id) {
  return step([&](Effects& effects) {
    if (call == Call::kConnect) {
      fresh_comm_id_ = fresh_comm_id;
      cm::EngineAccess::set_next_comm_id(engine_, fresh_comm_id);
      return connect();
    }
    if (call == Call::kDestroy) return destroy(end);
    if (call == Call::kRead) {
      ends_[end].phase = Phase::kRequested;
      return engine_.request_taken(kNow, ends_[end].id);
    }
    if (call == Call::kCloseListener) {
      listening_ = false;
      return engine_.close_listener(kNow, listener_);
    }
    if (const auto done = command(call, ends_[end]); !done) {
      effects.violation = std::string(name(call)) + "() was refused: " + done.error().message;
      return;
    }
    if (call == Call::kAccept) ends_[end].phase = Phase::kAccepted;
    if (call == Call::kReject) ends_[end].phase = Phase::kDeclined;
    if (call == Call::kEstablish) ends_[end].phase = Phase::kEstablished;
    if (call == Call::kDisconnect && ends_[end].phase == Phase::kEstablished) ends_[end].phase = Phase::kClosing;
  });
}

void Node::destroy(std::size_t end) {
  const cm::ConnectionId id = ends_[end].id;
  engine_.destroy(kNow, id);
  gone_.push_back(id);
  ends_[end].phase = Phase::kOrphaned;  // until see_unknown() finds that there is no such thing
}

void Node::destroy_idle() {
  for (std::size_t end = ends_.size(); end-- > 0;) {
    if (facts(end).state == State::kIdle && !is_unknown(ends_[end].phase)) destroy(end);
  }
}

void Node::connect() {
  End end{.phase = Phase::kConnecting, .active = true, .number = fresh_comm_id_};
  end.qpn = first_qpn(setup_.index, true) + (setup_.reuses_qp ? 0 : connects_);
  ++connects_;
  const auto id = engine_.connect(kNow, {.path = {.local = setup_.address, .remote = setup_.peer_address},
                                         .ca_guid = guid_of(setup_.index),
                                         .service_id = kServiceId,
                                         .packet_lifetime = kPacketLifetime,
                                         .params = {.qpn = end.qpn},
                                         .user = end.qpn});
  UCM_CHECK(id);
  UCM_CHECK(handle_is_new(*id));
  end.id = *id;
  add(end);
}

void Node::add(const End& end) {
  const auto comes_later = [&](const End& other) { return other.number > end.number; };
  ends_.insert(std::find_if(ends_.begin(), ends_.end(), comes_later), end);
}

Result<void> Node::command(Call call, const End& end) {
  switch (call) {
    case Call::kConnect:
    case Call::kRead:
    case Call::kCloseListener:
      break;
    case Call::kAccept:
      return engine_.accept(kNow, end.id, {.ca_guid = guid_of(setup_.index), .params = {.qpn = end.qpn}});
    case Call::kReject:
      return engine_.reject(kNow, end.id, {});
    case Call::kEstablish:
      return engine_.establish(kNow, end.id);
    case Call::kNotify:
      return engine_.notify_established(kNow, end.id);
    case Call::kDisconnect:
      engine_.disconnect(kNow, end.id);
      break;
    case Call::kDestroy:
      engine_.destroy(kNow, end.id);
      break;
  }
  return {};
}

// --------------------------------------------------------------------------------------------------------------------
// The application reads its events.

// A number that nobody knows, like the comm ID; or the first one free here.
std::uint32_t Node::qpn_for_request(unsigned fresh_comm_id) const {
  std::uint32_t qpn = first_qpn(setup_.index, false);
  if (!setup_.reuses_qp) return qpn + fresh_comm_id;
  const auto has_qp = [&](const End& end) { return end.qpn == qpn && end.phase != Phase::kOrphaned; };
  while (std::any_of(ends_.begin(), ends_.end(), has_qp)) ++qpn;
  return qpn;
}

bool Node::handle_is_new(cm::ConnectionId id) const {
  return std::find(gone_.begin(), gone_.end(), id) == gone_.end() &&
         std::none_of(ends_.begin(), ends_.end(), [&](const End& end) { return end.id == id; });
}

// What the engine has without the application: requests that it keeps back, and what became of those, withdrawn or
// rejected with the listener's end; and what is destroyed, but not yet disconnected.
void Node::see_unknown() {
  std::erase_if(ends_, [&](const End& end) {
    const bool may_go =
        end.phase == Phase::kWaiting || end.phase == Phase::kOrphaned || (end.phase == Phase::kUnread && !listening_);
    return may_go && cm::EngineAccess::facts(engine_, end.id).state == State::kGone;
  });
  for (const cm::ConnectionId id : cm::EngineAccess::queued(engine_)) {
    if (std::any_of(ends_.begin(), ends_.end(), [&](const End& end) { return end.id == id; })) continue;
    add({.id = id, .phase = Phase::kWaiting, .qpn = qpn_for_request(fresh_comm_id_), .number = fresh_comm_id_});
  }
}

void Node::take_request(const cm::Event& event, Effects& effects) {
  const auto waiting = std::find_if(ends_.begin(), ends_.end(), [&](const End& e) { return e.id == event.connection; });
  if (waiting != ends_.end() && waiting->phase == Phase::kWaiting) {
    waiting->phase = Phase::kUnread;
    engine_.set_user(waiting->id, waiting->qpn);
    return;
  }
  if (!handle_is_new(event.connection)) effects.violation = "a handle was given a second time";
  const End end{.id = event.connection,
                .phase = setup_.reads_late ? Phase::kUnread : Phase::kRequested,
                .qpn = qpn_for_request(fresh_comm_id_),
                .number = fresh_comm_id_};
  add(end);
  engine_.set_user(end.id, end.qpn);
  if (!setup_.reads_late) engine_.request_taken(kNow, end.id);
}

void Node::take_event(const cm::Event& event, Effects& effects) {
  effects.events.push_back(text(event));
  if (!status_fits(event)) effects.violation = "event " + text(event) + " with a status that it cannot have";
  if (event.type == EventType::kConnectRequest) return take_request(event, effects);
  const auto end = std::find_if(ends_.begin(), ends_.end(), [&](const End& e) { return e.id == event.connection; });
  if (end == ends_.end() || end->qpn != event.user) {
    effects.violation = "event " + text(event) + " for a connection that the application does not have";
    return;
  }
  const auto next = phase_after(end->phase, event.type);
  if (!next) {
    effects.violation = "event " + text(event) + " for a connection that is " + std::string(name(end->phase));
    return;
  }
  if (event.status == -ETIMEDOUT) {
    effects.timeout = Timeout{.end = *end, .facts = cm::EngineAccess::facts(engine_, end->id), .event = event.type};
  }
  end->phase = *next;
}

// --------------------------------------------------------------------------------------------------------------------
// What must hold after every step.

cm::EngineAccess::Facts Node::facts(std::size_t end) const { return cm::EngineAccess::facts(engine_, ends_[end].id); }

std::string Node::check_usage() const {
  const cm::Engine::Usage usage = engine_.usage();
  if (ends_.empty()) {
    if (usage != cm::Engine::Usage{.listeners = listening_ ? 1u : 0u})
      return "something is left of connections that are all destroyed";
    return {};
  }
  const auto count = [&](auto matches) {
    std::size_t n = 0;
    for (std::size_t end = 0; end < ends_.size(); ++end) n += matches(facts(end));
    return n;
  };
  const auto known = [](const auto& f) { return cm::occupies_peer(f.state) && f.remote_comm_id != 0; };
  if (usage.connections != ends_.size() || usage.comm_ids != ends_.size()) {
    return "the engine has " + std::to_string(usage.connections) + " connections and " +
           std::to_string(usage.comm_ids) + " comm IDs, the application " + std::to_string(ends_.size());
  }
  if (usage.orphans != count([](const auto& f) { return f.state == State::kOrphaned; })) {
    return "the engine counts other orphans than it has";
  }
  if (usage.timers != count([](const auto& f) { return has_timer(f.state); })) return "a timer too many or too few";
  if (count([](const auto& f) { return f.state == State::kReqHeld; }) > 0 && usage.requests_in_flight < setup_.window) {
    return "a request is held back, although fewer than the window are in flight";
  }
  if (usage.remote_ids != count(known) || usage.remote_qps != count(known)) {
    return "the tables of peers do not fit the connections";
  }
  return {};
}

std::string Node::check_requests() const {
  const auto count = [&](Phase phase) {
    return static_cast<std::size_t>(
        std::count_if(ends_.begin(), ends_.end(), [&](const End& end) { return end.phase == phase; }));
  };
  const std::size_t unread = count(Phase::kUnread);
  const std::size_t waiting = count(Phase::kWaiting);
  if (engine_.usage().requests != unread + waiting) return "the engine counts other requests than are unread";
  if (waiting > 0 && unread < kUnreadMax) return "a request waits, although the application has nothing to read";
  return {};
}

std::string Node::check() const {
  for (std::size_t end = 0; end < ends_.size(); ++end) {
    const auto f = facts(end);
    if (!fits(ends_[end].phase, f.state)) {
      return "the engine is in " + std::string(cm::name(f.state)) + " while the application knows of \"" +
             std::string(name(ends_[end].phase)) + "\"";
    }
    if (f.timer != has_timer(f.state)) {
      return std::string(cm::name(f.state)) + (f.timer ? " with a timer" : " without a timer: it would last for ever");
    }
  }
  for (const cm::ConnectionId id : gone_) {
    if (engine_.state(id) || engine_.qp_parameters(id)) return "a destroyed handle is still good for something";
  }
  if (std::string violation = check_requests(); !violation.empty()) return violation;
  return check_usage();
}

// --------------------------------------------------------------------------------------------------------------------
// Calls.

// Whether the call does something, by what the application knows; of a request it cannot know that it was withdrawn.
bool Node::may(Call call, std::size_t end) const {
  const Phase phase = ends_[end].phase;
  const State state = facts(end).state;
  const bool withdrawn = phase == Phase::kRequested && state != State::kReqReceived;
  if (is_unknown(phase)) return call == Call::kRead && phase == Phase::kUnread;
  switch (call) {
    case Call::kConnect:
    case Call::kRead:
    case Call::kCloseListener:
      return false;
    case Call::kAccept:
      return phase == Phase::kRequested && !withdrawn;
    case Call::kReject:
      return (phase == Phase::kRequested && !withdrawn) || phase == Phase::kResponded || phase == Phase::kAccepted;
    case Call::kEstablish:
      return phase == Phase::kResponded;
    case Call::kNotify:
      return phase == Phase::kAccepted;
    case Call::kDisconnect:
      return (phase == Phase::kEstablished && state == State::kEstablished) || state == State::kDreqReceived;
    case Call::kDestroy:
      return true;
  }
  return false;
}

constexpr std::array kCallsOfAnEnd = {Call::kAccept, Call::kReject,     Call::kEstablish,
                                      Call::kNotify, Call::kDisconnect, Call::kDestroy};

std::vector<Node::PossibleCall> Node::possible_calls() const {
  std::vector<PossibleCall> calls;
  const auto has_qp = [](const End& end) { return end.active && end.phase != Phase::kOrphaned; };
  const bool qp_is_free = !setup_.reuses_qp || std::none_of(ends_.begin(), ends_.end(), has_qp);
  if (connects_ < setup_.connects && qp_is_free) calls.push_back({Call::kConnect, 0});
  if (setup_.closes_listener && listening_) calls.push_back({Call::kCloseListener, 0});
  for (std::size_t end = 0; end < ends_.size(); ++end) {
    if (may(Call::kRead, end)) calls.push_back({Call::kRead, end});
    for (const Call call : kCallsOfAnEnd) {
      if (may(call, end)) calls.push_back({call, end});
    }
  }
  return calls;
}

std::string Node::probe_refusals() const {
  const auto refused = [](Call call, const Result<void>& result) {
    return call == Call::kDisconnect || !result;  // disconnect() does nothing instead
  };
  const auto probe = [&](Call call, const End& end) {
    Node copy = *this;
    const bool ok = refused(call, copy.command(call, end));
    return ok && copy.hash() == hash() && !copy.engine_.poll_packet() && !copy.engine_.poll_event();
  };
  for (std::size_t end = 0; end < ends_.size(); ++end) {
    for (const Call call : kCallsOfAnEnd) {
      if (!is_unknown(ends_[end].phase) && !may(call, end) && !probe(call, ends_[end])) {
        return std::string(name(call)) + "() is not refused when the connection is " +
               std::string(name(ends_[end].phase));
      }
    }
  }
  for (const cm::ConnectionId id : gone_) {
    for (const Call call : kCallsOfAnEnd) {
      if (call != Call::kDestroy && !probe(call, {.id = id})) return "a destroyed handle is still good for something";
    }
  }
  return {};
}

std::uint64_t Node::hash() const {
  StateHash hash;
  hash.add(setup_.index);
  hash.add(connects_);
  for (const End& end : ends_) {
    hash.add(end.phase);
    hash.add(end.active);
    hash.add(end.qpn);
    cm::EngineAccess::add_to(hash, engine_, end.id);
  }
  cm::EngineAccess::add_rest_to(hash, engine_);
  return hash.value();
}

std::uint64_t Node::arrangement() const {
  StateHash hash;
  hash.add(engine_.state_hash());
  for (const End& end : ends_) hash.add(static_cast<std::uint32_t>(static_cast<std::uint64_t>(end.id)));  // the slot
  return hash.value();
}

}  // namespace ucm::explore
