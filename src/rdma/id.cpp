#include "rdma/id.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rdma/convert.h"

namespace ucm::rdma {
namespace {

constexpr sa_family_t kInfinibandFamily = 27;  // AF_IB

// What a program can say in a request: 92 bytes less the 36 of the IP CM header.
constexpr std::size_t kRequestPrivateDataMax = 56;

// What a NULL rdma_conn_param stands for.
constexpr std::uint8_t kDefaultRetryCount = 7;

std::optional<ibv_qp_type> default_qp_type(rdma_port_space port_space) {
  switch (port_space) {
    case RDMA_PS_TCP:
    case RDMA_PS_IB:
      return IBV_QPT_RC;
    case RDMA_PS_UDP:
    case RDMA_PS_IPOIB:
      return IBV_QPT_UD;
  }
  return std::nullopt;
}

Result<ipc::SocketAddress> parse_address(const sockaddr* address) {
  if (address == nullptr) return fail(EINVAL, "no address given");
  if (address->sa_family == kInfinibandFamily) return fail(ENODEV, "RoCE has no AF_IB addresses");  // Linux: same
  const auto parsed = from_sockaddr(*address);
  if (!parsed) return fail(EINVAL, "the address family is neither AF_INET nor AF_INET6");
  return *parsed;
}

bool is_connection(Phase phase) { return phase >= Phase::kConnecting && phase <= Phase::kEstablished; }

}  // namespace

Id::Id(std::shared_ptr<EventChannel> event_channel, void* user_context, rdma_port_space port_space, ibv_qp_type type,
       std::uint32_t node_handle)
    : rdma_cm_id{}, handle_(node_handle), channel_(std::move(event_channel)) {
  channel = channel_.get();
  context = user_context;
  ps = port_space;
  qp_type = type;
}

// --- Life -----------------------------------------------------------------------------------------------------------

Result<Id*> Id::create(rdma_event_channel* channel, void* context, rdma_port_space port_space) {
  const auto qp_type = default_qp_type(port_space);
  if (!qp_type) return fail(EINVAL, "unknown port space");
  return create(channel, context, port_space, *qp_type);
}

Result<Id*> Id::create(rdma_event_channel* channel, void* context, rdma_port_space port_space, ibv_qp_type qp_type) {
  std::shared_ptr<EventChannel> events;
  if (channel != nullptr) {
    events = EventChannel::from(*channel).shared_from_this();
  } else {
    auto opened = EventChannel::open();
    if (!opened) return tl::unexpected(opened.error());
    events = std::move(*opened);
  }
  ipc::CmCommand command;
  command.call = ipc::CmCall::kCreateId;
  command.port_space = static_cast<std::uint16_t>(port_space);
  command.qp_type = static_cast<std::uint8_t>(qp_type);
  const ipc::CmReply reply = events->post(command);
  if (reply.error != 0) {
    if (channel == nullptr) events->close();
    return fail(reply.error, "the node refused to make an ID");
  }
  const std::shared_ptr<Id> id(new Id(events, context, port_space, qp_type, reply.id));
  id->synchronous_ = channel == nullptr;
  events->add(id);
  return id.get();
}

void Id::destroy() {
  if (inherited_by_fork()) return;
  const std::shared_ptr<Id> self = shared_from_this();
  const std::shared_ptr<EventChannel> events = current_channel();
  // A node that is gone has forgotten the ID already.
  static_cast<void>(call(command(ipc::CmCall::kDestroyId)));
  events->remove(*this);
  release_held_event();
  wait_until_acknowledged();
  if (synchronous_) events->close();
}

Result<void> Id::migrate(rdma_event_channel* destination) {
  if (synchronous_ && destination == nullptr) return fail(EINVAL, "a synchronous ID needs a channel to move to");
  std::shared_ptr<EventChannel> to;
  if (destination != nullptr) {
    to = EventChannel::from(*destination).shared_from_this();
  } else {
    auto opened = EventChannel::open();
    if (!opened) return tl::unexpected(opened.error());
    to = std::move(*opened);
  }
  const std::shared_ptr<EventChannel> from = current_channel();
  if (from != to) {
    if (auto moved = from->migrate(*this, *to); !moved) {
      if (destination == nullptr) to->close();
      return moved;
    }
  }
  release_held_event();
  if (synchronous_) from->close();
  {
    const std::lock_guard lock(mutex_);
    channel_ = to;
    synchronous_ = destination == nullptr;
    channel = to.get();
  }
  wait_until_acknowledged();
  return {};
}

void Id::count_delivered() {
  const std::lock_guard lock(mutex_);
  ++delivered_;
}

void Id::count_acknowledged() {
  const std::lock_guard lock(mutex_);
  ++acknowledged_;
  acknowledged_changed_.notify_all();
}

void Id::wait_until_acknowledged() {
  std::unique_lock lock(mutex_);
  while (acknowledged_ != delivered_) acknowledged_changed_.wait(lock);
}

void Id::release_held_event() {
  if (event == nullptr) return;
  delete &Event::from(*event);
  event = nullptr;
}

// --- Commands -------------------------------------------------------------------------------------------------------

std::shared_ptr<EventChannel> Id::current_channel() {
  const std::lock_guard lock(mutex_);
  return channel_;
}

ipc::CmCommand Id::command(ipc::CmCall call) const {
  ipc::CmCommand command;
  command.call = call;
  command.id = handle_;
  return command;
}

Result<ipc::CmReply> Id::call(const ipc::CmCommand& command) { return result_of(current_channel()->call(command)); }

Result<ipc::CmReply> Id::result_of(const ipc::CmReply& reply) {
  if (reply.error == ENOTCONN) return fail(ENOTCONN, "the UCM node is gone");
  if (reply.error != 0) return fail(reply.error, std::strerror(reply.error));
  return reply;
}

Result<ipc::CmReply> Id::call_entering(Phase next, const ipc::CmCommand& command, Answer answer) {
  Phase before;
  {
    const std::lock_guard lock(mutex_);
    before = phase_;
    // Before the call: the event that ends the phase may be read by another thread before the call returns.
    phase_ = next;
  }
  const std::shared_ptr<EventChannel> events = current_channel();
  auto reply = result_of(answer == Answer::kExpected ? events->post(command) : events->call(command));
  if (!reply) {
    const std::lock_guard lock(mutex_);
    if (phase_ == next) phase_ = before;
  }
  return reply;
}

void Id::set_phase(Phase phase) {
  const std::lock_guard lock(mutex_);
  phase_ = phase;
}

bool Id::has_qp() {
  const std::lock_guard lock(qp_mutex_);
  return qp != nullptr;
}

Phase Id::phase() {
  const std::lock_guard lock(mutex_);
  return phase_;
}

Result<void> Id::supported() const {
  const bool connects = qp_type == IBV_QPT_RC || qp_type == IBV_QPT_UC || is_xrc();
  if (ps == RDMA_PS_TCP ? qp_type == IBV_QPT_RC : is_datagram() || (ps == RDMA_PS_IB && connects)) return {};
  return fail(EOPNOTSUPP, "the port space is not for QPs of this type");
}

Result<void> Id::complete() {
  if (!synchronous_) return {};
  release_held_event();
  const auto next = current_channel()->next_event();
  if (!next) return tl::unexpected(next.error());
  event = *next;
  if (event->status == 0) return {};
  const std::string what = event_name(type_of(*event));
  if (type_of(*event) == ipc::CmEventType::kRejected) {
    return fail(ECONNREFUSED, what + ", reason " + std::to_string(event->status));
  }
  const int error = std::abs(event->status);
  return fail(error, what + ": " + std::strerror(error));
}

Result<void> Id::bind_addr(const sockaddr* address) {
  const auto source = parse_address(address);
  if (!source) return tl::unexpected(source.error());
  ipc::CmCommand bind = command(ipc::CmCall::kBindAddr);
  bind.source = *source;
  const auto reply = call_entering(Phase::kBound, bind);
  if (!reply) return tl::unexpected(reply.error());
  set_local_address(reply->local);
  // Linux: a loopback address stands for any device until there is a peer. libfabric asks by binding to one.
  const bool bound_to_device = reply->ifindex != 0 || reply->device.port != 0;
  const bool names_device = bound_to_device && !wire::IpAddress{source->address}.is_loopback();
  return names_device ? attach_device(reply->ifindex, reply->device) : Result<void>{};
}

// The peer's address is of the same family, and unspecified until there is a peer.  // Linux: same
void Id::set_local_address(const ipc::SocketAddress& address) {
  route.addr.src_storage = to_sockaddr(address);
  route.addr.dst_storage.ss_family = route.addr.src_storage.ss_family;
}

Result<void> Id::resolve_addr(const sockaddr* source, const sockaddr* destination, int timeout_ms) {
  if (auto known = supported(); !known) return known;
  const auto to = parse_address(destination);
  if (!to) return tl::unexpected(to.error());
  ipc::CmCommand resolve = command(ipc::CmCall::kResolveAddr);
  resolve.destination = *to;
  resolve.timeout_ms = static_cast<std::uint32_t>(timeout_ms);
  if (source != nullptr) {
    const auto from = parse_address(source);
    if (!from) return tl::unexpected(from.error());
    resolve.source = *from;
  }
  const bool known = source == nullptr && phase() == Phase::kIdle && current_channel()->has_resolved(*to);
  const sockaddr_storage before = std::exchange(route.addr.dst_storage, to_sockaddr(*to));
  const Answer answer = known ? Answer::kExpected : Answer::kAwaited;
  if (auto reply = call_entering(Phase::kResolvingAddress, resolve, answer); !reply) {
    route.addr.dst_storage = before;
    return tl::unexpected(reply.error());
  }
  return complete();
}

Result<void> Id::resolve_route(int timeout_ms) {
  if (auto known = supported(); !known) return known;
  ipc::CmCommand resolve = command(ipc::CmCall::kResolveRoute);
  resolve.timeout_ms = static_cast<std::uint32_t>(timeout_ms);
  const Answer answer = phase() == Phase::kAddressResolved && timeout_ms != 0 ? Answer::kExpected : Answer::kAwaited;
  if (auto reply = call_entering(Phase::kResolvingRoute, resolve, answer); !reply) {
    return tl::unexpected(reply.error());
  }
  return complete();
}

Result<void> Id::listen(int backlog) {
  if (auto known = supported(); !known) return known;
  ipc::CmCommand listen = command(ipc::CmCall::kListen);
  listen.backlog = backlog;
  const auto reply = call_entering(Phase::kListening, listen);
  if (!reply) return tl::unexpected(reply.error());
  set_local_address(reply->local);
  return {};
}

Result<Id*> Id::get_request() {
  if (!synchronous_) return fail(EINVAL, "rdma_get_request needs a synchronous ID");
  release_held_event();
  const auto next = current_channel()->next_event();
  if (!next) return tl::unexpected(next.error());
  rdma_cm_event* request = *next;
  Result<void> usable;
  if (request->status != 0) {
    usable = fail(std::abs(request->status), event_name(type_of(*request)));
  } else if (type_of(*request) != ipc::CmEventType::kConnectRequest) {
    usable = fail(EINVAL, std::string("unexpected ") + event_name(type_of(*request)));
  } else if (endpoint_qp_) {
    ibv_qp_init_attr_ex attributes{};
    std::memcpy(&attributes, &*endpoint_qp_, sizeof(*endpoint_qp_));
    attributes.pd = endpoint_pd_;
    attributes.comp_mask = endpoint_pd_ != nullptr ? IBV_QP_INIT_ATTR_PD : 0;
    usable = from(*request->id).create_qp(attributes);
  }
  if (!usable) {
    event = request;
    return tl::unexpected(usable.error());
  }
  request->id->event = request;
  return &from(*request->id);
}

Result<void> Id::check_depths(const rdma_conn_param* param) const {
  // 0xFF stands for the most the device can do.
  if (param == nullptr) return {};
  if (param->responder_resources != RDMA_MAX_RESP_RES &&
      param->responder_resources > device_->responder_resources_max) {
    return fail(EINVAL, "responder_resources exceed the device's limit");
  }
  if (param->initiator_depth != RDMA_MAX_INIT_DEPTH && param->initiator_depth > device_->initiator_depth_max) {
    return fail(EINVAL, "initiator_depth exceeds the device's limit");
  }
  return {};
}

Result<ipc::CmConnParam> Id::describe_qp(const rdma_conn_param* param) {
  ipc::CmConnParam connection;
  connection.retry_count = param != nullptr ? param->retry_count : kDefaultRetryCount;
  connection.rnr_retry_count = param != nullptr ? param->rnr_retry_count : kDefaultRetryCount;
  connection.flow_control = param != nullptr ? param->flow_control : std::uint8_t{0};
  const std::lock_guard lock(qp_mutex_);
  if (qp != nullptr) {
    connection.qp_num = qp->qp_num;
    connection.srq = srq != nullptr || qp->srq != nullptr;
  } else if (param != nullptr) {
    connection.qp_num = param->qp_num;
    connection.srq = param->srq;
  } else {
    return fail(EINVAL, "neither a QP nor connection parameters");
  }
  return connection;
}

Result<void> Id::append_private_data(ipc::CmConnParam& out, std::span<const std::uint8_t> bytes) const {
  const std::size_t used = out.private_data_size;
  if (bytes.size() > out.private_data.size() - used) {
    return fail(EINVAL, "private data of " + std::to_string(used + bytes.size()) + " bytes is too long");
  }
  std::copy(bytes.begin(), bytes.end(), out.private_data.begin() + static_cast<std::ptrdiff_t>(used));
  out.private_data_size = static_cast<std::uint32_t>(used + bytes.size());
  return {};
}

Result<void> Id::describe_connection(const rdma_conn_param* param, ipc::CmConnParam& connection) {
  if (auto fits = check_depths(param); !fits) return fits;
  const bool most_resources = param == nullptr || param->responder_resources == RDMA_MAX_RESP_RES;
  const bool most_depth = param == nullptr || param->initiator_depth == RDMA_MAX_INIT_DEPTH;
  auto described = describe_qp(param);
  if (!described) return tl::unexpected(described.error());
  connection = *described;
  connection.responder_resources = most_resources ? device_->responder_resources_max : param->responder_resources;
  connection.initiator_depth = most_depth ? device_->initiator_depth_max : param->initiator_depth;
  const std::lock_guard qp_lock(qp_mutex_);
  const std::lock_guard lock(mutex_);
  if (qp != nullptr && ibv_query_ece(qp, &local_ece_) != 0) local_ece_ = ibv_ece{};
  connection.ece_vendor_id = local_ece_.vendor_id;
  connection.ece_options = local_ece_.options;
  qp_params_.responder_resources = connection.responder_resources;
  qp_params_.initiator_depth = connection.initiator_depth;
  return {};
}

Result<void> Id::connect(const rdma_conn_param* param) {
  if (auto known = supported(); !known) return known;
  if (device_ == nullptr) return fail(EINVAL, "the address has not been resolved");
  ipc::CmCommand connect = command(ipc::CmCall::kConnect);
  if (is_datagram()) {
    const std::lock_guard lock(mutex_);
    connect.conn.qkey = qkey_in_use_ ? RDMA_UDP_QKEY : 0;
  } else if (auto described = describe_connection(param, connect.conn); !described) {
    return described;
  }
  if (auto fits = append_private_data(connect.conn, connect_data_); !fits) return fits;
  if (param != nullptr && param->private_data != nullptr) {
    const auto* bytes = static_cast<const std::uint8_t*>(param->private_data);
    if (auto fits = append_private_data(connect.conn, {bytes, param->private_data_len}); !fits) return fits;
  }
  // A QP of the program's own may have any number, and only the node knows whose that is.
  const bool agreed = phase() == Phase::kRouteResolved && qp_type == IBV_QPT_RC && has_qp() &&
                      connect.conn.private_data_size <= kRequestPrivateDataMax;
  const Answer answer = agreed ? Answer::kExpected : Answer::kAwaited;
  if (auto reply = call_entering(Phase::kConnecting, connect, answer); !reply) return tl::unexpected(reply.error());
  return complete();
}

// The QP is ready for the peer when the answer leaves.
Result<void> Id::prepare_connection(const rdma_conn_param* param, ipc::CmConnParam& connection) {
  ibv_ece remote;
  {
    const std::lock_guard lock(mutex_);
    const bool most_resources = param == nullptr || param->responder_resources == RDMA_MAX_RESP_RES;
    const bool most_depth = param == nullptr || param->initiator_depth == RDMA_MAX_INIT_DEPTH;
    qp_params_.responder_resources = most_resources
                                         ? std::min(qp_params_.responder_resources, device_->responder_resources_max)
                                         : param->responder_resources;
    qp_params_.initiator_depth =
        most_depth ? std::min(qp_params_.initiator_depth, device_->initiator_depth_max) : param->initiator_depth;
    connection.responder_resources = qp_params_.responder_resources;
    connection.initiator_depth = qp_params_.initiator_depth;
    remote = remote_ece_;
  }
  const std::lock_guard lock(qp_mutex_);
  const auto ece = negotiate_ece(remote);
  if (!ece) return tl::unexpected(ece.error());
  connection.ece_vendor_id = ece->vendor_id;
  connection.ece_options = ece->options;
  return qp != nullptr ? ready_qp() : Result<void>{};
}

Result<void> Id::accept(const rdma_conn_param* param) {
  if (auto known = supported(); !known) return known;
  if (device_ == nullptr) return fail(EINVAL, "not an ID of a connection request");
  if (!is_datagram()) {
    if (auto fits = check_depths(param); !fits) return fits;
  }
  auto connection = describe_qp(param);
  if (!connection) return tl::unexpected(connection.error());
  if (param != nullptr && param->private_data != nullptr) {
    // Too long is the node's to find: it rejects the request as well.  // Linux: REJ 28
    const auto* bytes = static_cast<const std::uint8_t*>(param->private_data);
    const std::size_t size = std::min<std::size_t>(param->private_data_len, connection->private_data.size());
    if (auto fits = append_private_data(*connection, {bytes, size}); !fits) return fits;
  }
  {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::kRequested) return fail(EINVAL, std::string("cannot accept: ") + rules_of(phase_).name);
  }
  if (is_datagram()) {
    connection->qkey = RDMA_UDP_QKEY;
  } else if (auto prepared = prepare_connection(param, *connection); !prepared) {
    return prepared;
  }
  ipc::CmCommand accept = command(ipc::CmCall::kAccept);
  accept.conn = *connection;
  if (auto reply = call_entering(is_datagram() ? Phase::kEstablished : Phase::kAccepting, accept); !reply) {
    fail_qp();
    return tl::unexpected(reply.error());
  }
  // The answer to a datagram request is the end of it.
  return is_datagram() ? Result<void>{} : complete();
}

