// The request-building interface (ibv_wr_start, ibv_wr_send, ..., ibv_wr_complete): requests are collected and posted
// together. A QP whose queue fills up half way has taken the first of them.
#include <cstring>

#include "abi/verbs/objects.h"

namespace ucm::abi::verbs {

namespace {

RequestBatch& batch_of(ibv_qp_ex* qp) { return *Qp::from(qp)->batch; }

roce::SendRequest& add(ibv_qp_ex* qp, roce::SendOpcode opcode) {
  RequestBatch& batch = batch_of(qp);
  roce::SendRequest& request = batch.entries.emplace_back().request;
  request.wr_id = qp->wr_id;
  request.opcode = opcode;
  request.signaled = (qp->wr_flags & IBV_SEND_SIGNALED) != 0;
  request.solicited = (qp->wr_flags & IBV_SEND_SOLICITED) != 0;
  request.fence = (qp->wr_flags & IBV_SEND_FENCE) != 0;
  return request;
}

roce::SendRequest& add_remote(ibv_qp_ex* qp, roce::SendOpcode opcode, std::uint32_t rkey, std::uint64_t address) {
  roce::SendRequest& request = add(qp, opcode);
  request.rkey = rkey;
  request.remote_address = address;
  return request;
}

void wr_atomic_cmp_swp(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, std::uint64_t compare,
                       std::uint64_t swap) {
  roce::SendRequest& request = add_remote(qp, roce::SendOpcode::kCompareSwap, rkey, address);
  request.compare_or_add = compare;
  request.swap = swap;
}

void wr_atomic_fetch_add(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, std::uint64_t value) {
  add_remote(qp, roce::SendOpcode::kFetchAdd, rkey, address).compare_or_add = value;
}

void wr_local_inv(ibv_qp_ex* qp, std::uint32_t rkey) { add(qp, roce::SendOpcode::kLocalInvalidate).immediate = rkey; }

void wr_bind_mw(ibv_qp_ex* qp, ibv_mw* /*mw*/, std::uint32_t rkey, const ibv_mw_bind_info* info) {
  add(qp, roce::SendOpcode::kBindWindow).binding = window_binding(rkey, *info);
}

void wr_rdma_read(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
  add_remote(qp, roce::SendOpcode::kRead, rkey, address);
}

void wr_rdma_write(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
  add_remote(qp, roce::SendOpcode::kWrite, rkey, address);
}

void wr_rdma_write_imm(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, __be32 immediate) {
  add_remote(qp, roce::SendOpcode::kWriteImm, rkey, address).immediate = immediate;
}

void wr_send(ibv_qp_ex* qp) { add(qp, roce::SendOpcode::kSend); }

void wr_send_imm(ibv_qp_ex* qp, __be32 immediate) { add(qp, roce::SendOpcode::kSendImm).immediate = immediate; }

void wr_send_inv(ibv_qp_ex* qp, std::uint32_t rkey) { add(qp, roce::SendOpcode::kSendInvalidate).immediate = rkey; }

// The setters act on the request added last.
RequestBatch::Entry* last_of(ibv_qp_ex* qp) {
  RequestBatch& batch = batch_of(qp);
  if (!batch.entries.empty()) return &batch.entries.back();
  if (batch.error == 0) batch.error = EINVAL;
  return nullptr;
}

void wr_set_ud_addr(ibv_qp_ex* qp, ibv_ah* ah, std::uint32_t remote_qpn, std::uint32_t remote_qkey) {
  if (RequestBatch::Entry* const entry = last_of(qp)) {
    entry->request.ah = Ah::from(ah)->id;
    entry->request.remote_qpn = remote_qpn;
    entry->request.remote_qkey = remote_qkey;
  }
}

void wr_set_xrc_srqn(ibv_qp_ex* qp, std::uint32_t remote_srqn) {
  if (RequestBatch::Entry* const entry = last_of(qp)) entry->request.remote_srq = remote_srqn;
}

void wr_set_sge_list(ibv_qp_ex* qp, std::size_t count, const ibv_sge* list) {
  RequestBatch::Entry* const entry = last_of(qp);
  if (entry == nullptr) return;
  if (count > roce::kSgeMax) {
    batch_of(qp).error = EINVAL;
    return;
  }
  entry->sges.clear();
  for (std::size_t i = 0; i < count; ++i) entry->sges.push_back({list[i].addr, list[i].length, list[i].lkey});
}

void wr_set_sge(ibv_qp_ex* qp, std::uint32_t lkey, std::uint64_t address, std::uint32_t length) {
  const ibv_sge only{.addr = address, .length = length, .lkey = lkey};
  wr_set_sge_list(qp, 1, &only);
}

// The bytes are copied at once: the program may reuse its buffers before ibv_wr_complete().
void wr_set_inline_data_list(ibv_qp_ex* qp, std::size_t count, const ibv_data_buf* list) {
  RequestBatch::Entry* const entry = last_of(qp);
  if (entry == nullptr) return;
  entry->request.inline_data = true;
  entry->inline_bytes.clear();
  for (std::size_t i = 0; i < count; ++i) {
    if (list[i].length > roce::kInlineMax - entry->inline_bytes.size()) {
      batch_of(qp).error = EINVAL;
      return;
    }
    const auto* const bytes = static_cast<const std::uint8_t*>(list[i].addr);
    entry->inline_bytes.insert(entry->inline_bytes.end(), bytes, bytes + list[i].length);
  }
}

void wr_set_inline_data(ibv_qp_ex* qp, void* address, std::size_t length) {
  const ibv_data_buf only{.addr = address, .length = length};
  wr_set_inline_data_list(qp, 1, &only);
}

void wr_start(ibv_qp_ex* qp) { batch_of(qp).mutex.lock(); }

void finish(RequestBatch& batch) {
  batch.entries.clear();
  batch.error = 0;
  batch.mutex.unlock();
}

void wr_abort(ibv_qp_ex* qp) { finish(batch_of(qp)); }

int post_all(roce::Engine& engine, TimeNs now, std::uint32_t qpn, RequestBatch& batch) {
  for (RequestBatch::Entry& entry : batch.entries) {
    if (entry.request.inline_data) {
      entry.sges.assign(1, {.address = reinterpret_cast<std::uintptr_t>(entry.inline_bytes.data()),
                            .length = static_cast<std::uint32_t>(entry.inline_bytes.size())});
    }
    entry.request.sges = entry.sges;
    if (const auto posted = engine.post_send(now, qpn, entry.request); !posted) return posted.error().code;
  }
  return 0;
}

int wr_complete(ibv_qp_ex* qp) {
  RequestBatch& batch = batch_of(qp);
  int error = batch.error;
  if (error == 0) {
    error = software_of(qp->qp_base.context).execute([&](roce::Engine& engine, TimeNs now) {
      return post_all(engine, now, qp->qp_base.qp_num, batch);
    });
  }
  finish(batch);
  return error;
}

constexpr std::uint64_t kDatagramOperations = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
constexpr std::uint64_t kUnreliableOperations = kDatagramOperations | IBV_QP_EX_WITH_RDMA_WRITE |
                                                IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_LOCAL_INV |
                                                IBV_QP_EX_WITH_BIND_MW;
constexpr std::uint64_t kReliableOperations = kUnreliableOperations | IBV_QP_EX_WITH_RDMA_READ |
                                              IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
                                              IBV_QP_EX_WITH_SEND_WITH_INV;

std::uint64_t operations_of(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_UD:
      return kDatagramOperations;
    case IBV_QPT_UC:
      return kUnreliableOperations;
    default:
      return kReliableOperations;
  }
}

}  // namespace

