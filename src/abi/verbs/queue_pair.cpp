// Queue pairs: creation, state changes, destruction.
#include <algorithm>
#include <optional>

#include "abi/verbs/objects.h"

namespace ucm::abi::verbs {

namespace {

std::optional<roce::QpType> type_of(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC:
      return roce::QpType::kRc;
    case IBV_QPT_UC:
      return roce::QpType::kUc;
    case IBV_QPT_UD:
      return roce::QpType::kUd;
    case IBV_QPT_XRC_SEND:
      return roce::QpType::kXrcSend;
    case IBV_QPT_XRC_RECV:
      return roce::QpType::kXrcRecv;
    default:
      return std::nullopt;
  }
}

roce::QpCapacity capacity_of(const ibv_qp_cap& cap) {
  return {.send_wr_max = cap.max_send_wr,
          .recv_wr_max = cap.max_recv_wr,
          .send_sge_max = cap.max_send_sge,
          .recv_sge_max = cap.max_recv_sge,
          .inline_max = cap.max_inline_data};
}

void put_capacity(ibv_qp_cap& to, const roce::QpCapacity& from) {
  to.max_send_wr = from.send_wr_max;
  to.max_recv_wr = from.recv_wr_max;
  to.max_send_sge = from.send_sge_max;
  to.max_recv_sge = from.recv_sge_max;
  to.max_inline_data = from.inline_max;
}

// What the QP starts with and what ibv_query_qp returns before anything was set.
void reset_attributes(Qp& qp) {
  ibv_qp_attr& attributes = qp.shared->attributes;
  attributes = {};
  attributes.path_mig_state = IBV_MIG_MIGRATED;
  attributes.port_num = kDevicePort;
  attributes.cap = qp.shared->init.cap;
}

// Where a new queue pair belongs: in a protection domain, or, if it receives for XRC, in an XRC domain.
struct Home {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  Xrcd* xrcd = nullptr;
};

// The queues that the type has.
bool has_what_it_needs(const Home& home, const ibv_qp_init_attr& init, roce::QpType type) {
  if (type == roce::QpType::kXrcRecv) return home.xrcd != nullptr;
  if (home.pd == nullptr || init.send_cq == nullptr) return false;
  return type == roce::QpType::kXrcSend || init.recv_cq != nullptr;
}

roce::QpParams engine_params(const Home& home, const ibv_qp_init_attr& init, roce::QpType type) {
  roce::QpParams params{.type = type, .capacity = capacity_of(init.cap), .signal_all = init.sq_sig_all != 0};
  if (roce::is_xrc(type)) params.capacity.recv_wr_max = params.capacity.recv_sge_max = 0;
  if (type == roce::QpType::kXrcRecv) {
    params.xrcd = id_of(*home.xrcd);
    return params;
  }
  params.pd = Pd::from(home.pd)->id;
  params.send_cq = Cq::from(init.send_cq)->id;
  if (type == roce::QpType::kXrcSend) return params;
  params.recv_cq = Cq::from(init.recv_cq)->id;
  if (init.srq != nullptr) params.srq = Srq::from(init.srq)->id;
  return params;
}

// Creates the QP in the engine and fills `qp` in; the capacity granted is written back to `init`.
Result<void> create_in_engine(Qp& qp, const Home& home, ibv_qp_init_attr& init, roce::QpType type) {
  client::SoftwareDevice& software = software_of(home.context);
  const auto qpn = software.session().allocate_qpn();
  if (!qpn) return tl::unexpected(qpn.error());
  software.session().set_peer_qpn(*qpn, 0);
  roce::QpParams params = engine_params(home, init, type);
  params.qpn = *qpn;
  params.user = reinterpret_cast<std::uintptr_t>(qp.shared.get());
  const auto created = software.inspect([&](roce::Engine& engine) { return engine.create_qp(params); });
  if (!created) {
    software.session().free_qpn(*qpn);
    return created;
  }
  put_capacity(init.cap, params.capacity);
  ibv_qp& base = qp.qp_base;
  base.context = home.context;
  base.qp_context = init.qp_context;
  base.pd = home.pd;
  if (type != roce::QpType::kXrcRecv) base.send_cq = init.send_cq;
  if (!roce::is_xrc(type)) {
    base.recv_cq = init.recv_cq;
    base.srq = init.srq;
  }
  base.handle = *qpn;
  base.qp_num = *qpn;
  base.state = IBV_QPS_RESET;
  base.qp_type = init.qp_type;
  return {};
}

Qp* create(const Home& home, ibv_qp_init_attr& init) {
  const auto type = type_of(init.qp_type);
  if (!type) return null_with_errno(EOPNOTSUPP);
  if (!has_what_it_needs(home, init, *type)) return null_with_errno(EINVAL);
  auto qp = std::make_unique<Qp>();
  qp->shared = std::make_shared<SharedQp>();
  if (const auto created = create_in_engine(*qp, home, init, *type); !created) {
    return null_with_errno(created.error().code);
  }
  qp->shared->init = init;
  reset_attributes(*qp);
  finish_handle(*qp);
  if (*type == roce::QpType::kXrcRecv) enter_domain(*qp, *home.xrcd);
  return qp.release();
}

// Attributes that one mask bit of ibv_modify_qp and one of the engine's stand for.
struct MaskPair {
  int verbs;
  std::uint32_t engine;
};
constexpr MaskPair kMasks[] = {
    {IBV_QP_STATE, roce::kQpState},
    {IBV_QP_ACCESS_FLAGS, roce::kQpAccess},
    {IBV_QP_QKEY, roce::kQpQkey},
    {IBV_QP_AV, roce::kQpAddress},
    {IBV_QP_PATH_MTU, roce::kQpPathMtu},
    {IBV_QP_TIMEOUT, roce::kQpTimeout},
    {IBV_QP_RETRY_CNT, roce::kQpRetryCount},
    {IBV_QP_RNR_RETRY, roce::kQpRnrRetry},
    {IBV_QP_RQ_PSN, roce::kQpRqPsn},
    {IBV_QP_MAX_QP_RD_ATOMIC, roce::kQpMaxRdAtomic},
    {IBV_QP_MIN_RNR_TIMER, roce::kQpMinRnrTimer},
    {IBV_QP_SQ_PSN, roce::kQpSqPsn},
    {IBV_QP_MAX_DEST_RD_ATOMIC, roce::kQpMaxDestRdAtomic},
    {IBV_QP_DEST_QPN, roce::kQpDestQpn},
};
// Checked here, or without meaning for this device.
constexpr int kMaskHandledHere =
    IBV_QP_CUR_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_PATH_MIG_STATE;

std::uint32_t engine_mask(int mask) {
  std::uint32_t result = 0;
  for (const MaskPair& pair : kMasks) {
    if ((mask & pair.verbs) != 0) result |= pair.engine;
  }
  return result;
}

int known_masks() {
  int known = kMaskHandledHere;
  for (const MaskPair& pair : kMasks) known |= pair.verbs;
  return known;
}

// 0, or the errno value for what the engine does not see.
int check_attributes(const ibv_qp_attr& attributes, int mask, roce::QpState current) {
  if ((mask & ~known_masks()) != 0) return EOPNOTSUPP;
  if ((mask & IBV_QP_PKEY_INDEX) != 0 && attributes.pkey_index != 0) return EINVAL;
  if ((mask & IBV_QP_PORT) != 0 && attributes.port_num != kDevicePort) return EINVAL;
  if ((mask & IBV_QP_PATH_MIG_STATE) != 0 && attributes.path_mig_state != IBV_MIG_MIGRATED) return EINVAL;
  if ((mask & IBV_QP_CUR_STATE) != 0 && static_cast<int>(attributes.cur_qp_state) != static_cast<int>(current)) {
    return EINVAL;
  }
  const bool to_init = (mask & IBV_QP_STATE) != 0 && attributes.qp_state == IBV_QPS_INIT;
  constexpr int kInitNeeds = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  if (to_init && current == roce::QpState::kReset && (mask & kInitNeeds) != kInitNeeds) return EINVAL;
  return (mask & IBV_QP_STATE) != 0 && attributes.qp_state > IBV_QPS_ERR ? EINVAL : 0;
}

Result<roce::QpAttributes> engine_attributes(Context& context, const ibv_qp_attr& from, int mask) {
  constexpr std::uint32_t kRights =
      roce::kAccessLocalWrite | roce::kAccessRemoteWrite | roce::kAccessRemoteRead | roce::kAccessRemoteAtomic;
  roce::QpAttributes to{
      .state = static_cast<roce::QpState>(from.qp_state),
      .access = from.qp_access_flags & kRights,
      .qkey = from.qkey,
      .address = {},
      .path_mtu = static_cast<std::uint8_t>(from.path_mtu),
      .timeout = from.timeout,
      .retry_count = from.retry_cnt,
      .rnr_retry = from.rnr_retry,
      .rq_psn = from.rq_psn,
      .sq_psn = from.sq_psn,
      .max_rd_atomic = from.max_rd_atomic,
      .max_dest_rd_atomic = from.max_dest_rd_atomic,
      .min_rnr_timer = from.min_rnr_timer,
      .dest_qpn = from.dest_qp_num,
  };
  if ((mask & IBV_QP_AV) != 0) {
    const auto address = address_vector_of(context, from.ah_attr);
    if (!address) return tl::unexpected(address.error());
    to.address = *address;
  }
  return to;
}

// Copies the attributes that `mask` names.
void remember_attributes(ibv_qp_attr& to, const ibv_qp_attr& from, int mask) {
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) to.qp_access_flags = from.qp_access_flags;
  if ((mask & IBV_QP_PKEY_INDEX) != 0) to.pkey_index = from.pkey_index;
  if ((mask & IBV_QP_PORT) != 0) to.port_num = from.port_num;
  if ((mask & IBV_QP_QKEY) != 0) to.qkey = from.qkey;
  if ((mask & IBV_QP_AV) != 0) to.ah_attr = from.ah_attr;
  if ((mask & IBV_QP_PATH_MTU) != 0) to.path_mtu = from.path_mtu;
  if ((mask & IBV_QP_TIMEOUT) != 0) to.timeout = from.timeout;
  if ((mask & IBV_QP_RETRY_CNT) != 0) to.retry_cnt = from.retry_cnt;
  if ((mask & IBV_QP_RNR_RETRY) != 0) to.rnr_retry = from.rnr_retry;
  if ((mask & IBV_QP_RQ_PSN) != 0) to.rq_psn = from.rq_psn;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) to.max_rd_atomic = from.max_rd_atomic;
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) to.min_rnr_timer = from.min_rnr_timer;
  if ((mask & IBV_QP_SQ_PSN) != 0) to.sq_psn = from.sq_psn;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) to.max_dest_rd_atomic = from.max_dest_rd_atomic;
  if ((mask & IBV_QP_DEST_QPN) != 0) to.dest_qp_num = from.dest_qp_num;
}

