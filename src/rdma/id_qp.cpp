// The QP of an ID: making it, its transitions, ECE.
#include <cerrno>
#include <cstring>

#include "rdma/convert.h"
#include "rdma/id.h"
#include "rdma/kernel_attributes.h"

namespace ucm::rdma {
namespace {

int error_or(int fallback) { return errno != 0 ? errno : fallback; }

// Verbs that return an error number on failure.
Result<void> checked(int error, const char* what) {
  if (error == 0) return {};
  return fail(error > 0 ? error : error_or(EIO), what);
}

}  // namespace

Result<ConnectionFacts> Id::facts() {
  ConnectionFacts facts;
  Device* device = nullptr;
  {
    const std::lock_guard lock(mutex_);
    device = device_;
    facts.phase = phase_;
    facts.path = path_;
    facts.qp = qp_params_;
    facts.ack_timeout = ack_timeout_;
    facts.qp_type = qp_type;
  }
  if (device == nullptr) return fail(EINVAL, "the ID is not bound to a device");
  if (facts.qp.dest_known) {
    const auto index = device->gid_index(gid_of(facts.path.local));
    if (!index) return tl::unexpected(index.error());
    facts.sgid_index = *index;
  }
  return facts;
}

Result<int> Id::init_qp_attributes(ibv_qp_attr& attributes) {
  const ibv_qp_state state = attributes.qp_state;
  if (kernel::KernelLink* const kernel = current_channel()->kernel()) {
    const auto told = kernel->qp_attributes(handle_, static_cast<std::uint32_t>(state));
    if (!told) return tl::unexpected(told.error());
    return read_qp_attributes(*told, attributes);
  }
  const auto known = facts();
  if (!known) return tl::unexpected(known.error());
  const auto mask = qp_attributes_for(*known, state, attributes);
  if (!mask) return fail(EINVAL, std::string("no attributes for this state: ") + rules_of(known->phase).name);
  const std::lock_guard lock(mutex_);
  qkey_in_use_ = is_datagram();
  return *mask;
}

Result<void> Id::modify_qp(ibv_qp& target, ibv_qp_state state) {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  const auto mask = init_qp_attributes(attributes);
  if (!mask) return tl::unexpected(mask.error());
  limit_depths(attributes);
  return checked(ibv_modify_qp(&target, &attributes, *mask), "the QP cannot be modified");
}

// The kernel does not know yet what rdma_accept() was told.
void Id::limit_depths(ibv_qp_attr& attributes) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::kRequested) return;
  attributes.max_dest_rd_atomic = qp_params_.responder_resources;
  attributes.max_rd_atomic = qp_params_.initiator_depth;
}

Result<void> Id::ready_qp() {
  // INIT again: what the peer may do with the QP is known only now.
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    if (auto modified = modify_qp(*qp, state); !modified) return modified;
  }
  return {};
}

// Datagrams need no peer: the QP can be used at once.
Result<void> Id::ready_datagram_qp(ibv_qp& target) {
  if (auto modified = modify_qp(target, IBV_QPS_INIT); !modified) return modified;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  if (auto modified = checked(ibv_modify_qp(&target, &attributes, IBV_QP_STATE), "the QP cannot receive"); !modified) {
    return modified;
  }
  attributes.qp_state = IBV_QPS_RTS;
  return checked(ibv_modify_qp(&target, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN), "the QP cannot send");
}

void Id::fail_qp() {
  const std::lock_guard lock(qp_mutex_);
  if (qp == nullptr) return;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  // A QP that refuses is in no state to carry data either.
  static_cast<void>(ibv_modify_qp(qp, &attributes, IBV_QP_STATE));
}

bool Id::make_cq(std::uint32_t depth, ibv_comp_channel*& comp_channel, ibv_cq*& cq) {
  comp_channel = ibv_create_comp_channel(verbs);
  if (comp_channel != nullptr) cq = ibv_create_cq(verbs, static_cast<int>(depth), this, comp_channel, 0);
  return cq != nullptr;
}

Result<void> Id::create_cqs(ibv_qp_init_attr_ex& attributes) {
  const bool send_missing = attributes.send_cq == nullptr && attributes.cap.max_send_wr != 0;
  const bool recv_missing = attributes.recv_cq == nullptr && attributes.cap.max_recv_wr != 0 && recv_cq == nullptr;
  if ((send_missing && !make_cq(attributes.cap.max_send_wr, send_cq_channel, send_cq)) ||
      (recv_missing && !make_cq(attributes.cap.max_recv_wr, recv_cq_channel, recv_cq))) {
    const int error = error_or(ENOMEM);
    destroy_cqs();
    return fail(error, "cannot create a completion queue");
  }
  if (attributes.send_cq == nullptr) attributes.send_cq = send_cq != nullptr ? send_cq : attributes.recv_cq;
  if (attributes.recv_cq == nullptr) attributes.recv_cq = recv_cq != nullptr ? recv_cq : attributes.send_cq;
  return {};
}

void Id::destroy_cqs() {
  const auto end = [](ibv_comp_channel*& comp_channel, ibv_cq*& cq) {
    if (cq != nullptr) ibv_destroy_cq(cq);
    if (comp_channel != nullptr) ibv_destroy_comp_channel(comp_channel);
    cq = nullptr;
    comp_channel = nullptr;
  };
  end(send_cq_channel, send_cq);
  end(recv_cq_channel, recv_cq);
}