Result<void> Id::reject(std::uint16_t reason, const void* private_data, std::uint8_t size) {
  if (auto known = supported(); !known) return known;
  ipc::CmCommand reject = command(ipc::CmCall::kReject);
  reject.conn.reject_reason = reason;
  if (private_data != nullptr) {
    const auto* bytes = static_cast<const std::uint8_t*>(private_data);
    if (auto fits = append_private_data(reject.conn, {bytes, size}); !fits) return fits;
  }
  if (auto reply = call(reject); !reply) return tl::unexpected(reply.error());
  set_phase(Phase::kClosed);
  return {};
}

Result<void> Id::establish() {
  {
    const std::lock_guard lock(qp_mutex_);
    if (qp != nullptr) return fail(EINVAL, "the library establishes the connection of an ID with a QP itself");
  }
  const auto reply = call_entering(Phase::kEstablished, command(ipc::CmCall::kEstablish));
  if (!reply) return tl::unexpected(reply.error());
  return {};
}

Result<void> Id::notify(ibv_event_type event_type) {
  if (event_type != IBV_EVENT_COMM_EST) return fail(EINVAL, "only IBV_EVENT_COMM_EST means something to a connection");
  if (auto reply = call(command(ipc::CmCall::kNotify)); !reply) return tl::unexpected(reply.error());
  return {};
}

