// How datagrams enter and leave a node. Batches both ways; nothing blocks. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/datagram.h"

namespace ucm::net {

// A UDP payload and what travels beside it. The bytes belong to somebody else.
struct Datagram {
  wire::DatagramInfo info;
  Bytes payload;
};

class PacketPort {
 public:
  using Sink = std::function<void(const Datagram&)>;

  virtual ~PacketPort() = default;

  // Hands at most `datagrams_max` waiting datagrams to `sink`, whose spans are valid during the call only; returns how
  // many. Fewer than asked for: nothing waits any more.
  virtual std::size_t receive(const Sink& sink, std::size_t datagrams_max) = 0;

  // Sends in order, from info.source and source_port() whatever info.source_port says. What cannot be sent is counted
  // and lost, as the network may lose it.
  virtual void send(std::span<const Datagram> datagrams) = 0;

  // The UDP source port of everything sent (the ICRC covers it).
  virtual std::uint16_t source_port() const = 0;

  // What is sent to `group` arrives here, too, until leave_group(). Once per group; errors are the system's.
  virtual Result<void> join_group(const wire::MulticastGroup& group) = 0;
  virtual void leave_group(const wire::MulticastGroup& group) = 0;

  // Readable while datagrams wait. Empty: only receive() tells.
  virtual std::vector<int> wait_fds() const = 0;

  // True when receive() wants to be called again soon although no descriptor is readable.
  virtual bool holds_datagrams() const { return false; }
};

}  // namespace ucm::net
