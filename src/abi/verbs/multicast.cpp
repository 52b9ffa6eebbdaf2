// Multicast: the device passes copies on to the queue pairs, and the node takes part in the group on the interface.
#include "abi/verbs/objects.h"

using ucm::abi::verbs::address_of;
using ucm::abi::verbs::Context;
using ucm::abi::verbs::software_of;

namespace {

ucm::wire::MulticastGroup group_of(const ibv_qp& qp, const ibv_gid& gid) {
  return {.address = address_of(gid), .ifindex = Context::from(qp.context)->owner->ifindex()};
}

}  // namespace

extern "C" {

// The LID is InfiniBand's.
int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t /*lid*/) {
  const auto group = group_of(*qp, *gid);
  auto& software = software_of(qp->context);
  const auto attached =
      software.inspect([&](ucm::roce::Engine& engine) { return engine.attach_multicast(qp->qp_num, group); });
  if (!attached) return attached.error().code;
  if (!*attached) return 0;
  const auto joined = software.session().join_group(group);
  if (joined) return 0;
  software.inspect([&](ucm::roce::Engine& engine) { return engine.detach_multicast(qp->qp_num, group); });
  return joined.error().code;
}

int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t /*lid*/) {
  const auto group = group_of(*qp, *gid);
  auto& software = software_of(qp->context);
  const auto detached =
      software.inspect([&](ucm::roce::Engine& engine) { return engine.detach_multicast(qp->qp_num, group); });
  if (!detached) return detached.error().code;
  software.session().leave_group(group);
  return 0;
}

}  // extern "C"
