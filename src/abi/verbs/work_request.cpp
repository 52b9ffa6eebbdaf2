// Posting work requests: lists of verbs structures into the engine, one lock for the whole list.
#include <array>
#include <optional>

#include "abi/verbs/objects.h"

namespace ucm::abi::verbs {

namespace {

std::optional<roce::SendOpcode> opcode_of(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
      return roce::SendOpcode::kWrite;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return roce::SendOpcode::kWriteImm;
    case IBV_WR_SEND:
      return roce::SendOpcode::kSend;
    case IBV_WR_SEND_WITH_IMM:
      return roce::SendOpcode::kSendImm;
    case IBV_WR_SEND_WITH_INV:
      return roce::SendOpcode::kSendInvalidate;
    case IBV_WR_RDMA_READ:
      return roce::SendOpcode::kRead;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return roce::SendOpcode::kCompareSwap;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return roce::SendOpcode::kFetchAdd;
    case IBV_WR_LOCAL_INV:
      return roce::SendOpcode::kLocalInvalidate;
    case IBV_WR_BIND_MW:
      return roce::SendOpcode::kBindWindow;
    default:
      return std::nullopt;
  }
}

using SgeArray = std::array<roce::Sge, roce::kSgeMax>;

// The program's list in the engine's form; nullopt when it is too long.
std::optional<std::span<const roce::Sge>> copy_sges(const ibv_sge* list, int count, SgeArray& to) {
  if (count < 0 || static_cast<std::size_t>(count) > to.size()) return std::nullopt;
  const auto length = static_cast<std::size_t>(count);
  for (std::size_t i = 0; i < length; ++i) to[i] = {list[i].addr, list[i].length, list[i].lkey};
  return std::span<const roce::Sge>(to).first(length);
}

// The fields that depend on the kind of queue pair and of operation.
void put_target(roce::SendRequest& to, const ibv_send_wr& from, ibv_qp_type type) {
  if (type == IBV_QPT_XRC_SEND) to.remote_srq = from.qp_type.xrc.remote_srqn;
  if (type == IBV_QPT_UD) {
    if (from.wr.ud.ah != nullptr) to.ah = Ah::from(from.wr.ud.ah)->id;
    to.remote_qpn = from.wr.ud.remote_qpn;
    to.remote_qkey = from.wr.ud.remote_qkey;
    return;
  }
  switch (from.opcode) {
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      to.remote_address = from.wr.atomic.remote_addr;
      to.compare_or_add = from.wr.atomic.compare_add;
      to.swap = from.wr.atomic.swap;
      to.rkey = from.wr.atomic.rkey;
      return;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_READ:
      to.remote_address = from.wr.rdma.remote_addr;
      to.rkey = from.wr.rdma.rkey;
      return;
    case IBV_WR_BIND_MW:
      to.binding = window_binding(from.bind_mw.rkey, from.bind_mw.bind_info);
      return;
    default:
      return;
  }
}

Result<void> post_one(roce::Engine& engine, TimeNs now, const ibv_qp& qp, const ibv_send_wr& from) {
  SgeArray sges;
  const auto opcode = opcode_of(from.opcode);
  const auto list = copy_sges(from.sg_list, from.num_sge, sges);
  if (!opcode || !list) return fail(EINVAL, "bad opcode or too many scatter/gather elements");
  if (qp.qp_type == IBV_QPT_UD && from.wr.ud.ah == nullptr) return fail(EINVAL, "no address handle");
  roce::SendRequest request{.wr_id = from.wr_id,
                            .opcode = *opcode,
                            .signaled = (from.send_flags & IBV_SEND_SIGNALED) != 0,
                            .solicited = (from.send_flags & IBV_SEND_SOLICITED) != 0,
                            .fence = (from.send_flags & IBV_SEND_FENCE) != 0,
                            .inline_data = (from.send_flags & IBV_SEND_INLINE) != 0,
                            .immediate = from.imm_data,
                            .sges = *list};
  put_target(request, from, qp.qp_type);
  return engine.post_send(now, qp.qp_num, request);
}

// Posts a receive list with `post(engine, now, request)`; the first request refused ends it.
template <class Post>
int post_receives(ibv_context* context, ibv_recv_wr* requests, ibv_recv_wr** bad_request, Post post) {
  return software_of(context).execute([&](roce::Engine& engine, TimeNs now) {
    SgeArray sges;
    for (ibv_recv_wr* request = requests; request != nullptr; request = request->next) {
      const auto list = copy_sges(request->sg_list, request->num_sge, sges);
      int error = EINVAL;
      if (list) {
        const Result<void> posted = post(engine, now, roce::RecvRequest{.wr_id = request->wr_id, .sges = *list});
        error = posted ? 0 : posted.error().code;
      }
      if (error != 0) {
        *bad_request = request;
        return error;
      }
    }
    return 0;
  });
}

}  // namespace

roce::WindowBinding window_binding(std::uint32_t rkey, const ibv_mw_bind_info& info) {
  return {.rkey = rkey,
          .lkey = info.mr != nullptr ? info.mr->lkey : 0,
          .address = info.addr,
          .length = info.length,
          .access = info.mw_access_flags};
}

int post_send(ibv_qp* qp, ibv_send_wr* requests, ibv_send_wr** bad_request) {
  return software_of(qp->context).execute([&](roce::Engine& engine, TimeNs now) {
    for (ibv_send_wr* request = requests; request != nullptr; request = request->next) {
      if (const auto posted = post_one(engine, now, *qp, *request); !posted) {
        *bad_request = request;
        return posted.error().code;
      }
    }
    return 0;
  });
}

int post_recv(ibv_qp* qp, ibv_recv_wr* requests, ibv_recv_wr** bad_request) {
  return post_receives(qp->context, requests, bad_request,
                       [&](roce::Engine& engine, TimeNs now, const roce::RecvRequest& request) {
                         return engine.post_recv(now, qp->qp_num, request);
                       });
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* requests, ibv_recv_wr** bad_request) {
  return post_receives(srq->context, requests, bad_request,
                       [&](roce::Engine& engine, TimeNs now, const roce::RecvRequest& request) {
                         return engine.post_srq_recv(now, Srq::from(srq)->id, request);
                       });
}

}  // namespace ucm::abi::verbs
