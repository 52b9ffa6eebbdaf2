#include "kernel/kernel_link.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <utility>

#include "ipc/cancellation.h"
#include "kernel/limits.h"
#include "kernel/messages.h"

namespace ucm::kernel {
namespace {

using ipc::CancellationOff;
using ipc::CmCall;
using ipc::CmEventType;

constexpr std::uint8_t kQpTypeUd = 4;          // IB_QPT_UD
constexpr std::uint32_t kCommEst = 4;          // IB_EVENT_COMM_EST
constexpr std::uint32_t kMulticastError = 13;  // RDMA_CM_EVENT_MULTICAST_ERROR

// IDs are named by the program, in every event of theirs and from channel to channel; ucmd never counts that far.
std::uint32_t next_id() {
  constexpr std::uint32_t kFirst = 0x8000'0000;
  static std::atomic<std::uint32_t> next{kFirst};
  return kFirst | next.fetch_add(1, std::memory_order_relaxed);
}

// What the kernel hands back with an event: the ID, and the number of the join.
std::uint64_t label_of(std::uint32_t id, std::uint32_t multicast = 0) { return std::uint64_t{multicast} << 32 | id; }

void read_connection(const rdma_ucm_event_resp& response, ipc::CmEvent& event) {
  event.conn = from_kernel(response.param.conn);
  event.conn.ece_vendor_id = response.ece.vendor_id;
  event.conn.ece_options = response.ece.attr_mod;
  event.qp.responder_resources = event.conn.responder_resources;
  event.qp.initiator_depth = event.conn.initiator_depth;
}

bool watch(int poll_fd, int fd) {
  epoll_event interest{};
  interest.events = EPOLLIN;
  return epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &interest) == 0;
}

}  // namespace

// --- Life -----------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<KernelLink>> KernelLink::open() {
  const CancellationOff no_cancellation;
  auto descriptor = open_rdma_cm();
  if (!descriptor) return tl::unexpected(descriptor.error());
  ipc::FileDescriptor poll_fd(epoll_create1(EPOLL_CLOEXEC));
  ipc::FileDescriptor event_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!poll_fd || !event_fd || !watch(poll_fd.get(), event_fd.get()) || !watch(poll_fd.get(), (*descriptor)->fd())) {
    return fail(EMFILE, "no descriptor left for an event channel");
  }
  return std::unique_ptr<KernelLink>(new KernelLink(std::move(*descriptor), std::move(poll_fd), std::move(event_fd)));
}

KernelLink::KernelLink(std::shared_ptr<Descriptor> descriptor, ipc::FileDescriptor poll_fd,
                       ipc::FileDescriptor event_fd)
    : poll_fd_(std::move(poll_fd)), event_fd_(std::move(event_fd)), descriptor_(std::move(descriptor)) {}

std::shared_ptr<Descriptor> KernelLink::current() {
  const std::lock_guard lock(mutex_);
  return descriptor_;
}

int KernelLink::submit(Bytes command) {
  int error = EACCES;
  for (int i = 0; i < kSubmitTries; ++i) {
    const std::shared_ptr<Descriptor> descriptor = current();
    error = descriptor->submit(command);
    if (error == 0 || (descriptor == current() && (error != EACCES || !reopen(descriptor)))) return error;
  }
  return error;
}

// False when it was not the descriptor that was refused.
bool KernelLink::reopen(const std::shared_ptr<Descriptor>& refused) {
  // The kernel looks at the credentials before it looks at the command.
  constexpr std::array<std::uint8_t, 1> kNoCommand{};
  if (refused->submit(kNoCommand) != EACCES) return false;
  const std::lock_guard lock(mutex_);
  if (descriptor_ != refused) return true;
  auto opened = open_rdma_cm();
  if (!opened || !watch(poll_fd_.get(), (*opened)->fd())) return false;
  for (const auto& [id, known] : ids_) {
    rdma_ucm_migrate_resp response{};
    auto migrate = make_command<rdma_ucm_migrate_id>(RDMA_USER_CM_CMD_MIGRATE_ID, response);
    migrate.body.id = known.kernel_id;
    migrate.body.fd = static_cast<std::uint32_t>(refused->fd());
    // One that does not come along has been destroyed by another thread.
    static_cast<void>((*opened)->submit(migrate.bytes()));
  }
  descriptor_ = std::move(*opened);
  return true;
}

