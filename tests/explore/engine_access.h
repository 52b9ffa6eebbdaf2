// What exploration does to an engine from inside. The engine's code stays as it is; what changes is only what its
// behaviour may not depend on: which free comm ID is drawn next, and how long ago something happened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/hash.h"
#include "base/time.h"
#include "cm/engine.h"

namespace ucm::cm {

struct EngineAccess {
  struct Facts {
    State state = State::kGone;
    std::uint32_t local_comm_id = 0;
    std::uint32_t remote_comm_id = 0;
    bool timer = false;
    auto operator<=>(const Facts&) const = default;
  };
  static Facts facts(const Engine& engine, ConnectionId id);

  // The connection's place, also when the application has destroyed it; Connection::kNone when it is gone.
  static std::uint32_t slot_of(const Engine& engine, ConnectionId id);

  // Of all that is kept for this connection, but not of where it is kept.
  static void add_to(StateHash& hash, const Engine& engine, ConnectionId id);
  // Of all else.
  static void add_rest_to(StateHash& hash, const Engine& engine);

  // The connections that wait for their turn (req_queued): the application knows nothing of them.
  static std::vector<ConnectionId> queued(const Engine& engine);
  // An application that has left this many requests unread gets no further one.
  static void set_unread_max(Engine& engine, std::size_t unread_max);

  // Every connection has a clock of its own: this one's timer runs out and no other one's, in whatever order they
  // would. `now` never changes; the connection gets older instead.
  static void expire_timer(Engine& engine, TimeNs now, ConnectionId id);

  // The next connection draws the comm ID with this number of the random sequence.
  static void set_next_comm_id(Engine& engine, unsigned number);

  // Between steps: the random sequence begins anew, nothing is known of how soon the peer answers (that changes waits,
  // which do not matter here), what would be said again is forgotten (the network says everything twice), `window`
  // requests may be in flight to it, and the memory of the queues, which are empty, is given back.
  static void normalize(Engine& engine, std::uint32_t window);
};

}  // namespace ucm::cm
