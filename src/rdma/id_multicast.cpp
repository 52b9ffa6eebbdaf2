// Multicast groups of an ID. RoCE has no subnet administrator: the node answers a join at once, and membership is the
// QP's attachment.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "rdma/convert.h"
#include "rdma/id.h"
#include "wire/headers.h"

namespace ucm::rdma {
namespace {

bool same_address(const ipc::SocketAddress& a, const ipc::SocketAddress& b) {
  return a.family == b.family && a.address == b.address;
}

}  // namespace

Result<void> Id::join_multicast(const sockaddr* group, MulticastRole role, void* user_context) {
  const auto address = group != nullptr ? from_sockaddr(*group) : std::nullopt;
  if (!address) return fail(EINVAL, "the group's address is neither AF_INET nor AF_INET6");
  ipc::CmCommand join = command(ipc::CmCall::kJoinMulticast);
  join.destination = *address;
  join.option_value = role == MulticastRole::kSender ? 1 : 0;
  {
    const std::lock_guard lock(qp_mutex_);
    join.multicast = ++last_membership_;
    // Before the call: another thread may read the event before the call returns.
    memberships_.push_back({.number = join.multicast, .group = *address, .role = role, .context = user_context});
  }
  if (auto reply = call(join); !reply) {
    const std::lock_guard lock(qp_mutex_);
    std::erase_if(memberships_, [&](const Membership& known) { return known.number == join.multicast; });
    return tl::unexpected(reply.error());
  }
  return complete();
}

Result<void> Id::leave_multicast(const sockaddr* group) {
  const auto address = group != nullptr ? from_sockaddr(*group) : std::nullopt;
  if (!address) return fail(EINVAL, "the group's address is neither AF_INET nor AF_INET6");
  const std::lock_guard lock(qp_mutex_);
  const auto membership =
      std::ranges::find_if(memberships_, [&](const Membership& known) { return same_address(known.group, *address); });
  if (membership == memberships_.end()) return fail(EADDRNOTAVAIL, "the ID has not joined the group");
  detach(*membership);
  const std::uint32_t number = membership->number;
  memberships_.erase(membership);
  kernel::KernelLink* const kernel = current_channel()->kernel();
  return kernel != nullptr ? kernel->leave_multicast(handle_, number) : Result<void>{};
}

void Id::detach(Membership& membership) {
  if (std::exchange(membership.attached, false)) ibv_detach_mcast(qp, &membership.gid, membership.lid);
}

void Id::detach_from_groups() {
  for (Membership& membership : memberships_) detach(membership);
}

// False for a group that has been left meanwhile.
bool Id::process_multicast(const ipc::CmEvent& cause, Event& told) {
  const std::lock_guard lock(qp_mutex_);
  const auto membership = std::ranges::find(memberships_, cause.multicast, &Membership::number);
  if (membership == memberships_.end()) return false;
  bool usable = cause.status == 0;
  if (cause.device.port != 0) {
    told.set_datagram(cause.conn, address_handle_of(cause.path, cause.device));
  } else {
    ConnectionFacts facts;
    facts.path = cause.path;
    const auto index = device_->gid_index(gid_of(cause.path.local));
    usable = index.has_value();
    if (usable) facts.sgid_index = *index;
    ipc::CmConnParam address;
    address.qp_num = wire::kMulticastQpn;
    address.qkey = RDMA_UDP_QKEY;
    told.set_datagram(address, address_of_peer(facts));
  }
  told.param.ud.private_data = membership->context;  // librdmacm: same
  if (usable && qp != nullptr && membership->role == MulticastRole::kMember) {
    membership->gid = remote_gid_of(cause.path, cause.device);
    membership->lid = cause.device.dlid;
    membership->attached = ibv_attach_mcast(qp, &membership->gid, membership->lid) == 0;
    usable = membership->attached;
  }
  if (!usable) {
    told.event = RDMA_CM_EVENT_MULTICAST_ERROR;
    told.status = -1;  // librdmacm: same, whatever the reason
  }
  return true;
}

}  // namespace ucm::rdma