std::optional<std::uint32_t> KernelLink::kernel_id_of(std::uint32_t id) {
  const std::lock_guard lock(mutex_);
  const auto known = ids_.find(id);
  return known != ids_.end() ? std::optional(known->second.kernel_id) : std::nullopt;
}

bool KernelLink::is_datagram(std::uint32_t id) {
  const std::lock_guard lock(mutex_);
  const auto known = ids_.find(id);
  return known != ids_.end() && known->second.is_datagram;
}

std::uint32_t KernelLink::add(const Id& id) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t name = next_id();
  ids_.emplace(name, id);
  return name;
}

Result<void> KernelLink::adopt(std::uint32_t id, KernelLink& from) {
  const CancellationOff no_cancellation;
  // Nobody reads events of the ID before it is known here.
  const std::scoped_lock events_lock(events_mutex_, from.events_mutex_);
  const auto kernel_id = from.kernel_id_of(id);
  if (!kernel_id) return fail(ENOENT, "no such ID");
  rdma_ucm_migrate_resp response{};
  auto migrate = make_command<rdma_ucm_migrate_id>(RDMA_USER_CM_CMD_MIGRATE_ID, response);
  migrate.body.id = *kernel_id;
  migrate.body.fd = static_cast<std::uint32_t>(from.current()->fd());
  if (const int error = submit(migrate.bytes()); error != 0) return fail(error, "the kernel does not move the ID");
  const std::scoped_lock lock(mutex_, from.mutex_);
  ids_.insert(from.ids_.extract(id));
  return {};
}

// --- Calls ----------------------------------------------------------------------------------------------------------

ipc::CmReply KernelLink::call(const ipc::CmCommand& command) {
  const CancellationOff no_cancellation;
  ipc::CmReply reply{.sequence = command.sequence, .id = command.id};
  if (command.call == CmCall::kCreateId) {
    reply.error = create(command, reply);
  } else if (command.call == CmCall::kDestroyId) {
    reply.error = destroy(command.id);
  } else if (command.call == CmCall::kRequestTaken) {
    reply.error = take_request(command.id);
  } else if (const auto kernel_id = kernel_id_of(command.id)) {
    reply.error = execute(*kernel_id, command, reply);
  } else {
    reply.error = ENOENT;
  }
  return reply;
}

int KernelLink::execute(std::uint32_t kernel_id, const ipc::CmCommand& command, ipc::CmReply& reply) {
  switch (command.call) {
    case CmCall::kSetOption:
      return set_option(kernel_id, command);
    case CmCall::kBindAddr:
      return bind(kernel_id, command, reply);
    case CmCall::kResolveAddr:
      return resolve_address(kernel_id, command);
    case CmCall::kResolveRoute:
      return resolve_route(kernel_id, command);
    case CmCall::kListen:
      return listen(kernel_id, command, reply);
    case CmCall::kConnect:
      return connect(kernel_id, command);
    case CmCall::kAccept:
      return accept(kernel_id, command);
    case CmCall::kReject:
      return reject(kernel_id, command);
    case CmCall::kEstablish:
      return establish(kernel_id);
    case CmCall::kNotify:
      return notify(kernel_id);
    case CmCall::kDisconnect:
      return disconnect(kernel_id);
    case CmCall::kJoinMulticast:
      return join_multicast(kernel_id, command);
    case CmCall::kCreateId:
    case CmCall::kDestroyId:
    case CmCall::kMigrateId:
    case CmCall::kRequestTaken:
      break;
  }
  return ENOSYS;
}

int KernelLink::create(const ipc::CmCommand& command, ipc::CmReply& reply) {
  reply.id = next_id();
  rdma_ucm_create_id_resp response{};
  auto create = make_command<rdma_ucm_create_id>(RDMA_USER_CM_CMD_CREATE_ID, response);
  create.body.uid = label_of(reply.id);
  create.body.ps = command.port_space;
  create.body.qp_type = command.qp_type;
  if (const int error = submit(create.bytes()); error != 0) return error;
  const std::lock_guard lock(mutex_);
  ids_[reply.id] = {.kernel_id = response.id, .is_datagram = command.qp_type == kQpTypeUd, .groups = {}};
  return 0;
}

int KernelLink::destroy_kernel_id(std::uint32_t kernel_id) {
  rdma_ucm_destroy_id_resp response{};
  auto destroy = make_command<rdma_ucm_destroy_id>(RDMA_USER_CM_CMD_DESTROY_ID, response);
  destroy.body.id = kernel_id;
  return submit(destroy.bytes());
}

