#include "explore/engine_access.h"

#include "base/check.h"

namespace ucm::cm {

EngineAccess::Facts EngineAccess::facts(const Engine& engine, ConnectionId id) {
  const Engine::Slot slot = engine.slot_of(id);
  if (slot == Connection::kNone) return {};
  const Connection& c = engine.connections_[slot];
  return {.state = c.state,
          .local_comm_id = c.local_comm_id,
          .remote_comm_id = c.remote_comm_id,
          .timer = engine.timers_.deadline_of(slot) != kNever};
}

void EngineAccess::expire_timer(Engine& engine, TimeNs now, ConnectionId id) {
  const Engine::Slot slot = engine.slot_of(id);
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
