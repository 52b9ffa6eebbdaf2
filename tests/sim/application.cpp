#include "sim/application.h"

#include <algorithm>

#include "base/check.h"

namespace ucm::sim {
namespace {

// What a request, an accept or a disconnect may take at most: sixteen sends, as far apart as an older Linux peer spaces
// them, and as any peer may once somebody has asked for patience. Linux' timers are late by up to 256 ms at such times.
constexpr TimeNs kLongest = 16 * (6400 + 256) * kNanosecondsPerMillisecond;
constexpr TimeNs kLongestWithMra = 16 * (65536 + 2048 + 2048 + 1024) * kNanosecondsPerMillisecond;
// A corrupted message can ask a Linux peer for twice 2^23 ms between two sends.
constexpr TimeNs kLongestWhenCorrupted = 16 * (TimeNs{2} << 23) * kNanosecondsPerMillisecond * 2;

bool contains(const std::vector<EventType>& events, EventType type) {
  return std::find(events.begin(), events.end(), type) != events.end();
}

}  // namespace

Applications::Applications(Simulator& simulator) : simulator_(simulator) {
  simulator.on_event = [this](NodeIndex node, const Event& event) { on_event(node, event); };
  simulator.on_rest = [this](NodeIndex node) { check_node(node); };
}

// --------------------------------------------------------------------------------------------------------------------
// What programs do.

Handle Applications::listen(NodeIndex node, std::uint16_t port, std::uint32_t backlog) {
  const Handle listener = simulator_.node(node).listen(port, backlog, port);
  programs_[node].listening.push_back({port, backlog, listener});
  return listener;
}

std::size_t Applications::begin(NodeIndex node, bool active) {
  Program& program = programs_[node];
  const std::size_t number = ends_.size();
  End end;
  end.node = node;
  end.active = active;
  end.local_qpn = program.next_qpn++;
  end.started = simulator_.now();
  ends_.push_back(std::move(end));
  ++program.live;
  if (const TimeNs delay = program.behaviour.vanish_delay; delay != kNever) {
    simulator_.after(delay, [this, number] { destroy(number); });
  }
  return number;
}

std::size_t Applications::connect(NodeIndex from, NodeIndex to, std::uint16_t port) {
  return connect(from, to, port, nullptr);
}

std::size_t Applications::connect(NodeIndex from, NodeIndex to, std::uint16_t port, const End* before) {
  const std::size_t first = before != nullptr ? before->first : ends_.size();
  const unsigned attempt = before != nullptr ? before->attempt + 1 : 1;
  const std::size_t number = begin(from, true);
  End& end = ends_[number];
  Program& program = programs_[from];
  end.port = port;
  end.first = first;
  end.attempt = attempt;
  end.id = simulator_.node(from).connect(simulator_.now(), {.remote = simulator_.address(to),
                                                            .port = port,
                                                            .source_port = program.next_port++,
                                                            .qpn = end.local_qpn,
                                                            .note = number + 1,
                                                            .user = number});
  if (const TimeNs patience = program.behaviour.patience; patience != kNever) {
    simulator_.after(patience, [this, number, to] { lose_patience(number, to); });
  }
  simulator_.settle(from);
  return number;
}

void Applications::lose_patience(std::size_t end, NodeIndex to) {
  if (ends_[end].destroyed || ends_[end].established) return;
  destroy(end);
  const End& e = ends_[end];
  if (e.attempt < programs_[e.node].behaviour.tries) connect(e.node, to, e.port, &e);
}

void Applications::disconnect(std::size_t end) {
  End& e = ends_[end];
  if (e.destroyed) return;
  if (!e.disconnecting) e.disconnecting = simulator_.now();
  simulator_.node(e.node).disconnect(simulator_.now(), e.id);
  simulator_.settle(e.node);
}

void Applications::destroy(std::size_t end) {
  const NodeIndex node = ends_[end].node;
  if (ends_[end].destroyed) return;
  ends_[end].destroyed = true;
  --programs_[node].live;
  simulator_.node(node).destroy(simulator_.now(), ends_[end].id);
  simulator_.settle(node);
}

void Applications::crash(NodeIndex node) {
  simulator_.crash(node);
  for (End& end : ends_) {
    if (end.node == node && !end.destroyed) end.destroyed = end.crashed = true;
  }
  programs_[node].live = 0;
  programs_[node].unread.clear();
  programs_[node].busy = false;
}

void Applications::restart(NodeIndex node) {
  simulator_.restart(node);
  Program& program = programs_[node];
  program.next_qpn = 0x11;
  for (Listening& l : program.listening) l.listener = simulator_.node(node).listen(l.port, l.backlog, l.port);
  simulator_.settle(node);
}

void Applications::on_request(NodeIndex node, const Event& event) {
  const std::size_t number = begin(node, false);
  End& end = ends_[number];
  end.id = event.connection;
  end.port = static_cast<std::uint16_t>(event.user);
  end.events.push_back(event.type);
  learn_peer(number, event.peer_note);
  simulator_.node(node).set_user(event.connection, number);
  Program& program = programs_[node];
  if (program.behaviour.accept_cost != 0) {
    program.unread.push_back(number);
    return read_request(node);
  }
  simulator_.node(node).request_taken(simulator_.now(), event.connection);
  if (program.behaviour.accept_delay != kNever) {
    simulator_.after(program.behaviour.accept_delay, [this, number] { answer_request(number); });
  }
}

// One at a time, in the order they came.
void Applications::read_request(NodeIndex node) {
  Program& program = programs_[node];
  if (program.busy || program.unread.empty()) return;
  const std::size_t number = program.unread.front();
  program.unread.pop_front();
  program.busy = true;
  if (!ends_[number].destroyed) simulator_.node(node).request_taken(simulator_.now(), ends_[number].id);
  simulator_.after(program.behaviour.accept_cost, [this, node, number] {
    if (ends_[number].crashed) return;
    programs_[node].busy = false;
    answer_request(number);
    read_request(node);
  });
}

void Applications::answer_request(std::size_t end) {
  if (ends_[end].destroyed) return;
  const NodeIndex node = ends_[end].node;
  Node& n = simulator_.node(node);
  const bool rejects = programs_[node].behaviour.rejects;
  const bool answered = rejects ? n.reject(simulator_.now(), ends_[end].id)
                                : n.accept(simulator_.now(), ends_[end].id, ends_[end].local_qpn, end + 1);
  if (answered && !rejects) ends_[end].accepted = simulator_.now();
  ends_[end].accept_failed = !answered;
  simulator_.settle(node);
  // Withdrawn in the meantime, or rejected: there is nothing more to hear of it.
  if (!answered || rejects) destroy(end);
}

void Applications::establish(std::size_t end) {
  if (ends_[end].destroyed) return;
  const NodeIndex node = ends_[end].node;
  const bool established = simulator_.node(node).establish(simulator_.now(), ends_[end].id);
  if (established) {
    ends_[end].established = simulator_.now();
    check_pair(end);
  }
  simulator_.settle(node);
  if (established) disconnect_after(end, programs_[node].behaviour.disconnect_delay);
}

void Applications::disconnect_after(std::size_t end, TimeNs delay) {
  if (delay != kNever) simulator_.after(delay, [this, end] { disconnect(end); });
}

void Applications::learn_peer(std::size_t end, std::uint64_t note) {
  // Corrupted or forged: nobody's number.
  if (note == 0 || note > ends_.size() || ends_[note - 1].active == ends_[end].active) return;
  ends_[end].peer = note - 1;
}

void Applications::on_event(NodeIndex node, const Event& event) {
  if (event.type == EventType::kConnectRequest) return on_request(node, event);
  const std::size_t number = event.user;
  UCM_CHECK(number < ends_.size() && ends_[number].node == node && ends_[number].id == event.connection);
  const Behaviour& behaviour = programs_[node].behaviour;
  check_order(number, event.type);
  End& end = ends_[number];
  end.events.push_back(event.type);
  end.status = event.status;
  bool over = false;
  switch (event.type) {
    case EventType::kConnectRequest:
      break;
    case EventType::kConnectResponse:
      learn_peer(number, event.peer_note);
      check_time(number, "connect", end.started);
      if (behaviour.establish_delay != kNever) {
        simulator_.after(behaviour.establish_delay, [this, number] { establish(number); });
      }
      break;
    case EventType::kEstablished:
      end.established = simulator_.now();
      check_time(number, "accept", *end.accepted);
      check_pair(number);
      disconnect_after(number, behaviour.disconnect_delay);
      break;
    case EventType::kDisconnected:
      end.disconnected = simulator_.now();
      end.disconnect_status = event.status;
      if (end.disconnecting) check_time(number, "disconnect", *end.disconnecting);
      disconnect_after(number, behaviour.answer_delay);
      break;
    case EventType::kRejected:
    case EventType::kUnreachable:
      end.failed = simulator_.now();
      if (!end.established) check_time(number, "failure", end.active ? end.started : *end.accepted);
      over = true;
      break;
    case EventType::kTimewaitExit:
      over = true;
      break;
  }
  if (over && behaviour.destroys_when_over) simulator_.after(0, [this, number] { destroy(number); });
}

// --------------------------------------------------------------------------------------------------------------------
// What must hold.

void Applications::violate(std::size_t end, const std::string& what) {
  if (!violation_.empty()) return;
  violation_ = what + ": " + (ends_[end].active ? "active" : "passive") + " end " + std::to_string(end) + " on node " +
               std::to_string(ends_[end].node) + " at " + std::to_string(simulator_.now()) + " ns";
}

// Each event at most once, and only after what has to come before it.
void Applications::check_order(std::size_t number, EventType type) {
  const End& end = ends_[number];
  const auto& seen = end.events;
  const bool over = contains(seen, EventType::kRejected) || contains(seen, EventType::kUnreachable) ||
                    contains(seen, EventType::kTimewaitExit);
  bool legal = !contains(seen, type) && !end.destroyed && !over;
  // A passive end hears of nothing before its accept().
  legal = legal && (end.active || end.accepted);
  legal = legal && contains(seen, EventType::kDisconnected) == (type == EventType::kTimewaitExit);
  if (type == EventType::kConnectResponse) legal = legal && end.active && seen.empty();
  if (type == EventType::kEstablished) legal = legal && !end.active;
  if (type == EventType::kDisconnected && end.active) legal = legal && end.established;
  if (type == EventType::kUnreachable) legal = legal && !end.established;
  if (!legal) violate(number, "event " + std::to_string(static_cast<int>(type)) + " out of order");
}

void Applications::check_time(std::size_t end, const char* what, TimeNs since) {
  if (!believes_messages) return;
  const TimeNs longest = simulator_.sent(wire::Attribute::kMra) == 0 ? kLongest : kLongestWithMra;
  if (simulator_.now() - since > longest) violate(end, std::string(what) + " took too long");
}

// Both ends mean each other, and their QPs are programmed to talk to each other.
void Applications::check_pair(std::size_t number) {
  const End& end = ends_[number];
  if (!believes_messages) return;
  if (!end.peer) return violate(number, "established with nobody");
  const End& peer = ends_[*end.peer];
  if (!end.active && !peer.established) return violate(number, "established before its peer");
  if (peer.peer != number) violate(number, "established with somebody else's peer");
  if (end.destroyed || peer.destroyed || !peer.established) return;
  const auto mine = simulator_.node(end.node).qp(end.id);
  const auto theirs = simulator_.node(peer.node).qp(peer.id);
  if (!mine || !theirs || mine->local_qpn != end.local_qpn || mine->dest_qpn != theirs->local_qpn ||
      theirs->dest_qpn != mine->local_qpn || mine->rq_psn != theirs->sq_psn || mine->sq_psn != theirs->rq_psn) {
    violate(number, "QPs do not match");
  }
}

// The node holds what its programs hold, requests that they have not heard of yet, and what they have destroyed as
// long as it is not disconnected.
void Applications::check_node(NodeIndex node) {
  const Usage usage = simulator_.node(node).usage();
  const std::size_t live = programs_[node].live;
  const std::size_t held = live + usage.orphans;
  const bool sound = usage.connections >= held && usage.connections <= held + usage.requests &&
                     usage.comm_ids == usage.connections && usage.remote_ids == usage.remote_qps &&
                     usage.remote_ids <= usage.connections && usage.messages <= usage.connections &&
                     usage.timers <= usage.connections;
  if (sound || !violation_.empty()) return;
  violation_ = "node " + std::to_string(node) + " holds " + std::to_string(usage.connections) + " connections, " +
               std::to_string(usage.orphans) + " orphans, " + std::to_string(usage.comm_ids) + " comm IDs, " +
               std::to_string(usage.remote_ids) + "/" + std::to_string(usage.remote_qps) + " peers, " +
               std::to_string(usage.messages) + " messages, " + std::to_string(usage.requests) + " requests, " +
               std::to_string(usage.timers) + " timers for " + std::to_string(live) + " ends of its programs, at " +
               std::to_string(simulator_.now()) + " ns";
}

// Nothing is on its way any more: an end that waits would wait for ever.
void Applications::check_settled(std::size_t number) {
  const End& end = ends_[number];
  if (end.destroyed || end.failed || end.disconnected) return;
  const Behaviour& behaviour = programs_[end.node].behaviour;
  if (end.active && end.events.empty()) return violate(number, "connect() never ended");
  if (end.disconnecting && end.established) return violate(number, "disconnect() never ended");
  if (!end.active && end.accepted && !end.established) violate(number, "accept() never ended");
  // A request withdrawn before it was answered is nobody's any more; the program finds out when it answers.
  const bool slow = end.active ? behaviour.establish_delay == kNever : behaviour.accept_delay == kNever;
  if (!end.established && !slow) violate(number, "neither established nor failed");
}

// Who takes a connection for open has an open peer; but what was lost or came too late may have been the news.
void Applications::check_agreement(std::size_t number) {
  const auto is_open = [](const End& e) { return e.established && !e.destroyed && !e.disconnected && !e.failed; };
  const End& end = ends_[number];
  if (!is_open(end) || !end.peer || !simulator_.was_faithful()) return;
  const End& peer = ends_[*end.peer];
  if (!is_open(peer) && !peer.crashed) violate(number, "open, and its peer is not");
}

void Applications::check_answered(std::size_t number) {
  const End& end = ends_[number];
  if (!end.peer || !believes_messages || !simulator_.node(ends_[*end.peer].node).answers_every_dreq()) return;
  if (end.disconnect_status != 0) violate(number, "DREQ was not answered");
}

void Applications::finish() {
  const TimeNs longest = 2 * (believes_messages ? kLongestWithMra : kLongestWhenCorrupted);
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    check_settled(i);
    check_agreement(i);
  }
  simulator_.heal();
  for (auto& [node, program] : programs_) {
    if (!simulator_.is_up(node)) restart(node);
  }
  // What programs never got round to: they close it now.
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    if (!ends_[i].established) destroy(i);
  }
  std::vector<std::size_t> closing;
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    if (!ends_[i].destroyed && !ends_[i].failed && !ends_[i].disconnecting && !ends_[i].disconnected)
      closing.push_back(i);
    disconnect(i);
  }
  if (!simulator_.run(simulator_.now() + longest) && violation_.empty()) violation_ = "never at rest";
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    check_settled(i);
    if (!ends_[i].destroyed && !ends_[i].disconnected && !ends_[i].failed) violate(i, "does not know of the end");
  }
  for (const std::size_t i : closing) check_answered(i);
  // Requests that were under way, or waited behind others, may still come: until there are none.
  const auto anything_live = [&] {
    return std::any_of(programs_.begin(), programs_.end(), [](const auto& program) { return program.second.live > 0; });
  };
  do {
    for (std::size_t i = 0; i < ends_.size(); ++i) destroy(i);
    (void)simulator_.run(simulator_.now() + longest);
  } while (anything_live());
  for (auto& [node, program] : programs_) {
    for (const Listening& l : program.listening) simulator_.node(node).close_listener(simulator_.now(), l.listener);
    if (simulator_.node(node).usage() != Usage{} && violation_.empty()) {
      violation_ = "node " + std::to_string(node) + " has something left";
    }
  }
}

}  // namespace ucm::sim