// Requests that the program has not read go with their listener; those it has not been told of go in the kernel.
int KernelLink::destroy(std::uint32_t id) {
  const auto kernel_id = kernel_id_of(id);
  if (!kernel_id) return 0;
  const int error = destroy_kernel_id(*kernel_id);
  std::vector<std::uint32_t> untaken;
  {
    const std::lock_guard events_lock(events_mutex_);  // no event of the listener is being looked at any more
    const std::lock_guard lock(mutex_);
    std::erase_if(ids_, [&](const auto& entry) {
      if (entry.second.listener == id) untaken.push_back(entry.second.kernel_id);
      return entry.first == id || entry.second.listener == id;
    });
  }
  for (const std::uint32_t request : untaken) static_cast<void>(destroy_kernel_id(request));
  return error;
}

int KernelLink::take_request(std::uint32_t id) {
  const std::lock_guard lock(mutex_);
  const auto known = ids_.find(id);
  if (known == ids_.end()) return ENOENT;
  known->second.listener = 0;
  return 0;
}

int KernelLink::bind(std::uint32_t kernel_id, const ipc::CmCommand& command, ipc::CmReply& reply) {
  auto bind = make_command<rdma_ucm_bind>(RDMA_USER_CM_CMD_BIND);
  bind.body.id = kernel_id;
  bind.body.addr_size = write_address(command.source, bind.body.addr);
  if (const int error = submit(bind.bytes()); error != 0) return error;
  return query_bound(kernel_id, reply);
}

int KernelLink::resolve_address(std::uint32_t kernel_id, const ipc::CmCommand& command) {
  auto resolve = make_command<rdma_ucm_resolve_addr>(RDMA_USER_CM_CMD_RESOLVE_ADDR);
  resolve.body.id = kernel_id;
  resolve.body.timeout_ms = command.timeout_ms;
  resolve.body.src_size = write_address(command.source, resolve.body.src_addr);
  resolve.body.dst_size = write_address(command.destination, resolve.body.dst_addr);
  return submit(resolve.bytes());
}

int KernelLink::resolve_route(std::uint32_t kernel_id, const ipc::CmCommand& command) {
  auto resolve = make_command<rdma_ucm_resolve_route>(RDMA_USER_CM_CMD_RESOLVE_ROUTE);
  resolve.body.id = kernel_id;
  resolve.body.timeout_ms = command.timeout_ms;
  return submit(resolve.bytes());
}

int KernelLink::listen(std::uint32_t kernel_id, const ipc::CmCommand& command, ipc::CmReply& reply) {
  auto listen = make_command<rdma_ucm_listen>(RDMA_USER_CM_CMD_LISTEN);
  listen.body.id = kernel_id;
  listen.body.backlog = static_cast<std::uint32_t>(command.backlog);
  if (const int error = submit(listen.bytes()); error != 0) return error;
  return query_bound(kernel_id, reply);
}

int KernelLink::set_option(std::uint32_t kernel_id, const ipc::CmCommand& command) {
  const auto byte = static_cast<std::uint8_t>(command.option_value);
  const auto number = static_cast<int>(command.option_value);
  const bool is_byte = command.option == ipc::CmOption::kTos || command.option == ipc::CmOption::kAckTimeout;
  auto set = make_command<rdma_ucm_set_option>(RDMA_USER_CM_CMD_SET_OPTION);
  set.body.id = kernel_id;
  set.body.level = RDMA_OPTION_ID;
  set.body.optname = static_cast<std::uint32_t>(command.option);
  set.body.optval = reinterpret_cast<std::uintptr_t>(is_byte ? static_cast<const void*>(&byte) : &number);
  set.body.optlen = is_byte ? sizeof byte : sizeof number;
  return submit(set.bytes());
}

int KernelLink::connect(std::uint32_t kernel_id, const ipc::CmCommand& command) {
  auto connect = make_command<rdma_ucm_connect>(RDMA_USER_CM_CMD_CONNECT);
  connect.body.id = kernel_id;
  connect.body.conn_param = to_kernel(command.conn);
  connect.body.ece = {.vendor_id = command.conn.ece_vendor_id, .attr_mod = command.conn.ece_options};
  return submit(connect.bytes());
}