Result<void> Id::disconnect() {
  if (auto known = supported(); !known) return known;
  fail_qp();
  if (is_datagram()) {
    if (auto reply = call(command(ipc::CmCall::kDisconnect)); !reply) return tl::unexpected(reply.error());
    return {};
  }
  const Phase before = phase();
  const Phase next = is_connection(before) ? Phase::kDisconnecting : before;
  const Answer answer = before >= Phase::kConnecting ? Answer::kExpected : Answer::kAwaited;
  if (auto reply = call_entering(next, command(ipc::CmCall::kDisconnect), answer); !reply) {
    return tl::unexpected(reply.error());
  }
  return complete();
}

Result<void> Id::set_option(int level, int name, const void* value, std::size_t size) {
  if (level == RDMA_OPTION_IB && name == RDMA_OPTION_IB_PATH) {
    return fail(EOPNOTSUPP, "path records cannot be set; the route comes from the host's routing table");
  }
  if (level != RDMA_OPTION_ID) return fail(ENOSYS, "unknown option level");
  ipc::CmCommand set = command(ipc::CmCall::kSetOption);
  std::size_t size_wanted = 0;
  switch (name) {
    case RDMA_OPTION_ID_TOS:
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      size_wanted = sizeof(std::uint8_t);
      break;
    case RDMA_OPTION_ID_REUSEADDR:
    case RDMA_OPTION_ID_AFONLY:
      size_wanted = sizeof(int);
      break;
    default:
      return fail(ENOSYS, "unknown option");
  }
  if (value == nullptr || size != size_wanted) return fail(EINVAL, "wrong size of an option's value");
  if (name == RDMA_OPTION_ID_ACK_TIMEOUT && qp_type != IBV_QPT_RC && qp_type != IBV_QPT_XRC_SEND) {
    return fail(EINVAL, "the ACK timeout is an option of reliable connections");
  }
  std::uint8_t byte = 0;
  int number = 0;
  std::memcpy(size == sizeof(byte) ? static_cast<void*>(&byte) : &number, value, size);
  set.option = static_cast<ipc::CmOption>(name);
  set.option_value = size == sizeof(byte) ? byte : static_cast<std::uint32_t>(number);
  if (auto reply = call(set); !reply) return tl::unexpected(reply.error());
  if (name == RDMA_OPTION_ID_ACK_TIMEOUT) {
    const std::lock_guard lock(mutex_);
    ack_timeout_ = byte;
  }
  return {};
}