Result<roce::QpAttributes> query(const Qp& qp) {
  return software_of(qp.qp_base.context).inspect([&](roce::Engine& engine) {
    return engine.query_qp(qp.qp_base.qp_num);
  });
}

// Linux: what the direction of an XRC queue pair has no use for may be set and is ignored.
int without_ignored(ibv_qp_type type, int mask) {
  switch (type) {
    case IBV_QPT_XRC_SEND:
      return mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    case IBV_QPT_XRC_RECV:
      return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
    default:
      return mask;
  }
}

Result<void> modify(Qp& qp, const ibv_qp_attr& attributes, int mask) {
  client::SoftwareDevice& software = software_of(qp.qp_base.context);
  const auto current = query(qp);
  if (!current) return tl::unexpected(current.error());
  if (const int error = check_attributes(attributes, mask, current->state); error != 0) {
    return fail(error, "bad QP attributes");
  }
  const bool leads_on =
      (mask & IBV_QP_STATE) != 0 && attributes.qp_state != IBV_QPS_RESET && attributes.qp_state != IBV_QPS_ERR;
  if (leads_on && software.lost()) return fail(EIO, "the node is gone");
  Context& context = *Context::from(qp.qp_base.context);
  auto wanted = engine_attributes(context, attributes, mask);
  if (!wanted) return tl::unexpected(wanted.error());
  std::uint32_t wanted_mask = engine_mask(mask);
  if (qp.qp_base.qp_type == IBV_QPT_UD && (mask & IBV_QP_STATE) != 0 && attributes.qp_state == IBV_QPS_RTR) {
    wanted->path_mtu = static_cast<std::uint8_t>(port_attributes(context.owner->snapshot()).active_mtu);
    wanted_mask |= roce::kQpPathMtu;
  }
  // Before the engine takes packets, so that none of the peer's is turned away.
  if ((mask & IBV_QP_DEST_QPN) != 0) {
    software.session().set_peer_qpn(qp.qp_base.qp_num, attributes.dest_qp_num);
  }
  return software.execute(
      [&](roce::Engine& engine, TimeNs now) { return engine.modify_qp(now, qp.qp_base.qp_num, *wanted, wanted_mask); });
}

}  // namespace

