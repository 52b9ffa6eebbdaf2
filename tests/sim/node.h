// What runs on a simulated host: UCM's engine, or the model of a Linux kernel. The simulated programs know this
// interface alone, so that every scenario can be played by either, and by any mixture.
//
// After any call that takes `now`, drain poll_packet() and poll_event(), and ask next_deadline() again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/time.h"
#include "wire/address.h"
#include "wire/mad.h"

namespace ucm::sim {

// Of a connection or a listener of one node; 0 is none.
using Handle = std::uint64_t;

enum class EventType : std::uint8_t {
  kConnectRequest,
  kConnectResponse,  // the active side has REP: establish() sends RTU
  kEstablished,      // passive side
  kRejected,         // status: the reason
  kUnreachable,      // status -110
  kDisconnected,     // status 0, or -110 when nobody answered
  kTimewaitExit,
};

struct Event {
  EventType type{};
  Handle connection = 0;
  std::uint64_t user = 0;  // of the connection; of the listener for kConnectRequest
  std::int32_t status = 0;
  std::uint32_t peer_qpn = 0;   // kConnectRequest, kConnectResponse
  std::uint64_t peer_note = 0;  // likewise: the first eight bytes of the private data
};

struct Packet {
  wire::IpAddress from{};
  wire::IpAddress to{};
  std::array<std::uint8_t, wire::kMadSize> mad{};
};

struct ConnectRequest {
  wire::IpAddress remote{};
  std::uint16_t port = 0;
  std::uint16_t source_port = 0;
  std::uint32_t qpn = 0;
  std::uint64_t note = 0;  // sent as private data
  std::uint64_t user = 0;
};

// What a QP is programmed with.
struct QpNumbers {
  std::uint32_t local_qpn = 0;
  std::uint32_t dest_qpn = 0;
  std::uint32_t rq_psn = 0;
  std::uint32_t sq_psn = 0;
};

// How much a node holds; all zero when nothing is left.
struct Usage {
  std::size_t connections = 0;
  std::size_t orphans = 0;  // of these: no program has them any more, and their DREQ is repeated
  std::size_t listeners = 0;
  std::size_t comm_ids = 0;
  std::size_t remote_ids = 0;
  std::size_t remote_qps = 0;
  std::size_t messages = 0;
  std::size_t requests = 0;  // that no program has read; those it has not even heard of are connections, too
  std::size_t timers = 0;
  bool operator==(const Usage&) const = default;
};

class Node {
 public:
  virtual ~Node() = default;

  // On every address of the node.
  virtual Handle listen(std::uint16_t port, std::uint32_t backlog, std::uint64_t user) = 0;
  virtual void close_listener(TimeNs now, Handle listener) = 0;

  virtual Handle connect(TimeNs now, const ConnectRequest& request) = 0;
  // The program has read the request: one backlog slot is free again.
  virtual void request_taken(TimeNs now, Handle connection) = 0;
  virtual void set_user(Handle connection, std::uint64_t user) = 0;
  // False when the state does not allow it: the peer has given up, for instance.
  virtual bool accept(TimeNs now, Handle connection, std::uint32_t qpn, std::uint64_t note) = 0;
  virtual bool reject(TimeNs now, Handle connection) = 0;
  virtual bool establish(TimeNs now, Handle connection) = 0;
  virtual void disconnect(TimeNs now, Handle connection) = 0;
  virtual void destroy(TimeNs now, Handle connection) = 0;
  // nullopt for an invalid handle.
  virtual std::optional<QpNumbers> qp(Handle connection) const = 0;

  virtual void on_packet(TimeNs now, const wire::IpAddress& from, Bytes mad) = 0;
  virtual void on_deadline(TimeNs now) = 0;
  virtual TimeNs next_deadline() const = 0;
  virtual bool poll_packet(Packet& packet) = 0;
  virtual bool poll_event(Event& event) = 0;

  virtual Usage usage() const = 0;
  // Whatever became of the connection. Linux does not.
  virtual bool answers_every_dreq() const = 0;
};

}  // namespace ucm::sim
