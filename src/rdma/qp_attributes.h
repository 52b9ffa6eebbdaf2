// The QP attributes of each transition, as rdma_init_qp_attr tells them and as the library's own transitions use them.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>

#include "ipc/cm_api.h"
#include "rdma/phase.h"

namespace ucm::rdma {

// All that is known of a connection.
struct ConnectionFacts {
  Phase phase = Phase::kIdle;
  ipc::CmPath path;
  // Before the peer has answered only the depths are meant: those this side asked for.
  ipc::CmQpParams qp;
  std::optional<std::uint8_t> ack_timeout;  // RDMA_OPTION_ID_ACK_TIMEOUT
  std::uint8_t sgid_index = 0;
  std::uint8_t port_num = 1;
  ibv_qp_type qp_type = IBV_QPT_RC;
};

// The peer, for a QP or an address handle. `facts.qp.dest_known` is set.
ibv_ah_attr address_of_peer(const ConnectionFacts& facts);

// Fills `attributes` (cleared first) for the transition to `state` and returns the mask; nullopt when the phase does
// not allow it or the state is not INIT, RTR or RTS. For datagrams those of INIT, in every phase.  // Linux: same
std::optional<int> qp_attributes_for(const ConnectionFacts& facts, ibv_qp_state state, ibv_qp_attr& attributes);

}  // namespace ucm::rdma
