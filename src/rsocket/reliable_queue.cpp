#include "rsocket/reliable_queue.h"

#include <arpa/inet.h>
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace ucm::rsocket {
namespace {

// Work request IDs: what completes, and how much of the send buffer comes free.
constexpr std::uint64_t kReceive = 1ull << 63;
constexpr unsigned kKindShift = 32;

int error_or(int fallback) { return errno != 0 ? errno : fallback; }

}  // namespace

Result<std::unique_ptr<ReliableQueue>> ReliableQueue::create(rdma::Id& id, const StreamSizes& sizes,
                                                             std::uint32_t inline_size) {
  std::unique_ptr<ReliableQueue> queue(new ReliableQueue(id));
  errno = 0;
  if (auto made = queue->create_queues(sizes, inline_size); !made) return tl::unexpected(made.error());
  if (auto made = queue->register_memory(sizes); !made) return tl::unexpected(made.error());
  if (auto posted = queue->post_receives(sizes.receive_queue + kControlReceives); !posted)
    return tl::unexpected(posted.error());
  return queue;
}

Result<void> ReliableQueue::create_queues(const StreamSizes& sizes, std::uint32_t inline_size) {
  channel_ = ibv_create_comp_channel(id_.verbs);
  if (channel_ == nullptr) return fail(error_or(ENOMEM), "no completion channel for an rsocket");
  if (fcntl(channel_->fd, F_SETFL, O_NONBLOCK) != 0) return fail(errno, "a completion channel that blocks");
  cq_ = ibv_create_cq(id_.verbs, sizes.send_queue + sizes.receive_queue + kControlReceives, nullptr, channel_, 0);
  if (cq_ == nullptr) return fail(error_or(ENOMEM), "no completion queue for an rsocket");
  ibv_qp_init_attr_ex attributes{};
  attributes.send_cq = cq_;
  attributes.recv_cq = cq_;
  attributes.cap.max_send_wr = sizes.send_queue;
  attributes.cap.max_recv_wr = sizes.receive_queue + kControlReceives;
  attributes.cap.max_send_sge = 1;
  attributes.cap.max_inline_data = inline_size;
  attributes.qp_type = IBV_QPT_RC;
  attributes.sq_sig_all = 1;
  if (auto created = id_.create_qp(attributes); !created) return created;
  inline_size_ = attributes.cap.max_inline_data;
  return {};
}

Result<void> ReliableQueue::register_memory(const StreamSizes& sizes) {
  auto remote = MemoryBlock::allocate(Stream::remote_block_size(sizes));
  if (!remote) return tl::unexpected(remote.error());
  auto local = MemoryBlock::allocate(Stream::local_block_size(sizes));
  if (!local) return tl::unexpected(local.error());
  remote_block_ = std::move(*remote);
  local_block_ = std::move(*local);
  const MutableBytes remote_bytes = remote_block_.bytes();
  const MutableBytes local_bytes = local_block_.bytes();
  constexpr int kPeerWrites = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  remote_region_ = ibv_reg_mr(id_.pd, remote_bytes.data(), remote_bytes.size(), kPeerWrites);
  if (remote_region_ == nullptr) return fail(error_or(ENOMEM), "the receive buffer cannot be registered");
  local_region_ = ibv_reg_mr(id_.pd, local_bytes.data(), local_bytes.size(), 0);
  if (local_region_ == nullptr) return fail(error_or(ENOMEM), "the send buffer cannot be registered");
  return {};
}

ReliableQueue::~ReliableQueue() {
  if (abandoned_) return;
  id_.destroy_qp();
  if (remote_region_ != nullptr) ibv_dereg_mr(remote_region_);
  if (local_region_ != nullptr) ibv_dereg_mr(local_region_);
  if (cq_ != nullptr) ibv_destroy_cq(cq_);
  if (channel_ != nullptr) ibv_destroy_comp_channel(channel_);
}

Result<void> ReliableQueue::post(const Stream::Write& write) {
  ibv_sge piece{.addr = reinterpret_cast<std::uintptr_t>(local_block_.bytes().data() + write.offset),
                .length = write.length,
                .lkey = local_region_->lkey};
  ibv_send_wr request{};
  request.wr_id = static_cast<std::uint64_t>(write.kind) << kKindShift | write.held;
  request.sg_list = &piece;
  request.num_sge = write.length != 0 ? 1 : 0;
  request.opcode = write.immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
  request.imm_data = htonl(write.immediate.value_or(0));
  request.wr.rdma.remote_addr = write.remote_address;
  request.wr.rdma.rkey = write.remote_key;
  ibv_send_wr* refused = nullptr;
  if (const int error = ibv_post_send(id_.qp, &request, &refused); error != 0) {
    return fail(error > 0 ? error : EIO, "a write cannot be posted");
  }
  return {};
}

Result<void> ReliableQueue::post_receives(std::size_t count) {
  constexpr std::size_t kAtOnce = 16;
  std::array<ibv_recv_wr, kAtOnce> requests{};
  while (count != 0) {
    const std::size_t now = std::min(count, kAtOnce);
    for (std::size_t i = 0; i < now; ++i) {
      requests[i].wr_id = kReceive;
      requests[i].next = i + 1 < now ? &requests[i + 1] : nullptr;
    }
    ibv_recv_wr* refused = nullptr;
    if (const int error = ibv_post_recv(id_.qp, requests.data(), &refused); error != 0) {
      return fail(error > 0 ? error : EIO, "a receive cannot be posted");
    }
    count -= now;
  }
  return {};
}

int ReliableQueue::poll(std::span<ibv_wc> completions) {
  return ibv_poll_cq(cq_, static_cast<int>(completions.size()), completions.data());
}

bool ReliableQueue::is_receive(const ibv_wc& completion) { return (completion.wr_id & kReceive) != 0; }

Stream::Write::Kind ReliableQueue::kind_of(const ibv_wc& completion) {
  return static_cast<Stream::Write::Kind>(completion.wr_id >> kKindShift);
}

std::uint32_t ReliableQueue::held_of(const ibv_wc& completion) { return static_cast<std::uint32_t>(completion.wr_id); }

void ReliableQueue::arm() {
  if (armed_) return;
  ibv_req_notify_cq(cq_, 0);
  armed_ = true;
}

void ReliableQueue::take_events() {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  while (ibv_get_cq_event(channel_, &cq, &context) == 0) {
    ibv_ack_cq_events(cq, 1);
    armed_ = false;
  }
}

}  // namespace ucm::rsocket