Result<void> Id::write_event(int type, int status, std::uint64_t argument) {
  if (type != static_cast<int>(ipc::CmEventType::kUser)) return fail(EINVAL, "only RDMA_CM_EVENT_USER can be written");
  ipc::CmEvent told;
  told.type = ipc::CmEventType::kUser;
  told.status = status;
  told.id = handle_;
  std::memcpy(told.conn.private_data.data(), &argument, sizeof argument);
  current_channel()->raise(shared_from_this(), told);
  return {};
}

Result<void> Id::resolve_addrinfo(const char* node, const char* service, const rdma_addrinfo* hints) {
  constexpr int kSubnetAdministrator = 16;  // RAI_SA
  constexpr int kNames = 32;                // RAI_DNS: what is done anyway
  if (node == nullptr && service == nullptr && hints == nullptr) return fail(EINVAL, "nothing to resolve");
  rdma_addrinfo wanted{};
  if (hints != nullptr) wanted = *hints;
  if ((wanted.ai_flags & kSubnetAdministrator) != 0) {
    return fail(EOPNOTSUPP, "there is no subnet administrator on RoCE");
  }
  wanted.ai_flags &= ~kNames;
  rdma_addrinfo* found = nullptr;
  const int error = get_address_info(node, service, &wanted, &found);
  ipc::CmEvent told;
  told.type = error == 0 ? ipc::CmEventType::kAddrinfoResolved : ipc::CmEventType::kAddrinfoError;
  told.status = error;
  told.id = handle_;
  {
    const std::lock_guard lock(mutex_);
    address_info_.reset(found);
  }
  current_channel()->raise(shared_from_this(), told);
  return complete();
}

