// What the engine keeps of one connection. Small: a node may hold a million of them. What only an unfinished exchange
// needs (the message to repeat) is kept beside it.
#pragma once

#include <cstdint>

#include "base/hash.h"
#include "cm/path.h"
#include "cm/state_machine.h"
#include "wire/cm_messages.h"

namespace ucm::cm {

struct Connection {
  static constexpr std::uint32_t kNone = UINT32_MAX;

  std::uint64_t user = 0;
  std::uint64_t local_guid = 0;
  std::uint64_t remote_guid = 0;     // 0 until the peer is known
  std::uint64_t transaction_id = 0;  // of the exchange going on
  Path path{};
  std::uint32_t generation = 1;  // of the slot; goes up with every life
  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;  // 0 until the peer is known
  std::uint32_t local_qpn = 0;
  std::uint32_t remote_qpn = 0;
  std::uint32_t remote_id_hash = 0;  // its place in the table of peers' comm IDs, once the peer is known
  std::uint32_t remote_qp_hash = 0;
  std::uint32_t peer = kNone;  // where the peer host was last found in Peers
  std::uint32_t rq_psn = 0;    // announced to the peer
  std::uint32_t sq_psn = 0;    // announced by the peer
  std::uint32_t flow_label = 0;
  std::uint32_t retry_interval_ms = 0;  // Linux' interval: the budget of an exchange is 1 + retries_max of them
  std::uint32_t exchange = kNone;       // while a message is repeated
  std::uint32_t request = kNone;        // while the application has not read it
  State state = State::kGone;
  wire::TransportService transport = wire::TransportService::kRc;  // extended: XRC
  bool active = false;
  bool peer_is_ucm = false;  // once the peer is known
  bool disconnect_reported = false;
  bool noted = false;  // among those that have changed
  std::uint8_t retries_max = 0;
  std::uint8_t ack_timeout = 0;      // exponent; also the length of timewait
  std::uint8_t packet_lifetime = 0;  // exponent, active side
  std::uint8_t path_mtu = 0;
  std::uint8_t responder_resources = 0;  // for the own QP
  std::uint8_t initiator_depth = 0;
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry_count = 0;

  bool is_xrc() const { return transport == wire::TransportService::kExtended; }

  void add_to(StateHash& hash) const;
};
static_assert(sizeof(Connection) <= 160, "an established connection is to fit 256 bytes with its table entries");

}  // namespace ucm::cm
