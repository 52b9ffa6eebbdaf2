// A connection as it travels to another engine, which goes on with it: Engine::record_of(), Engine::restore(). A wire
// format (node/journal_format.h): host byte order, times as the clock of both engines tells them.
#pragma once

#include <array>
#include <cstdint>

#include "wire/mad.h"

namespace ucm::cm {

struct ConnectionRecord {
  std::uint64_t user = 0;
  std::uint64_t local_guid = 0;
  std::uint64_t remote_guid = 0;
  std::uint64_t transaction_id = 0;
  std::array<std::uint8_t, 16> local_address{};
  std::array<std::uint8_t, 16> remote_address{};
  std::uint32_t ifindex = 0;
  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  std::uint32_t local_qpn = 0;
  std::uint32_t remote_qpn = 0;
  std::uint32_t rq_psn = 0;
  std::uint32_t sq_psn = 0;
  std::uint32_t flow_label = 0;
  std::uint32_t retry_interval_ms = 0;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;
  std::uint8_t state = 0;      // State
  std::uint8_t transport = 0;  // wire::TransportService
  std::uint8_t active = 0;
  std::uint8_t peer_is_ucm = 0;
  std::uint8_t disconnect_reported = 0;
  std::uint8_t retries_max = 0;
  std::uint8_t ack_timeout = 0;
  std::uint8_t packet_lifetime = 0;
  std::uint8_t path_mtu = 0;
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry_count = 0;
  std::uint8_t exchanging = 0;  // a message waits for its answer: the fields below
  std::uint8_t repetitions = 0;
  std::array<std::uint8_t, 3> reserved0{};
  std::int64_t deadline = 0;  // of the connection's timer, when its state has one
  std::int64_t sent_at = 0;
  std::int64_t give_up_at = 0;
  std::int64_t wait = 0;
  std::array<std::uint8_t, wire::kMadSize> mad{};
  std::array<std::uint32_t, 4> reserved{};
};
static_assert(sizeof(ConnectionRecord) == 424);

}  // namespace ucm::cm