void finish_handle(Qp& qp) {
  pthread_mutex_init(&qp.qp_base.mutex, nullptr);
  pthread_cond_init(&qp.qp_base.cond, nullptr);
  ++Context::from(qp.qp_base.context)->objects;
  const std::lock_guard lock(qp.shared->mutex);
  qp.shared->handles.push_back(&qp);
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attributes) {
  constexpr std::uint32_t kKnown =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  const std::uint32_t mask = attributes->comp_mask;
  if ((mask & ~kKnown) != 0) return null_with_errno(EOPNOTSUPP);
  if ((mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && attributes->create_flags != 0) {
    return null_with_errno(EOPNOTSUPP);
  }
  Home home{.context = context};
  if ((mask & IBV_QP_INIT_ATTR_PD) != 0) home.pd = attributes->pd;
  if ((mask & IBV_QP_INIT_ATTR_XRCD) != 0) home.xrcd = Xrcd::from(attributes->xrcd);
  if (home.pd != nullptr && home.pd->context != context) return null_with_errno(EINVAL);
  if (home.xrcd != nullptr && home.xrcd->context != context) return null_with_errno(EINVAL);
  auto& init = reinterpret_cast<ibv_qp_init_attr&>(*attributes);  // the same members in front
  Qp* const qp = create(home, init);
  if (qp == nullptr) return nullptr;
  if ((mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0 && !install_batch_functions(*qp, attributes->send_ops_flags)) {
    ibv_destroy_qp(&qp->qp_base);
    return null_with_errno(EOPNOTSUPP);
  }
  return &qp->qp_base;
}

}  // namespace ucm::abi::verbs

using namespace ucm::abi::verbs;

extern "C" {

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
  if (pd == nullptr) return null_with_errno(EINVAL);
  Qp* const qp = create({.context = pd->context, .pd = pd}, *init);
  return qp != nullptr ? &qp->qp_base : nullptr;
}

ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  Qp* const ours = Qp::from(qp);
  return ours->batch != nullptr ? ours : nullptr;
}

