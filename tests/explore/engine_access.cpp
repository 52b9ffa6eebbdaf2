#include "explore/engine_access.h"

#include "base/check.h"

namespace ucm::cm {

std::uint32_t EngineAccess::slot_of(const Engine& engine, ConnectionId id) {
  const auto slot = static_cast<Engine::Slot>(static_cast<std::uint64_t>(id));
  const bool there = engine.handle_of(slot) == id && engine.connections_[slot].state != State::kGone;
  return there ? slot : Connection::kNone;
}

EngineAccess::Facts EngineAccess::facts(const Engine& engine, ConnectionId id) {
  const Engine::Slot slot = slot_of(engine, id);
  if (slot == Connection::kNone) return {};
  const Connection& c = engine.connections_[slot];
  return {.state = c.state,
          .local_comm_id = c.local_comm_id,
          .remote_comm_id = c.remote_comm_id,
          .timer = engine.timers_.deadline_of(slot) != kNever};
}

void EngineAccess::add_to(StateHash& hash, const Engine& engine, ConnectionId id) {
  const Engine::Slot slot = slot_of(engine, id);
  UCM_CHECK(slot != Connection::kNone);
  Connection c = engine.connections_[slot];
  const auto [exchange, request] = std::pair(c.exchange, c.request);
  c.exchange = c.request = Connection::kNone;
  c.add_to(hash);
  hash.add(c.state);
  hash.add(engine.timers_.deadline_of(slot));
  hash.add(exchange != Connection::kNone);
  if (exchange != Connection::kNone) {
    const Exchange& e = engine.exchanges_[exchange];
    hash.add(Bytes(e.mad));
    for (const TimeNs time : {e.sent_at, e.give_up_at, e.wait}) hash.add(time);
    hash.add(e.peer);
    hash.add(e.repetitions);
    hash.add(e.in_flight);
  }
  hash.add(request != Connection::kNone);
}

void EngineAccess::add_rest_to(StateHash& hash, const Engine& engine) {
  const auto comm_id_of = [&](std::uint32_t exchange) {
    return engine.connections_[engine.exchanges_[exchange].slot].local_comm_id;
  };
  engine.listeners_.add_to(hash);
  engine.listeners_.for_each([&](const Listener& listener) {
    const Requests::Queue& queue = listener.requests;
    const auto add_all = [&](const SlabList<Requests::Request>& list) {
      hash.add(list.size());
      for (auto i = list.front(); i != list.kNone; i = engine.requests_[i].link.next) {
        hash.add(engine.connections_[engine.requests_[i].slot].local_comm_id);
      }
    };
    add_all(queue.delivered);
    if (!queue.sources.empty()) add_all(engine.requests_.sources_[queue.sources.front()].waiting);
  });
  for (Peers::Index index = 0; index < engine.peers_.peers_.capacity(); ++index) {
    const Peers::Peer& peer = engine.peers_.peers_[index];
    for (const std::uint32_t word : {peer.window, peer.window_credit, peer.in_flight}) hash.add(word);
    hash.add(peer.in_turn);
    for (auto held = peer.held.front(); held != peer.held.kNone; held = engine.exchanges_[held].link.next) {
      hash.add(comm_id_of(held));
    }
  }
}

std::vector<ConnectionId> EngineAccess::queued(const Engine& engine) {
  std::vector<ConnectionId> ids;
  for (Engine::Slot slot = 0; slot < engine.connections_.capacity(); ++slot) {
    if (engine.connections_[slot].state == State::kReqQueued) ids.push_back(engine.handle_of(slot));
  }
  return ids;
}

void EngineAccess::set_unread_max(Engine& engine, std::size_t unread_max) {
  engine.requests_.delivered_max_ = unread_max;
}

void EngineAccess::expire_timer(Engine& engine, TimeNs now, ConnectionId id) {
  const Engine::Slot slot = slot_of(engine, id);
  UCM_CHECK(slot != Connection::kNone && engine.timers_.deadline_of(slot) != kNever);
  const TimeNs elapsed = engine.timers_.deadline_of(slot) - now;
  if (const std::uint32_t index = engine.connections_[slot].exchange; index != Connection::kNone) {
    engine.exchanges_[index].sent_at -= elapsed;
    engine.exchanges_[index].give_up_at -= elapsed;
  }
  engine.timers_.set(slot, now);
  engine.on_deadline(now);
}

// A connection draws its comm ID and its starting PSN.
void EngineAccess::set_next_comm_id(Engine& engine, unsigned number) {
  engine.random_ = Random(engine.config_.random_key);
  for (unsigned i = 0; i < 2 * number; ++i) engine.random_.next();
}

void EngineAccess::normalize(Engine& engine, std::uint32_t window) {
  UCM_CHECK(engine.packets_.empty() && engine.events_.empty());
  engine.packets_ = {};
  engine.events_ = {};
  set_next_comm_id(engine, 0);
  engine.last_words_ = {};
  for (Peers::Index index = 0; index < engine.peers_.peers_.capacity(); ++index) {
    Peers::Peer& peer = engine.peers_.peers_[index];
    const Peers::Peer unknown{.window = window};
    peer.measured = unknown.measured;
    peer.is_ucm = unknown.is_ucm;
    peer.slow_start = unknown.slow_start;
    peer.answer_us = unknown.answer_us;
    peer.deviation_us = unknown.deviation_us;
    peer.window = unknown.window;
    peer.window_credit = unknown.window_credit;
    peer.shrunk_at = unknown.shrunk_at;
  }
}

}  // namespace ucm::cm
