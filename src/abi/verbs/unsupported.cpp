// Public functions for what this device does not have, and those that need not do anything here.
#include "abi/verbs/objects.h"

using ucm::abi::verbs::null_with_errno;

extern "C" {

// The engine reads and writes the program's memory like the program itself, so a fork needs no care.
int ibv_fork_init() { return 0; }
ibv_fork_status ibv_is_fork_initialized() { return IBV_FORK_UNNEEDED; }
int ibv_dontfork_range(void* /*base*/, std::size_t /*size*/) { return 0; }
int ibv_dofork_range(void* /*base*/, std::size_t /*size*/) { return 0; }

ibv_dm* ibv_import_dm(ibv_context* /*context*/, std::uint32_t /*handle*/) { return null_with_errno(EOPNOTSUPP); }
void ibv_unimport_dm(ibv_dm* /*dm*/) {}

ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* /*pd*/, std::uint64_t /*offset*/, std::size_t /*length*/, std::uint64_t /*iova*/,
                          int /*fd*/, int /*access*/) {
  return null_with_errno(EOPNOTSUPP);
}

int ibv_set_ece(ibv_qp* /*qp*/, ibv_ece* /*ece*/) { return EOPNOTSUPP; }
int ibv_query_ece(ibv_qp* /*qp*/, ibv_ece* ece) {
  *ece = {};
  return EOPNOTSUPP;
}

// Link addresses are the host's business here: packets leave through its sockets.
int ibv_resolve_eth_l2_from_gid(ibv_context* /*context*/, ibv_ah_attr* /*attributes*/, std::uint8_t* /*mac*/,
                                std::uint16_t* /*vlan*/) {
  errno = EOPNOTSUPP;
  return -1;
}

}  // extern "C"
