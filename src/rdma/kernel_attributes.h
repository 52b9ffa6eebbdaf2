// The QP attributes of a transition as the kernel tells them.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>

namespace ucm::rdma {

// Returns the mask.
int read_qp_attributes(const ib_uverbs_qp_attr& from, ibv_qp_attr& to);

}  // namespace ucm::rdma