int KernelLink::accept(std::uint32_t kernel_id, const ipc::CmCommand& command) {
  auto accept = make_command<rdma_ucm_accept>(RDMA_USER_CM_CMD_ACCEPT);
  accept.body.uid = label_of(command.id);
  accept.body.id = kernel_id;
  accept.body.conn_param = to_kernel(command.conn);
  accept.body.ece = {.vendor_id = command.conn.ece_vendor_id, .attr_mod = command.conn.ece_options};
  return submit(accept.bytes());
}

// To accept the peer's answer is to accept without parameters.
int KernelLink::establish(std::uint32_t kernel_id) {
  auto accept = make_command<rdma_ucm_accept>(RDMA_USER_CM_CMD_ACCEPT);
  accept.body.id = kernel_id;
  return submit(accept.bytes());
}

int KernelLink::reject(std::uint32_t kernel_id, const ipc::CmCommand& command) {
  auto reject = make_command<rdma_ucm_reject>(RDMA_USER_CM_CMD_REJECT);
  reject.body.id = kernel_id;
  reject.body.reason = static_cast<std::uint8_t>(command.conn.reject_reason);
  const rdma_ucm_conn_param param = to_kernel(command.conn);
  reject.body.private_data_len = param.private_data_len;
  std::copy_n(param.private_data, param.private_data_len, reject.body.private_data);
  return submit(reject.bytes());
}

int KernelLink::notify(std::uint32_t kernel_id) {
  auto notify = make_command<rdma_ucm_notify>(RDMA_USER_CM_CMD_NOTIFY);
  notify.body.id = kernel_id;
  notify.body.event = kCommEst;
  return submit(notify.bytes());
}

int KernelLink::disconnect(std::uint32_t kernel_id) {
  auto disconnect = make_command<rdma_ucm_disconnect>(RDMA_USER_CM_CMD_DISCONNECT);
  disconnect.body.id = kernel_id;
  return submit(disconnect.bytes());
}

int KernelLink::join_multicast(std::uint32_t kernel_id, const ipc::CmCommand& command) {
  rdma_ucm_create_id_resp response{};
  auto join = make_command<rdma_ucm_join_mcast>(RDMA_USER_CM_CMD_JOIN_MCAST, response);
  join.body.uid = label_of(command.id, command.multicast);
  join.body.id = kernel_id;
  join.body.join_flags =
      command.option_value != 0 ? RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER : RDMA_MC_JOIN_FLAG_FULLMEMBER;
  join.body.addr_size = write_address(command.destination, join.body.addr);
  if (const int error = submit(join.bytes()); error != 0) return error;
  const std::lock_guard lock(mutex_);
  if (const auto known = ids_.find(command.id); known != ids_.end()) {
    known->second.groups.push_back({command.multicast, response.id});
  }
  return 0;
}

Result<void> KernelLink::leave_multicast(std::uint32_t id, std::uint32_t multicast) {
  const CancellationOff no_cancellation;
  rdma_ucm_destroy_id_resp response{};
  auto leave = make_command<rdma_ucm_destroy_id>(RDMA_USER_CM_CMD_LEAVE_MCAST, response);
  {
    const std::lock_guard lock(mutex_);
    const auto known = ids_.find(id);
    if (known == ids_.end()) return fail(ENOENT, "no such ID");
    std::vector<Group>& groups = known->second.groups;
    const auto group = std::ranges::find(groups, multicast, &Group::multicast);
    if (group == groups.end()) return fail(EADDRNOTAVAIL, "the ID has not joined the group");
    leave.body.id = group->kernel_id;
    groups.erase(group);
  }
  if (const int error = submit(leave.bytes()); error != 0) return fail(error, "the kernel does not leave the group");
  return {};
}

int KernelLink::query_route(std::uint32_t kernel_id, ipc::CmPath& path, ipc::CmDevicePath& device) {
  rdma_ucm_query_route_resp response{};
  response.ibdev_index = ipc::kUnknownDeviceIndex;
  auto query = make_command<rdma_ucm_query>(RDMA_USER_CM_CMD_QUERY_ROUTE, response);
  query.body.id = kernel_id;
  if (const int error = submit(query.bytes()); error != 0) return error;
  read_route(response, path, device);
  return 0;
}

int KernelLink::query_bound(std::uint32_t kernel_id, ipc::CmReply& reply) {
  ipc::CmPath path;
  const int error = query_route(kernel_id, path, reply.device);
  reply.local = path.local;
  return error;
}

