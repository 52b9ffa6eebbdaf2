#include "bench/verbs_kit.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>

namespace ucm::bench {
namespace {

constexpr int kCqEntriesMax = 4096;
constexpr int kBufferAccess = IBV_ACCESS_LOCAL_WRITE;  // an int: Clang warns of verbs.h's macro otherwise

}  // namespace

tl::unexpected<Error> failed(const char* call) {
  const int code = errno != 0 ? errno : EIO;
  return fail(code, std::string(call) + ": " + std::generic_category().message(code));
}

Result<QpKit> QpKit::make(ibv_context* context, std::uint32_t slots, std::uint32_t data_bytes) {
  QpKit kit;
  kit.data_bytes_ = data_bytes;
  kit.pd_.reset(ibv_alloc_pd(context));
  if (kit.pd_ == nullptr) return failed("ibv_alloc_pd");
  if (data_bytes > 0) {
    kit.completions_.reset(ibv_create_comp_channel(context));
    if (kit.completions_ == nullptr) return failed("ibv_create_comp_channel");
    kit.buffer_.resize(std::size_t{slots} * data_bytes, 0x5a);
    kit.mr_.reset(ibv_reg_mr(kit.pd_.get(), kit.buffer_.data(), kit.buffer_.size(), kBufferAccess));
    if (kit.mr_ == nullptr) return failed("ibv_reg_mr");
  }
  const int entries = static_cast<int>(std::clamp<std::uint32_t>(slots, 1, kCqEntriesMax));
  kit.cq_.reset(ibv_create_cq(context, entries, nullptr, kit.completions_.get(), 0));
  if (kit.cq_ == nullptr) return failed("ibv_create_cq");
  if (data_bytes > 0 && ibv_req_notify_cq(kit.cq_.get(), 0) != 0) return failed("ibv_req_notify_cq");
  return kit;
}

ibv_qp_init_attr QpKit::qp_attributes() const {
  ibv_qp_init_attr attributes{};
  attributes.qp_type = IBV_QPT_RC;
  attributes.send_cq = attributes.recv_cq = cq_.get();
  attributes.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  return attributes;
}

Result<OwnedQp> QpKit::make_qp() const {
  ibv_qp_init_attr attributes = qp_attributes();
  OwnedQp qp(ibv_create_qp(pd_.get(), &attributes));
  if (qp == nullptr) return failed("ibv_create_qp");
  return qp;
}

ibv_sge QpKit::slot_of(std::uint32_t slot) const {
  return {.addr = reinterpret_cast<std::uintptr_t>(buffer_.data()) + std::uint64_t{slot} * data_bytes_,
          .length = data_bytes_,
          .lkey = mr_->lkey};
}

Result<void> QpKit::post_receive(ibv_qp* qp, std::uint32_t slot) {
  ibv_sge sge = slot_of(slot);
  ibv_recv_wr request{};
  request.wr_id = slot;
  request.sg_list = &sge;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  errno = ibv_post_recv(qp, &request, &bad);
  if (errno != 0) return failed("ibv_post_recv");
  return {};
}

Result<void> QpKit::post_send(ibv_qp* qp, std::uint32_t slot) {
  ibv_sge sge = slot_of(slot);
  ibv_send_wr request{};
  request.wr_id = slot;
  request.sg_list = &sge;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  ibv_send_wr* bad = nullptr;
  errno = ibv_post_send(qp, &request, &bad);
  if (errno != 0) return failed("ibv_post_send");
  return {};
}

Result<void> QpKit::take_receives(const std::function<Result<void>(std::uint32_t slot)>& handler) {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  if (ibv_get_cq_event(completions_.get(), &cq, &context) != 0) return failed("ibv_get_cq_event");
  ibv_ack_cq_events(cq, 1);
  if (ibv_req_notify_cq(cq, 0) != 0) return failed("ibv_req_notify_cq");
  ibv_wc completion{};
  int count = 0;
  while ((count = ibv_poll_cq(cq, 1, &completion)) > 0) {
    if (completion.status == IBV_WC_WR_FLUSH_ERR) continue;
    if (completion.status != IBV_WC_SUCCESS) return fail(EIO, ibv_wc_status_str(completion.status));
    if (completion.opcode != IBV_WC_RECV) continue;
    if (auto handled = handler(static_cast<std::uint32_t>(completion.wr_id)); !handled) return handled;
  }
  if (count < 0) return failed("ibv_poll_cq");
  return {};
}

}  // namespace ucm::bench
