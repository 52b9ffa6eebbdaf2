#include "client/socket_session.h"

#include <time.h>

#include <atomic>
#include <cerrno>

#include "client/ring_links.h"
#include "ipc/device_list.h"

namespace ucm::client {
namespace {

TimeNs monotonic_now() {
  timespec ts{};
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return TimeNs{ts.tv_sec} * kNanosecondsPerSecond + ts.tv_nsec;
}

ipc::ControlRequest group_request(ipc::ControlCall call, const wire::MulticastGroup& group) {
  ipc::ControlRequest request = ipc::make_request(call, 0);
  request.group = group.address.bytes;
  request.ifindex = group.ifindex;
  return request;
}

}  // namespace

Result<std::shared_ptr<SocketSession>> SocketSession::open(ipc::FileDescriptor socket, Answer hello) {
  if (hello.reply.descriptor_count != 1) return fail(EPROTO, "ucmd's answer lacks a descriptor");
  auto table = ipc::SharedMemory::map(hello.descriptors[0].get(), ipc::kPeerTableSize);
  if (!table) return tl::unexpected(table.error());
  auto core = SessionCore::start(std::move(socket));
  if (!core) return tl::unexpected(core.error());
  return std::shared_ptr<SocketSession>(new SocketSession(std::move(*core), std::move(*table)));
}

SocketSession::SocketSession(std::shared_ptr<SessionCore> core, ipc::SharedMemory peer_table)
    : core_(std::move(core)), peer_table_(std::move(peer_table)) {}

SocketSession::~SocketSession() { core_->abandon(); }

Result<std::vector<host::Device>> SocketSession::devices() {
  const CancellationOff no_cancellation;
  const auto answer = core_->ask(ipc::ControlCall::kListDevices);
  if (!answer) return tl::unexpected(answer.error());
  const auto text = ipc::read_sealed_copy(answer->descriptors[0].get(), ipc::kDeviceListSizeMax);
  if (!text) return tl::unexpected(text.error());
  return ipc::parse_devices({reinterpret_cast<const std::uint8_t*>(text->data()), text->size()});
}

Result<void> SocketSession::watch_devices(std::function<void()> changed) {
  const CancellationOff no_cancellation;
  auto answer = core_->ask(ipc::ControlCall::kWatchDevices);
  if (!answer) return tl::unexpected(answer.error());
  if (answer->reply.descriptor_count != 1) return fail(EPROTO, "ucmd's answer lacks a descriptor");
  return core_->watch_also(std::move(answer->descriptors[0]), std::move(changed));
}

Result<std::unique_ptr<CmLink>> SocketSession::open_cm_link() { return RingCmLink::open(core_); }

Result<std::unique_ptr<DataLink>> SocketSession::open_data_link() { return RingDataLink::open(core_); }

Result<SendSockets> SocketSession::send_sockets() {
  const CancellationOff no_cancellation;
  if (lost()) return fail(ENOTCONN, "ucmd is gone");
  const std::lock_guard lock(sockets_mutex_);
  if (sockets_) return *sockets_;
  auto answer = core_->ask(ipc::ControlCall::kSendSockets);
  if (!answer) return tl::unexpected(answer.error());
  const ipc::ControlReply& reply = answer->reply;
  if (reply.descriptor_count != std::uint32_t{reply.has_ipv4} + reply.has_ipv6) {
    return fail(EPROTO, "ucmd's answer lacks a descriptor");
  }
  if (reply.has_ipv4 != 0) socket_ipv4_ = std::move(answer->descriptors[0]);
  if (reply.has_ipv6 != 0) socket_ipv6_ = std::move(answer->descriptors[reply.has_ipv4]);
  sockets_ = SendSockets{.ipv4 = socket_ipv4_.get(), .ipv6 = socket_ipv6_.get(), .port = reply.source_port};
  return *sockets_;
}

Result<void> SocketSession::add_qpn_block() {
  const auto answer = core_->ask(ipc::ControlCall::kAllocateQpns);
  if (!answer) return tl::unexpected(answer.error());
  const ipc::ControlReply& reply = answer->reply;
  if (reply.first_qpn % ipc::kQpnBlockSize != 0 || reply.qpn_count != ipc::kQpnBlockSize ||
      reply.table_index > ipc::kPeerTableEntries - ipc::kQpnBlockSize) {
    core_->abandon();
    return fail(EPROTO, "ucmd's answer is out of range");
  }
  qpns_.add_block(reply.first_qpn, reply.qpn_count, reply.table_index);
  return {};
}

Result<std::uint32_t> SocketSession::allocate_qpn() {
  const CancellationOff no_cancellation;
  if (lost()) return fail(ENOTCONN, "ucmd is gone");
  const std::lock_guard lock(qpns_mutex_);
  std::optional<std::uint32_t> qpn = qpns_.take(monotonic_now());
  if (!qpn) {
    const auto added = add_qpn_block();
    qpn = added ? qpns_.take(monotonic_now()) : qpns_.take_oldest();
    if (!qpn) return tl::unexpected(added.error());
  }
  write_peer(*qpn, 0);
  return *qpn;
}

void SocketSession::free_qpn(std::uint32_t qpn) {
  if (inherited()) return;
  const std::lock_guard lock(qpns_mutex_);
  qpns_.give_back(monotonic_now(), qpn);
}

void SocketSession::set_peer_qpn(std::uint32_t qpn, std::uint32_t peer_qpn) {
  if (inherited()) return;
  const std::lock_guard lock(qpns_mutex_);
  write_peer(qpn, peer_qpn);
}

Result<void> SocketSession::join_group(const wire::MulticastGroup& group) {
  const auto joined = core_->ask(group_request(ipc::ControlCall::kJoinGroup, group));
  if (!joined) return tl::unexpected(joined.error());
  return {};
}

// The node forgets with the session whatever this cannot tell it.
void SocketSession::leave_group(const wire::MulticastGroup& group) {
  static_cast<void>(core_->ask(group_request(ipc::ControlCall::kLeaveGroup, group)));
}

void SocketSession::write_peer(std::uint32_t qpn, std::uint32_t peer_qpn) {
  const auto index = qpns_.table_index_of(qpn);
  if (!index) return;
  auto* table = static_cast<std::uint32_t*>(peer_table_.data());
  std::atomic_ref(table[*index]).store(peer_qpn, std::memory_order_release);
}

}  // namespace ucm::client