Result<ib_uverbs_qp_attr> KernelLink::qp_attributes(std::uint32_t id, std::uint32_t qp_state) {
  const CancellationOff no_cancellation;
  const auto kernel_id = kernel_id_of(id);
  if (!kernel_id) return fail(ENOENT, "no such ID");
  ib_uverbs_qp_attr response{};
  auto query = make_command<rdma_ucm_init_qp_attr>(RDMA_USER_CM_CMD_INIT_QP_ATTR, response);
  query.body.id = *kernel_id;
  query.body.qp_state = qp_state;
  if (const int error = submit(query.bytes()); error != 0) {
    return fail(error, "the kernel has no attributes for this state of the QP");
  }
  return response;
}

// --- Events ---------------------------------------------------------------------------------------------------------

int KernelLink::take_token() {
  for (;;) {
    std::uint64_t token = 0;
    if (read(event_fd_.get(), &token, sizeof token) == sizeof token) return 0;
    {
      const CancellationOff no_cancellation;
      const std::lock_guard lock(events_mutex_);
      const int error = pump();
      if (error == 0) continue;
      if (error != EAGAIN) return error;
    }
    if ((fcntl(poll_fd(), F_GETFL) & O_NONBLOCK) != 0) return EAGAIN;
    pollfd waiting{.fd = poll_fd(), .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, -1) < 0) return errno;
  }
}

bool KernelLink::poll_event(ipc::CmEvent& event) {
  const CancellationOff no_cancellation;
  const std::lock_guard lock(events_mutex_);
  while (events_.empty()) {
    if (pump() != 0) return false;
  }
  event = events_.front();
  events_.pop_front();
  return true;
}

bool KernelLink::arm() {
  const std::lock_guard lock(events_mutex_);
  armed_ = events_.empty();
  return armed_;
}

bool KernelLink::disarm() {
  const std::lock_guard lock(events_mutex_);
  return std::exchange(armed_, false);
}

int KernelLink::pump() {
  rdma_ucm_event_resp response{};
  const auto get = make_command<rdma_ucm_get_event>(RDMA_USER_CM_CMD_GET_EVENT, response);
  if (const int error = submit(get.bytes()); error != 0) return error;
  if (const auto event = translate(response)) {
    events_.push_back(*event);
    // A thread that waits finds the events that others have taken from the kernel.
    if (std::exchange(armed_, false)) eventfd_write(event_fd(), 1);
  }
  return 0;
}

// nullopt: of an ID that has been destroyed meanwhile.
std::optional<ipc::CmEvent> KernelLink::translate(const rdma_ucm_event_resp& response) {
  ipc::CmEvent event;
  event.type = static_cast<CmEventType>(response.event);
  event.status = static_cast<std::int32_t>(response.status);
  event.id = static_cast<std::uint32_t>(response.uid);
  event.multicast = static_cast<std::uint32_t>(response.uid >> 32);
  if (event.type == CmEventType::kConnectRequest) return translate_request(response, event);
  const auto kernel_id = kernel_id_of(event.id);
  if (!kernel_id) return std::nullopt;
  if (response.event == kMulticastError) event.type = CmEventType::kMulticastJoin;
  if (event.type == CmEventType::kAddrResolved || event.type == CmEventType::kRouteResolved) {
    if (const int error = query_route(*kernel_id, event.path, event.device); error != 0) {
      const bool address = event.type == CmEventType::kAddrResolved;
      event.type = address ? CmEventType::kAddrError : CmEventType::kRouteError;
      event.status = -error;
    }
  } else if (is_datagram(event.id)) {
    event.conn = from_kernel(response.param.ud);
    read_address_handle(response.param.ud.ah_attr, event.path, event.device);
  } else {
    read_connection(response, event);
  }
  return event;
}

// A request comes with an ID of the kernel's, which is named here.
std::optional<ipc::CmEvent> KernelLink::translate_request(const rdma_ucm_event_resp& response, ipc::CmEvent event) {
  event.listen_id = event.id;
  const bool wanted = kernel_id_of(event.listen_id).has_value();
  if (!wanted || query_route(response.id, event.path, event.device) != 0) {
    static_cast<void>(destroy_kernel_id(response.id));
    return std::nullopt;
  }
  const bool datagram = is_datagram(event.listen_id);
  if (datagram) {
    event.conn = from_kernel(response.param.ud);
  } else {
    read_connection(response, event);
  }
  event.id = add({.kernel_id = response.id, .is_datagram = datagram, .listener = event.listen_id, .groups = {}});
  return event;
}

}  // namespace ucm::kernel
