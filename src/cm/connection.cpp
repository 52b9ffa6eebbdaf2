#include "cm/connection.h"

namespace ucm::cm {

void Connection::add_to(StateHash& hash) const {
  hash.add(user);
  hash.add(local_guid);
  hash.add(remote_guid);
  hash.add(transaction_id);
  hash.add(Bytes(path.local.bytes));
  hash.add(Bytes(path.remote.bytes));
  hash.add(path.ifindex);
  for (const std::uint32_t word : {local_comm_id, remote_comm_id, local_qpn, remote_qpn, rq_psn, sq_psn, flow_label,
                                   retry_interval_ms, exchange, request}) {
    hash.add(word);
  }
  for (const std::uint8_t byte : {retries_max, ack_timeout, packet_lifetime, path_mtu, responder_resources,
                                  initiator_depth, retry_count, rnr_retry_count, path.traffic_class, path.hop_limit}) {
    hash.add(byte);
  }
  hash.add(static_cast<std::uint8_t>(transport));
  hash.add(active);
  hash.add(peer_is_ucm);
  hash.add(disconnect_reported);
}

}  // namespace ucm::cm
