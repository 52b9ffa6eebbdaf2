#include "rdma/qp_attributes.h"

#include <rdma/rdma_cma.h>

#include "rdma/convert.h"

namespace ucm::rdma {
namespace {

constexpr int kInitMask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kDatagramMask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
// Each direction of XRC has its part of what RC has.  // Linux: same
int rtr_mask(ibv_qp_type type) {
  constexpr int kAll = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  const bool answers = type == IBV_QPT_RC || type == IBV_QPT_XRC_RECV;
  return answers ? kAll | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : kAll;
}

int rts_mask(ibv_qp_type type) {
  constexpr int kAll = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (type == IBV_QPT_UC) return kAll;
  if (type == IBV_QPT_XRC_RECV) return kAll | IBV_QP_TIMEOUT;
  return kAll | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
}

int fill_init(const ConnectionFacts& facts, bool connected, ibv_qp_state state, ibv_qp_attr& attributes) {
  attributes.qp_state = state;
  attributes.port_num = facts.port_num;
  if (connected) {
    attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    if (facts.qp.responder_resources != 0) {
      attributes.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    }
  }
  return kInitMask;
}

int fill_rtr(const ConnectionFacts& facts, ibv_qp_attr& attributes) {
  attributes.qp_state = IBV_QPS_RTR;
  attributes.ah_attr = address_of_peer(facts);
  attributes.path_mtu = static_cast<ibv_mtu>(facts.qp.path_mtu);
  attributes.dest_qp_num = facts.qp.dest_qpn;
  attributes.rq_psn = facts.qp.rq_psn;
  attributes.max_dest_rd_atomic = facts.qp.responder_resources;
  attributes.min_rnr_timer = 0;  // Linux: 655.36 ms
  return rtr_mask(facts.qp_type);
}

int fill_rts(const ConnectionFacts& facts, ibv_qp_attr& attributes) {
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = facts.qp.sq_psn;
  attributes.timeout = facts.ack_timeout.value_or(facts.qp.ack_timeout);
  attributes.retry_cnt = facts.qp.retry_count;
  attributes.rnr_retry = facts.qp.rnr_retry_count;
  attributes.max_rd_atomic = facts.qp.initiator_depth;
  return rts_mask(facts.qp_type);
}

int fill_datagram(const ConnectionFacts& facts, ibv_qp_state state, ibv_qp_attr& attributes) {
  attributes.qp_state = state;
  attributes.port_num = facts.port_num;
  attributes.qkey = RDMA_UDP_QKEY;
  return kDatagramMask;
}

}  // namespace

ibv_ah_attr address_of_peer(const ConnectionFacts& facts) {
  ibv_ah_attr address{};
  address.is_global = 1;
  address.grh.dgid = gid_of(facts.path.remote);
  address.grh.sgid_index = facts.sgid_index;
  address.grh.hop_limit = facts.path.hop_limit;
  address.grh.traffic_class = facts.path.traffic_class;
  address.grh.flow_label = facts.path.flow_label;
  address.sl = facts.path.sl;
  address.port_num = facts.port_num;
  return address;
}

std::optional<int> qp_attributes_for(const ConnectionFacts& facts, ibv_qp_state state, ibv_qp_attr& attributes) {
  attributes = ibv_qp_attr{};
  if (facts.qp_type == IBV_QPT_UD) return fill_datagram(facts, state, attributes);
  switch (rules_of(facts.phase).attributes) {
    case KnownAttributes::kNothing:
      return std::nullopt;
    case KnownAttributes::kUnconnected:
      return fill_init(facts, false, state, attributes);  // for any state  // Linux: same
    case KnownAttributes::kInitOnly:
      if (state != IBV_QPS_INIT) return std::nullopt;
      return fill_init(facts, true, state, attributes);
    case KnownAttributes::kAll:
      break;
  }
  if (state == IBV_QPS_INIT) return fill_init(facts, true, state, attributes);
  if (!facts.qp.dest_known) return std::nullopt;
  if (state == IBV_QPS_RTR) return fill_rtr(facts, attributes);
  if (state == IBV_QPS_RTS) return fill_rts(facts, attributes);
  return std::nullopt;
}

}  // namespace ucm::rdma