Result<rdma_addrinfo*> Id::address_info() {
  const std::lock_guard lock(mutex_);
  if (address_info_ == nullptr) return fail(ENODATA, "no address information has been resolved");
  rdma_addrinfo* const copy = copy_address_info(*address_info_);
  if (copy == nullptr) return fail(ENOMEM, "no memory");
  return copy;
}

void Id::set_endpoint_qp(ibv_pd* protection_domain, const ibv_qp_init_attr& attributes) {
  endpoint_pd_ = protection_domain;
  endpoint_qp_ = attributes;
}

// --- What is known of the connection --------------------------------------------------------------------------------

Result<void> Id::attach_device(std::uint32_t ifindex, const ipc::CmDevicePath& path) {
  Devices& devices = Devices::instance();
  const auto device = path.port != 0 ? devices.by_path(path) : devices.by_ifindex(ifindex);
  if (!device) return tl::unexpected(device.error());
  const std::lock_guard lock(mutex_);
  device_ = *device;
  verbs = device_->verbs;
  if (pd == nullptr) pd = device_->pd;
  port_num = path.port != 0 ? path.port : 1;
  return {};
}

void Id::set_addresses(const ipc::CmPath& path, const ipc::CmDevicePath& device) {
  const std::lock_guard lock(mutex_);
  path_ = path;
  route.addr.src_storage = to_sockaddr(path.local);
  route.addr.dst_storage = to_sockaddr(path.remote);
  route.addr.addr.ibaddr.sgid = local_gid_of(path, device);
  route.addr.addr.ibaddr.dgid = remote_gid_of(path, device);
  route.addr.addr.ibaddr.pkey = htons(path.pkey);
}

void Id::set_route(const ipc::CmPath& path, const ipc::CmDevicePath& device) {
  set_addresses(path, device);
  const std::lock_guard lock(mutex_);
  path_record_ = path_record_of(path, device);
  route.path_rec = &path_record_;
  route.num_paths = 1;
}

}  // namespace ucm::rdma