int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int given_mask) {
  Qp& ours = *Qp::from(qp);
  const int mask = without_ignored(qp->qp_type, given_mask);
  if (const auto done = modify(ours, *attributes, mask); !done) return done.error().code;
  if ((mask & IBV_QP_STATE) != 0) {
    qp->state = attributes->qp_state;
    if (qp->state == IBV_QPS_RESET) reset_attributes(ours);
  }
  remember_attributes(ours.shared->attributes, *attributes, mask);
  return 0;
}

int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int /*mask*/, ibv_qp_init_attr* init) {
  const Qp& ours = *Qp::from(qp);
  const auto now = query(ours);
  if (!now) return now.error().code;
  *attributes = ours.shared->attributes;
  attributes->qp_state = static_cast<ibv_qp_state>(now->state);
  attributes->cur_qp_state = attributes->qp_state;
  qp->state = attributes->qp_state;
  if (init != nullptr) *init = ours.shared->init;
  return 0;
}

int ibv_destroy_qp(ibv_qp* qp) {
  Qp* const ours = Qp::from(qp);
  ucm::client::SoftwareDevice& software = software_of(qp->context);
  if (!leave_to_others(*ours)) {
    const auto done = software.execute(
        [&](ucm::roce::Engine& engine, ucm::TimeNs now) { return engine.destroy_qp(now, qp->qp_num); });
    if (!done) return done.error().code;
    software.session().free_qpn(qp->qp_num);
  }
  retire_qp_events(*ours);
  --Context::from(qp->context)->objects;
  delete ours;
  return 0;
}

// Packets are placed in the order of their sequence numbers, but a retransmission may write bytes again.
int ibv_query_qp_data_in_order(ibv_qp* /*qp*/, ibv_wr_opcode /*opcode*/, std::uint32_t /*flags*/) { return 0; }

}  // extern "C"
