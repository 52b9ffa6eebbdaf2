#include "rsocket/datagram_queue.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "rdma/convert.h"

namespace ucm::rsocket {
namespace {

constexpr std::size_t kGrhSize = 40;
constexpr std::size_t kReceiveSlot = kGrhSize + kSendLowWater;
constexpr std::uint64_t kReceive = 1ull << 63;
constexpr std::uint8_t kHopLimit = 64;
constexpr std::uint8_t kPort = 1;

int error_or(int fallback) { return errno != 0 ? errno : fallback; }

// A slot for each request, as far as the buffer has room.  // librdmacm: the same
std::uint16_t slots(std::uint16_t queue, std::uint32_t buffer) {
  return static_cast<std::uint16_t>(std::min<std::uint32_t>(queue, buffer / kSendLowWater));
}

ibv_gid gid_of(const sockaddr_storage& address) {
  return rdma::gid_of(*rdma::from_sockaddr(reinterpret_cast<const sockaddr&>(address)));
}

// The device that has the address. A link-local one may be on any; its scope tells which is meant.
Result<rdma::Device*> device_of(const sockaddr_storage& local) {
  const auto& in6 = reinterpret_cast<const sockaddr_in6&>(local);
  if (local.ss_family == AF_INET6 && in6.sin6_scope_id != 0) {
    return rdma::Devices::instance().by_ifindex(in6.sin6_scope_id);
  }
  auto devices = rdma::Devices::instance().all();
  if (!devices) return tl::unexpected(devices.error());
  for (rdma::Device* device : *devices) {
    if (device->gid_index(gid_of(local))) return device;
  }
  return fail(ENODEV, "no device has the address");
}

}  // namespace

Result<std::unique_ptr<DatagramQueue>> DatagramQueue::create(const sockaddr_storage& local,
                                                             const DatagramHeader& header, const Settings& settings) {
  auto device = device_of(local);
  if (!device) return tl::unexpected(device.error());
  std::unique_ptr<DatagramQueue> queue(new DatagramQueue(**device, local, header));
  errno = 0;
  if (auto made = queue->create_queues(settings); !made) return tl::unexpected(made.error());
  if (auto made = queue->ready_qp(); !made) return tl::unexpected(made.error());
  if (auto made = queue->register_memory(); !made) return tl::unexpected(made.error());
  return queue;
}

Result<void> DatagramQueue::create_queues(const Settings& settings) {
  const StreamSizes& sizes = settings.sizes;
  send_slots_ = slots(sizes.send_queue, sizes.send_buffer);
  receive_slots_ = slots(sizes.receive_queue, sizes.receive_buffer);
  channel_ = ibv_create_comp_channel(device_.verbs);
  if (channel_ == nullptr) return fail(error_or(ENOMEM), "no completion channel for an rsocket");
  if (fcntl(channel_->fd, F_SETFL, O_NONBLOCK) != 0) return fail(errno, "a completion channel that blocks");
  cq_ = ibv_create_cq(device_.verbs, static_cast<int>(send_slots_ + receive_slots_), nullptr, channel_, 0);
  if (cq_ == nullptr) return fail(error_or(ENOMEM), "no completion queue for an rsocket");
  ibv_qp_init_attr attributes{};
  attributes.send_cq = cq_;
  attributes.recv_cq = cq_;
  attributes.cap.max_send_wr = static_cast<std::uint32_t>(send_slots_);
  attributes.cap.max_recv_wr = static_cast<std::uint32_t>(receive_slots_);
  attributes.cap.max_send_sge = 1;
  attributes.cap.max_recv_sge = 1;
  attributes.qp_type = IBV_QPT_UD;
  attributes.sq_sig_all = 1;
  qp_ = ibv_create_qp(device_.pd, &attributes);
  if (qp_ == nullptr) return fail(error_or(ENOMEM), "no QP for an rsocket");
  ibv_port_attr port{};
  if (const int error = ibv_query_port(device_.verbs, kPort, &port); error != 0) return fail(error, "no port");
  const std::size_t packet = 128u << port.active_mtu;
  size_max_ = std::min<std::size_t>(packet, kSendLowWater) - header_.size();
  return {};
}

Result<void> DatagramQueue::ready_qp() {
  ibv_qp_attr attributes{};
  attributes.port_num = kPort;
  attributes.qkey = RDMA_UDP_QKEY;
  const auto modify = [&](ibv_qp_state state, int mask) {
    attributes.qp_state = state;
    return ibv_modify_qp(qp_, &attributes, IBV_QP_STATE | mask);
  };
  int error = modify(IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  if (error == 0) error = modify(IBV_QPS_RTR, 0);
  if (error == 0) error = modify(IBV_QPS_RTS, IBV_QP_SQ_PSN);
  return error == 0 ? Result<void>{} : fail(error, "the QP of an rsocket cannot be used");
}

Result<void> DatagramQueue::register_memory() {
  auto memory = MemoryBlock::allocate(send_slots_ * kSendLowWater + receive_slots_ * kReceiveSlot);
  if (!memory) return tl::unexpected(memory.error());
  memory_ = std::move(*memory);
  constexpr int kDeviceWrites = IBV_ACCESS_LOCAL_WRITE;
  region_ = ibv_reg_mr(device_.pd, memory_.bytes().data(), memory_.bytes().size(), kDeviceWrites);
  if (region_ == nullptr) return fail(error_or(ENOMEM), "the buffers cannot be registered");
  for (std::size_t slot = 0; slot < send_slots_; ++slot) free_slots_.push_back(slot);
  for (std::size_t slot = 0; slot < receive_slots_; ++slot) {
    if (auto posted = post_receive(slot); !posted) return posted;
  }
  return {};
}

DatagramQueue::~DatagramQueue() {
  if (abandoned_) return;
  if (qp_ != nullptr) ibv_destroy_qp(qp_);
  if (region_ != nullptr) ibv_dereg_mr(region_);
  if (cq_ != nullptr) ibv_destroy_cq(cq_);
  if (channel_ != nullptr) ibv_destroy_comp_channel(channel_);
}

std::uint8_t* DatagramQueue::send_slot(std::size_t slot) const { return &memory_.bytes()[slot * kSendLowWater]; }

std::uint8_t* DatagramQueue::receive_slot(std::size_t slot) const {
  return &memory_.bytes()[send_slots_ * kSendLowWater + slot * kReceiveSlot];
}

Result<void> DatagramQueue::post_receive(std::size_t slot) {
  ibv_sge piece{
      .addr = reinterpret_cast<std::uintptr_t>(receive_slot(slot)), .length = kReceiveSlot, .lkey = region_->lkey};
  ibv_recv_wr request{};
  request.wr_id = kReceive | slot;
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* refused = nullptr;
  if (const int error = ibv_post_recv(qp_, &request, &refused); error != 0) {
    return fail(error > 0 ? error : EIO, "a receive cannot be posted");
  }
  return {};
}

Result<ibv_ah*> DatagramQueue::address_handle(const sockaddr_storage& peer) {
  const auto index = device_.gid_index(gid_of(local_));
  if (!index) return tl::unexpected(index.error());
  ibv_ah_attr attributes{};
  attributes.is_global = 1;
  attributes.grh.dgid = gid_of(peer);
  attributes.grh.sgid_index = *index;
  attributes.grh.hop_limit = kHopLimit;
  attributes.port_num = kPort;
  errno = 0;
  ibv_ah* const handle = ibv_create_ah(device_.pd, &attributes);
  if (handle == nullptr) return fail(error_or(EINVAL), "no address handle");
  return handle;
}

Result<void> DatagramQueue::send(std::span<const iovec> data, ibv_ah* to, std::uint32_t qpn) {
  const std::size_t slot = free_slots_.back();
  std::uint8_t* const begin = send_slot(slot);
  header_.emit(begin);
  std::size_t length = header_.size();
  for (const iovec& part : data) {
    if (part.iov_len != 0) std::memcpy(begin + length, part.iov_base, part.iov_len);
    length += part.iov_len;
  }
  ibv_sge piece{.addr = reinterpret_cast<std::uintptr_t>(begin),
                .length = static_cast<std::uint32_t>(length),
                .lkey = region_->lkey};
  ibv_send_wr request{};
  request.wr_id = slot;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.wr.ud.ah = to;
  request.wr.ud.remote_qpn = qpn;
  request.wr.ud.remote_qkey = RDMA_UDP_QKEY;
  ibv_send_wr* refused = nullptr;
  if (const int error = ibv_post_send(qp_, &request, &refused); error != 0) {
    return fail(error > 0 ? error : EIO, "a datagram cannot be posted");
  }
  free_slots_.pop_back();
  return {};
}

bool DatagramQueue::poll(const std::function<void(Bytes)>& receive) {
  std::array<ibv_wc, 32> completions;
  bool any = false;
  for (int count = 1; count > 0;) {
    count = ibv_poll_cq(cq_, static_cast<int>(completions.size()), completions.data());
    for (const ibv_wc& completion : std::span(completions).first(static_cast<std::size_t>(std::max(count, 0)))) {
      any = true;
      const auto slot = static_cast<std::size_t>(completion.wr_id & ~kReceive);
      if ((completion.wr_id & kReceive) == 0) {
        free_slots_.push_back(slot);
        continue;
      }
      if (completion.status != IBV_WC_SUCCESS) continue;
      if (completion.byte_len > kGrhSize) receive({receive_slot(slot) + kGrhSize, completion.byte_len - kGrhSize});
      static_cast<void>(post_receive(slot));  // a QP that is broken receives no more
    }
  }
  return any;
}

void DatagramQueue::arm() {
  if (armed_) return;
  ibv_req_notify_cq(cq_, 0);
  armed_ = true;
}

void DatagramQueue::take_events() {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  while (ibv_get_cq_event(channel_, &cq, &context) == 0) {
    ibv_ack_cq_events(cq, 1);
    armed_ = false;
  }
}

}  // namespace ucm::rsocket
