#include "sim/application.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "wire/ip_cm.h"

namespace ucm::sim {

using cm::EventType;

namespace {

std::uint64_t guid_of(NodeIndex node) { return 0x0200'00ff'fe00'0000 + node; }

bool contains(const std::vector<EventType>& events, EventType type) {
  return std::find(events.begin(), events.end(), type) != events.end();
}

}  // namespace

Applications::Applications(Simulator& simulator) : simulator_(simulator) {
  simulator.on_event = [this](NodeIndex node, const cm::Event& event) { on_event(node, event); };
}

cm::ListenerId Applications::listen(NodeIndex node, std::uint16_t port, std::uint32_t backlog) {
  const auto listener = simulator_.engine(node).listen({.service_id = wire::ip_service_id(wire::PortSpace::kTcp, port),
                                                        .address = wire::IpAddress::ipv4_any(),
                                                        .backlog = backlog,
                                                        .user = port});
  UCM_CHECK(listener);
  return *listener;
}

std::size_t Applications::connect(NodeIndex from, NodeIndex to, std::uint16_t port) {
  const std::size_t number = ends_.size();
  End end;
  end.node = from;
  end.active = true;
  end.local_qpn = next_qpn_++;
  const auto id = simulator_.engine(from).connect(
      simulator_.now(), {.path = {.local = simulator_.address(from), .remote = simulator_.address(to)},
                         .ca_guid = guid_of(from),
                         .service_id = wire::ip_service_id(wire::PortSpace::kTcp, port),
                         .source_port = static_cast<std::uint16_t>(40000 + number),
                         .params = {.qpn = end.local_qpn},
                         .user = number});
  UCM_CHECK(id);
  end.id = *id;
  ends_.push_back(end);
  simulator_.settle(from);
  return number;
}

void Applications::disconnect(std::size_t end) {
  if (ends_[end].destroyed) return;
  simulator_.engine(ends_[end].node).disconnect(simulator_.now(), ends_[end].id);
  simulator_.settle(ends_[end].node);
}

void Applications::destroy(std::size_t end) {
  if (ends_[end].destroyed) return;
  ends_[end].destroyed = true;
  simulator_.engine(ends_[end].node).destroy(simulator_.now(), ends_[end].id);
  simulator_.settle(ends_[end].node);
}

const End* Applications::peer_of(const End& end) const {
  for (const End& other : ends_) {
    if (other.active != end.active && (other.peer_qpn == end.local_qpn || other.local_qpn == end.peer_qpn)) {
      return &other;
    }
  }
  return nullptr;
}

void Applications::on_request(NodeIndex node, const cm::Event& event) {
  const std::size_t number = ends_.size();
  End end;
  end.node = node;
  end.id = event.connection;
  end.local_qpn = next_qpn_++;
  end.peer_qpn = event.peer.qpn;
  end.events.push_back(event.type);
  ends_.push_back(end);
  cm::Engine& engine = simulator_.engine(node);
  engine.request_taken(event.connection);
  engine.set_user(event.connection, number);
  if (behaviour_[node].accept_delay != kNever) {
    simulator_.after(behaviour_[node].accept_delay, [this, number] { answer_request(number); });
  }
}

void Applications::answer_request(std::size_t end) {
  End& e = ends_[end];
  if (e.destroyed) return;
  cm::Engine& engine = simulator_.engine(e.node);
  const auto answered =
      behaviour_[e.node].rejects
          ? engine.reject(simulator_.now(), e.id, {})
          : engine.accept(simulator_.now(), e.id, {.ca_guid = guid_of(e.node), .params = {.qpn = e.local_qpn}});
  simulator_.settle(e.node);
  // Withdrawn in the meantime, or rejected: there is nothing more to hear of it.
  if (!answered || behaviour_[e.node].rejects) destroy(end);
}

void Applications::establish(std::size_t end) {
  if (ends_[end].destroyed) return;
  const NodeIndex node = ends_[end].node;
  const auto established = simulator_.engine(node).establish(simulator_.now(), ends_[end].id);
  if (established) ends_[end].established = simulator_.now();
  simulator_.settle(node);
  if (established) disconnect_after(end, behaviour_[node].disconnect_delay);
}

void Applications::disconnect_after(std::size_t end, TimeNs delay) {
  if (delay != kNever) simulator_.after(delay, [this, end] { disconnect(end); });
}

// Each event at most once, and only after what has to come before it.
void Applications::check_order(const End& end, EventType type) {
  const auto& seen = end.events;
  bool legal = !contains(seen, type) && !end.destroyed;
  const bool over = contains(seen, EventType::kRejected) || contains(seen, EventType::kUnreachable) ||
                    contains(seen, EventType::kTimewaitExit);
  legal = legal && !over;
  if (type == EventType::kTimewaitExit) {
    legal = legal && contains(seen, EventType::kDisconnected);
  } else {
    legal = legal && !contains(seen, EventType::kDisconnected);
  }
  if (type == EventType::kConnectResponse) legal = legal && end.active && seen.empty();
  if (type == EventType::kEstablished) legal = legal && !end.active;
  if (type == EventType::kDisconnected) {
    legal = legal && (contains(seen, EventType::kConnectRequest) || contains(seen, EventType::kConnectResponse));
  }
  if (!legal && violation_.empty()) {
    violation_ = "event " + std::to_string(static_cast<int>(type)) + " out of order on node " +
                 std::to_string(end.node) + " at " + std::to_string(simulator_.now()) + " ns";
  }
}

void Applications::on_event(NodeIndex node, const cm::Event& event) {
  if (event.type == EventType::kConnectRequest) return on_request(node, event);
  const std::size_t number = event.user;
  UCM_CHECK(number < ends_.size() && ends_[number].node == node && ends_[number].id == event.connection);
  const Behaviour& behaviour = behaviour_[node];
  End& end = ends_[number];
  check_order(end, event.type);
  end.events.push_back(event.type);
  end.status = event.status;
  bool over = false;
  switch (event.type) {
    case EventType::kConnectRequest:
      break;
    case EventType::kConnectResponse:
      end.peer_qpn = event.peer.qpn;
      if (behaviour.establish_delay != kNever) {
        simulator_.after(behaviour.establish_delay, [this, number] { establish(number); });
      }
      break;
    case EventType::kEstablished:
      end.established = simulator_.now();
      disconnect_after(number, behaviour.disconnect_delay);
      break;
    case EventType::kDisconnected:
      end.disconnected = simulator_.now();
      disconnect_after(number, behaviour.answer_delay);
      break;
    case EventType::kRejected:
    case EventType::kUnreachable:
      end.failed = simulator_.now();
      over = true;
      break;
    case EventType::kTimewaitExit:
      over = true;
      break;
  }
  if (over && behaviour.destroys_when_over) simulator_.after(0, [this, number] { destroy(number); });
}

}  // namespace ucm::sim
