// What an engine tells of its doings beside its outputs, for whoever keeps or shows them.
#pragma once

#include <cstdint>

#include "cm/connection.h"
#include "cm/counters.h"
#include "cm/sidr.h"
#include "cm/sidr_state_machine.h"
#include "cm/state_machine.h"

namespace ucm::cm {

// The slot that a handle names: its lower half. It is taken again after the end of its connection.
template <class Handle>
constexpr std::uint32_t slot_in(Handle handle) {
  return static_cast<std::uint32_t>(static_cast<std::uint64_t>(handle));
}

// Called in the middle of the engine's functions: it must not call the engine.
class Observer {
 public:
  virtual ~Observer() = default;

  // A new connection, by connect() or by a REQ.
  virtual void on_begin(std::uint32_t slot, const Connection& connection) = 0;
  virtual void on_begin(std::uint32_t slot, const SidrExchange& exchange) = 0;
  // An input, and what comes of it. The connection has learnt from the input, but is still in its state before.
  virtual void on_step(std::uint32_t slot, const Connection& connection, Input input, const Transition& to) = 0;
  virtual void on_step(std::uint32_t slot, const SidrExchange& exchange, SidrInput input, const SidrTransition& to) = 0;
  // The packet at hand is for no connection, and is counted here: dropped, or answered at once.
  virtual void on_stray(std::uint64_t Counters::* counted) = 0;
};

// What a message is sent for.
struct Cause {
  enum class Of : std::uint8_t {
    kPacket,       // the packet at hand, which is for no connection: `counted`
    kConnection,   // `input` to the connection in `slot`
    kSidrConnect,  // sidr_connect(), which made the exchange in `slot`
    kExchange,     // a SidrInput to the exchange in `slot`
  };
  Of of = Of::kPacket;
  std::uint8_t input = 0;
  std::uint8_t repetition = 0;  // how often the same was sent before
  bool last_words = false;      // said again because nobody answers it; `slot` may be another one's by now
  std::uint32_t slot = 0;
  std::uint64_t Counters::* counted = nullptr;
};

}  // namespace ucm::cm
