// What all QPs of one engine share.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/ring_queue.h"
#include "roce/completion_queue.h"
#include "roce/engine.h"
#include "roce/limits.h"
#include "roce/memory.h"
#include "roce/receive_queue.h"
#include "wire/headers.h"

namespace ucm::roce {

// One response packet without payload: an acknowledgement of some kind.
struct Acknowledgement {
  std::uint32_t psn = 0;
  std::uint32_t msn = 0;
  std::uint8_t syndrome = 0;
  bool atomic = false;
  std::uint64_t original = 0;  // atomic: the value found
};

// An acknowledgement whose QP is gone. The peer's work request had succeeded, so it deserves to learn of it.
struct Farewell {
  AddressVector address;
  wire::Service service{};
  Qpn destination = 0;
  Acknowledgement acknowledgement;
};

// The addresses of a packet sent along `address`.
inline void fill_addresses(const AddressVector& address, wire::DatagramInfo& info) {
  info.source = address.local;
  info.destination = address.remote;
  info.ifindex = address.ifindex;
  info.traffic_class = address.traffic_class;
  info.hop_limit = address.hop_limit;
}

struct Core {
  explicit Core(const RandomKey& key) : memory(key) {}

  void raise(EventType type, std::uint64_t user) { events.push({.type = type, .user = user}); }

  MemoryTable memory;
  EventQueue events;
  RingQueue<Farewell> farewells;
  Counters counters;
  std::unordered_map<std::uint32_t, SharedReceiveQueue*> xrc_srqs;  // by number
};

}  // namespace ucm::roce