Result<void> Id::create_qp(ibv_qp_init_attr_ex& attributes) {
  if (auto known = supported(); !known) return known;
  // Otherwise the types may differ: libfabric connects QPs of XRC as if they were of RC.
  if ((attributes.qp_type == IBV_QPT_UD) != is_datagram()) return fail(EINVAL, "the QP's type does not suit the ID's");
  const std::lock_guard lock(qp_mutex_);
  if (qp != nullptr) return fail(EINVAL, "the ID has a QP already");
  if (device_ == nullptr) return fail(EINVAL, "the ID is not bound to a device");
  if ((attributes.comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attributes.pd == nullptr) {
    attributes.comp_mask |= IBV_QP_INIT_ATTR_PD;
    attributes.pd = pd;
  } else if (attributes.pd->context != verbs) {
    return fail(EINVAL, "the protection domain belongs to another device than the ID");
  }
  if (qp_type == IBV_QPT_XRC_RECV &&
      ((attributes.comp_mask & IBV_QP_INIT_ATTR_XRCD) == 0 || attributes.xrcd == nullptr)) {
    const auto xrcd = device_->xrc_domain();
    if (!xrcd) return tl::unexpected(xrcd.error());
    attributes.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
    attributes.xrcd = *xrcd;
  }
  if (srq != nullptr && attributes.srq == nullptr) attributes.srq = srq;
  if (auto made = create_cqs(attributes); !made) return made;
  errno = 0;
  ibv_qp* created = ibv_create_qp_ex(verbs, &attributes);
  if (created == nullptr) {
    const int error = error_or(EINVAL);
    destroy_cqs();
    return fail(error, std::string("the QP cannot be created: ") + std::strerror(error));
  }
  if (auto ready = is_datagram() ? ready_datagram_qp(*created) : modify_qp(*created, IBV_QPS_INIT); !ready) {
    ibv_destroy_qp(created);
    destroy_cqs();
    return ready;
  }
  pd = created->pd;
  qp = created;
  return {};
}

void Id::destroy_qp() {
  if (inherited_by_fork()) return;
  const std::lock_guard lock(qp_mutex_);
  detach_from_groups();
  if (qp != nullptr) ibv_destroy_qp(qp);
  qp = nullptr;
  // Those of an SRQ of XRC are still in use.
  if (qp_type != IBV_QPT_XRC_RECV || srq == nullptr) destroy_cqs();
}

Result<void> Id::create_srq(ibv_srq_init_attr_ex& attributes) {
  if (auto known = supported(); !known) return known;
  if ((attributes.comp_mask & IBV_SRQ_INIT_ATTR_TYPE) == 0) return fail(EINVAL, "the SRQ type is missing");
  const std::lock_guard lock(qp_mutex_);
  if (srq != nullptr) return fail(EINVAL, "the ID has an SRQ already");
  if (device_ == nullptr) return fail(EINVAL, "the ID is not bound to a device");
  if ((attributes.comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attributes.pd == nullptr) {
    attributes.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
    attributes.pd = pd;
  }
  if (attributes.srq_type == IBV_SRQT_XRC) {
    if (auto completed = complete_xrc(attributes); !completed) return completed;
  }
  errno = 0;
  ibv_srq* created = ibv_create_srq_ex(verbs, &attributes);
  if (created == nullptr) return fail(error_or(EINVAL), "the SRQ cannot be created");
  srq = created;
  return {};
}

// The domain and the completion queue that the program did not name: the device's, and the ID's own.
Result<void> Id::complete_xrc(ibv_srq_init_attr_ex& attributes) {
  if ((attributes.comp_mask & IBV_SRQ_INIT_ATTR_XRCD) == 0 || attributes.xrcd == nullptr) {
    const auto xrcd = device_->xrc_domain();
    if (!xrcd) return tl::unexpected(xrcd.error());
    attributes.xrcd = *xrcd;
  }
  if ((attributes.comp_mask & IBV_SRQ_INIT_ATTR_CQ) == 0 || attributes.cq == nullptr) {
    if (recv_cq == nullptr && !make_cq(attributes.attr.max_wr, recv_cq_channel, recv_cq)) {
      const int error = error_or(ENOMEM);
      destroy_cqs();
      return fail(error, "cannot create a completion queue");
    }
    attributes.cq = recv_cq;
  }
  attributes.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  return {};
}

void Id::destroy_srq() {
  if (inherited_by_fork()) return;
  const std::lock_guard lock(qp_mutex_);
  if (srq != nullptr) ibv_destroy_srq(srq);
  srq = nullptr;
  if (qp_type == IBV_QPT_XRC_RECV) destroy_cqs();
}

Result<void> Id::set_local_ece(const ibv_ece& ece) {
  const std::scoped_lock lock(qp_mutex_, mutex_);
  if (qp != nullptr) return fail(EINVAL, "the library negotiates the ECE of an ID with a QP itself");
  if (ece.vendor_id == 0 || ece.comp_mask != 0)
    return fail(EINVAL, "an ECE names its vendor, and nothing else is known");
  local_ece_ = ece;
  return {};
}

Result<ibv_ece> Id::remote_ece() {
  const std::scoped_lock lock(qp_mutex_, mutex_);
  if (qp != nullptr) return fail(EINVAL, "the library negotiates the ECE of an ID with a QP itself");
  return remote_ece_;
}

Result<ibv_ece> Id::negotiate_ece(const ibv_ece& remote) {
  ibv_ece local;
  {
    const std::lock_guard lock(mutex_);
    local = local_ece_;
  }
  // Without a vendor on the peer's side there is nothing to agree on.
  if (remote.vendor_id == 0) return ibv_ece{};
  if (qp == nullptr) return ibv_ece{remote.vendor_id, local.options, 0};
  ibv_ece agreed = remote;
  agreed.comp_mask = 0;
  if (ibv_set_ece(qp, &agreed) != 0 || ibv_query_ece(qp, &agreed) != 0) agreed = ibv_ece{};
  agreed.vendor_id = remote.vendor_id;  // whatever the QP can do  // librdmacm: same
  return agreed;
}

}  // namespace ucm::rdma