bool install_batch_functions(Qp& qp, std::uint64_t send_ops_flags) {
  if ((send_ops_flags & ~operations_of(qp.qp_base.qp_type)) != 0) return false;
  qp.batch = std::make_unique<RequestBatch>();
  qp.wr_atomic_cmp_swp = wr_atomic_cmp_swp;
  qp.wr_atomic_fetch_add = wr_atomic_fetch_add;
  qp.wr_local_inv = wr_local_inv;
  qp.wr_bind_mw = wr_bind_mw;
  qp.wr_rdma_read = wr_rdma_read;
  qp.wr_rdma_write = wr_rdma_write;
  qp.wr_rdma_write_imm = wr_rdma_write_imm;
  qp.wr_send = wr_send;
  qp.wr_send_imm = wr_send_imm;
  qp.wr_send_inv = wr_send_inv;
  qp.wr_set_ud_addr = wr_set_ud_addr;
  qp.wr_set_xrc_srqn = wr_set_xrc_srqn;
  qp.wr_set_inline_data = wr_set_inline_data;
  qp.wr_set_inline_data_list = wr_set_inline_data_list;
  qp.wr_set_sge = wr_set_sge;
  qp.wr_set_sge_list = wr_set_sge_list;
  qp.wr_start = wr_start;
  qp.wr_complete = wr_complete;
  qp.wr_abort = wr_abort;
  return true;
}

}  // namespace ucm::abi::verbs
