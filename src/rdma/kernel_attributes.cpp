#include "rdma/kernel_attributes.h"

#include <algorithm>
#include <iterator>

namespace ucm::rdma {
namespace {

ibv_ah_attr address_handle(const ib_uverbs_ah_attr& from) {
  ibv_ah_attr to{};
  std::copy(std::begin(from.grh.dgid), std::end(from.grh.dgid), to.grh.dgid.raw);
  to.grh.flow_label = from.grh.flow_label;
  to.grh.sgid_index = from.grh.sgid_index;
  to.grh.hop_limit = from.grh.hop_limit;
  to.grh.traffic_class = from.grh.traffic_class;
  to.dlid = from.dlid;
  to.sl = from.sl;
  to.src_path_bits = from.src_path_bits;
  to.static_rate = from.static_rate;
  to.is_global = from.is_global;
  to.port_num = from.port_num;
  return to;
}

}  // namespace

int read_qp_attributes(const ib_uverbs_qp_attr& from, ibv_qp_attr& to) {
  to = ibv_qp_attr{};
  to.qp_state = static_cast<ibv_qp_state>(from.qp_state);
  to.cur_qp_state = static_cast<ibv_qp_state>(from.cur_qp_state);
  to.path_mtu = static_cast<ibv_mtu>(from.path_mtu);
  to.path_mig_state = static_cast<ibv_mig_state>(from.path_mig_state);
  to.qkey = from.qkey;
  to.rq_psn = from.rq_psn;
  to.sq_psn = from.sq_psn;
  to.dest_qp_num = from.dest_qp_num;
  to.qp_access_flags = from.qp_access_flags;
  to.cap.max_send_wr = from.max_send_wr;
  to.cap.max_recv_wr = from.max_recv_wr;
  to.cap.max_send_sge = from.max_send_sge;
  to.cap.max_recv_sge = from.max_recv_sge;
  to.cap.max_inline_data = from.max_inline_data;
  to.ah_attr = address_handle(from.ah_attr);
  to.alt_ah_attr = address_handle(from.alt_ah_attr);
  to.pkey_index = from.pkey_index;
  to.alt_pkey_index = from.alt_pkey_index;
  to.en_sqd_async_notify = from.en_sqd_async_notify;
  to.sq_draining = from.sq_draining;
  to.max_rd_atomic = from.max_rd_atomic;
  to.max_dest_rd_atomic = from.max_dest_rd_atomic;
  to.min_rnr_timer = from.min_rnr_timer;
  to.port_num = from.port_num;
  to.timeout = from.timeout;
  to.retry_cnt = from.retry_cnt;
  to.rnr_retry = from.rnr_retry;
  to.alt_port_num = from.alt_port_num;
  to.alt_timeout = from.alt_timeout;
  return static_cast<int>(from.qp_attr_mask);
}

}  // namespace ucm::rdma
