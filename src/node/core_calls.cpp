// The rdma_cm calls. Errors are those of Linux' rdma_cm unless said otherwise.
#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>

#include "ipc/names.h"
#include "node/core.h"
#include "node/limits.h"
#include "node/probes.h"
#include "wire/headers.h"

namespace ucm::node {
namespace {

constexpr std::uint8_t kPacketLifetime = 16;  // 0.27 s  // Linux >= 6.2
constexpr std::uint8_t kAckTimeoutMax = 31;   // 5 bits on the wire
constexpr std::uint32_t kFlowLabelMask = 0xFFFFF;
constexpr int kNotSupported = 524;  // Linux: ENOTSUPP, which user space has no name for

bool is_port_space(std::uint16_t value) {
  constexpr std::array kKnown{wire::PortSpace::kIpoib, wire::PortSpace::kTcp, wire::PortSpace::kUdp,
                              wire::PortSpace::kIb};
  return std::ranges::find(kKnown, static_cast<wire::PortSpace>(value)) != kKnown.end();
}

// What a REQ says of the type of QP; nullopt for a type that has no connections.
std::optional<wire::TransportService> transport_of(std::uint8_t qp_type) {
  switch (qp_type) {
    case kQpTypeRc:
      return wire::TransportService::kRc;
    case kQpTypeUc:
      return wire::TransportService::kUc;
    case kQpTypeXrcSend:
    case kQpTypeXrcRecv:
      return wire::TransportService::kExtended;
    default:
      return std::nullopt;
  }
}

// Addresses can be bound and resolved in every port space and for every type of QP.
Result<void> check_connectable(const RdmaId& id) {
  if (id.is_datagram() && id.port_space != wire::PortSpace::kTcp) return {};
  if (id.port_space == wire::PortSpace::kIb && transport_of(id.qp_type)) return {};
  if (id.port_space == wire::PortSpace::kTcp && id.qp_type == kQpTypeRc) return {};
  return fail(EOPNOTSUPP, "the port space is not for QPs of this type");
}

cm::ConnectionParams connection_params(const ipc::CmConnParam& conn) {
  return {.qpn = conn.qp_num,
          .srq = conn.srq != 0,
          .responder_resources = conn.responder_resources,
          .initiator_depth = conn.initiator_depth,
          .flow_control = conn.flow_control != 0,
          .retry_count = conn.retry_count,
          .rnr_retry_count = conn.rnr_retry_count,
          .vendor_id = conn.ece_vendor_id,
          .ece_options = conn.ece_options};
}

// nullopt: the size says more than there is.
std::optional<Bytes> private_data(const ipc::CmConnParam& conn) {
  if (conn.private_data_size > conn.private_data.size()) return std::nullopt;
  return Bytes(conn.private_data.data(), conn.private_data_size);
}

}  // namespace

struct Core::CallEntry {
  ipc::CmCall call;
  IdInput input;
  Call function;
};

// The calls that go by the state table; the others are allowed in every state.
const Core::CallEntry* Core::find_call(ipc::CmCall call) {
  using ipc::CmCall;
  static constexpr std::array kCalls{
      CallEntry{CmCall::kBindAddr, IdInput::kBind, &Core::bind_addr},
      CallEntry{CmCall::kResolveAddr, IdInput::kResolveAddr, &Core::resolve_addr},
      CallEntry{CmCall::kResolveRoute, IdInput::kResolveRoute, &Core::resolve_route},
      CallEntry{CmCall::kListen, IdInput::kListen, &Core::listen},
      CallEntry{CmCall::kConnect, IdInput::kConnect, &Core::connect},
      CallEntry{CmCall::kAccept, IdInput::kAccept, &Core::accept},
      CallEntry{CmCall::kReject, IdInput::kReject, &Core::reject},
      CallEntry{CmCall::kEstablish, IdInput::kEstablish, &Core::establish},
      CallEntry{CmCall::kNotify, IdInput::kNotify, &Core::notify},
      CallEntry{CmCall::kDisconnect, IdInput::kDisconnect, &Core::disconnect},
      CallEntry{CmCall::kJoinMulticast, IdInput::kJoinMulticast, &Core::join_multicast},
  };
  const auto* const found = std::ranges::find(kCalls, call, &CallEntry::call);
  return found != kCalls.end() ? found : nullptr;
}

ipc::CmReply Core::execute(TimeNs now, SessionId session, LinkId link, const ipc::CmCommand& command) {
  ipc::CmReply reply{.sequence = command.sequence, .id = command.id};
  work_ = true;
  at(now);
  RdmaId* const id = find_own(session, command.id);
  probes::call(command.id, command.call, session);
  if (recorder_ != nullptr) recorder_->begin_call(id);
  Result<void> done;
  if (command.call == ipc::CmCall::kCreateId) {
    done = create_id(session, link, command, reply);
  } else if (id == nullptr) {
    done = fail(ENOENT, "no such ID");
  } else if (command.call == ipc::CmCall::kDestroyId) {
    // Before it is gone.
    if (recorder_ != nullptr) recorder_->end_call(id, command.call, 0);
    destroy(now, id->id);
    probes::call_done(reply.id, command.call, 0);
    return reply;
  } else {
    done = perform(now, *id, link, command);
    note(*id);
    reply.ifindex = id->ifindex;
    reply.local = to_socket_address(id->local);
  }
  if (!done) reply.error = done.error().code;
  if (!done && command.posted != 0 && id != nullptr) tell_failure(*id, command, done.error());
  probes::call_done(reply.id, command.call, reply.error);
  RdmaId* const caller = find_own(session, reply.id);
  if (!done) {
    explain_failure(caller, {.what = ipc::name(command.call),
                             .call = true,
                             .status = reply.error,
                             .why = done.error().message,
                             .session = session});
  }
  if (recorder_ != nullptr) recorder_->end_call(caller, command.call, reply.error);
  return reply;
}

Result<void> Core::perform(TimeNs now, RdmaId& id, LinkId link, const ipc::CmCommand& command) {
  if (command.call == ipc::CmCall::kMigrateId) {
    migrate(id, link);
    return {};
  }
  if (command.call == ipc::CmCall::kSetOption) return set_option(id, command);
  if (command.call == ipc::CmCall::kRequestTaken) return request_taken(now, id);
  const CallEntry* const call = find_call(command.call);
  if (call == nullptr) return fail(ENOSYS, "no such call");
  const auto next = next_state(id.state, call->input);
  if (!next) return fail(EINVAL, "not in this state");
  auto done = (this->*call->function)(now, id, command);
  // Resolution enters its states itself: it may be over already.
  if (done && call->input != IdInput::kResolveAddr) id.state = *next;
  return done;
}

Result<void> Core::create_id(SessionId session, LinkId link, const ipc::CmCommand& command, ipc::CmReply& reply) {
  if (!is_port_space(command.port_space)) return fail(EINVAL, "unknown port space");
  RdmaId* const id = command.posted != 0 ? create_granted(session, link, command.id) : create(session, link);
  if (id == nullptr) return fail(ENOMEM, "the process or its user has too many IDs");
  id->port_space = static_cast<wire::PortSpace>(command.port_space);
  id->qp_type = command.qp_type;
  reply.id = id->id;
  if (command.posted == 0) reply.numbers = grant_numbers(session, link, command.numbers);
  note(*id);
  return {};
}

// Nobody waits for the reply.
void Core::tell_failure(RdmaId& id, const ipc::CmCommand& command, const Error& error) {
  struct Telling {
    ipc::CmCall call;
    ipc::CmEventType event;
  };
  static constexpr std::array kFailures{Telling{ipc::CmCall::kResolveAddr, ipc::CmEventType::kAddrError},
                                        Telling{ipc::CmCall::kResolveRoute, ipc::CmEventType::kRouteError},
                                        Telling{ipc::CmCall::kConnect, ipc::CmEventType::kConnectError}};
  const auto* const failure = std::ranges::find(kFailures, command.call, &Telling::call);
  if (failure == kFailures.end()) return;
  push_event(id.id, {.type = failure->event, .status = -error.code, .id = id.id}, error.message);
}

// Requests that nobody has read yet follow their listener.
void Core::migrate(RdmaId& id, LinkId link) {
  id.link = link;
  for (const std::uint32_t request : id.untaken) {
    find(request)->link = link;
    note(*find(request));
  }
}

Result<void> Core::set_option(RdmaId& id, const ipc::CmCommand& command) {
  const std::uint32_t value = command.option_value;
  switch (command.option) {
    case ipc::CmOption::kTos:
      if (value > 0xFF) return fail(EINVAL, "a type of service has 8 bits");
      id.type_of_service = static_cast<std::uint8_t>(value);
      return {};
    case ipc::CmOption::kReuseAddr:
      if (value != 0 ? id.state == IdState::kListen : id.state != IdState::kIdle) return fail(EINVAL, "too late");
      id.reuse_address = value != 0;
      ports_.update(id.id, claim_of(id));
      return {};
    case ipc::CmOption::kAfOnly:
      if (id.state != IdState::kIdle && id.state != IdState::kAddrBound) return fail(EINVAL, "too late");
      id.family_only = value != 0;
      ports_.update(id.id, claim_of(id));
      return {};
    case ipc::CmOption::kAckTimeout:
      if ((id.qp_type != kQpTypeRc && id.qp_type != kQpTypeXrcSend) || value > kAckTimeoutMax) {
        return fail(EINVAL, "only for RC and sending XRC, 0 to 31");
      }
      id.ack_timeout = static_cast<std::uint8_t>(value);
      return {};
  }
  return fail(ENOSYS, "no such option");
}

PortClaim Core::claim_of(const RdmaId& id) const {
  return {.source = id.local.address,
          .destination = id.remote.address,
          .destination_port = id.remote.port,
          .reuse_address = id.reuse_address,
          .family_only = id.family_only.value_or(id.local.address.is_ipv4())};
}

// Gives the ID its local address and port. A failure leaves it as it was.
Result<void> Core::bind(RdmaId& id, const Endpoint& local) {
  std::uint32_t ifindex = 0;
  if (!local.address.is_unspecified()) {
    if (local.address.is_link_local() && local.scope == 0)
      return fail(EINVAL, "a link-local address needs its interface");
    const host::Device* const device = host_.find_device_of(local.address, local.scope);
    if (device == nullptr) return fail(EADDRNOTAVAIL, "the address is not on this host");
    ifindex = device->ifindex;
  }
  const host::PortRules rules = host_.port_rules();
  const bool low = local.port != 0 && local.port < rules.unprivileged_first;
  if (low && !low_port_sessions_.contains(id.session)) return fail(EACCES, "a low port needs a capability");

  RdmaId bound = id;
  bound.local = local;
  bound.ifindex = ifindex;
  if (!bound.family_only) bound.family_only = local.address.is_ipv4() || rules.ipv6_only;
  const auto space = static_cast<PortSpaces::Space>(id.port_space);
  if (local.port != 0) {
    if (auto held = ports_.bind(space, id.id, local.port, claim_of(bound)); !held) return held;
  } else {
    const auto port = ports_.bind_ephemeral(space, id.id, {rules.ephemeral_first, rules.ephemeral_last}, random_.next(),
                                            claim_of(bound));
    if (!port) return tl::unexpected(port.error());
    bound.local.port = *port;
  }
  id = std::move(bound);
  return {};
}

Result<void> Core::bind_addr(TimeNs, RdmaId& id, const ipc::CmCommand& command) {
  const auto local = endpoint_of(command.source);
  if (!local) return fail(EAFNOSUPPORT, "not an IPv4 or IPv6 address");
  return bind(id, *local);
}

Result<void> Core::resolve_route(TimeNs, RdmaId& id, const ipc::CmCommand& command) {
  if (command.timeout_ms == 0) return fail(EINVAL, "no time to resolve the route");
  const host::Device* const device = host_.find_device(id.ifindex);
  if (device == nullptr) return fail(ENODEV, "the interface has gone");
  id.path_mtu = host::path_mtu_of(device->mtu);
  if (id.path_mtu == 0) return fail(EINVAL, "the interface's MTU is below 352");
  id.packet_lifetime = id.ack_timeout != 0 ? static_cast<std::uint8_t>(id.ack_timeout - 1) : kPacketLifetime;
  id.traffic_class = id.type_of_service;
  id.flow_label = id.local.flow_info & kFlowLabelMask;
  if (id.flow_label == 0) id.flow_label = (id.local.port * 31u + id.remote.port) & kFlowLabelMask;  // Linux: same
  push_event(id.id, {.type = ipc::CmEventType::kRouteResolved, .id = id.id, .path = path_of(id)});
  return {};
}

Result<void> Core::listen(TimeNs, RdmaId& id, const ipc::CmCommand& command) {
  if (auto connectable = check_connectable(id); !connectable) return connectable;
  if (id.qp_type == kQpTypeXrcSend) return fail(EINVAL, "a QP that sends answers nobody");
  if (id.state == IdState::kIdle) {
    if (auto bound = bind(id, {.address = wire::IpAddress::ipv4_any(), .known = true}); !bound) return bound;
    id.state = IdState::kAddrBound;
  }
  if (auto free = ports_.check_listen(id.id); !free) return free;
  const bool in_range = command.backlog > 0 && command.backlog <= static_cast<std::int32_t>(kBacklogMax);
  id.backlog = in_range ? static_cast<std::uint32_t>(command.backlog) : kBacklogMax;
  if (!take(id.session, id.user, Resource::kListeners)) return fail(ENOMEM, "the process or its user has too many");
  if (auto started = start_listening(id); !started) {
    quotas_.give_back(id.session, id.user, Resource::kListeners);
    return started;
  }
  listening_.insert(id.id);
  return {};
}

Result<void> Core::start_listening(RdmaId& id) {
  const auto listener = engine_.listen({.service_id = wire::ip_service_id(id.port_space, id.local.port),
                                        .address = id.local.address,
                                        .address_family_only = id.family_only.value_or(true),
                                        .ifindex = id.local.address.is_link_local() ? id.local.scope : 0,
                                        .transport = transport_of(id.qp_type),
                                        .backlog = id.backlog,
                                        .user = id.id});
  if (!listener) return tl::unexpected(listener.error());
  id.listener = *listener;
  return {};
}

Result<void> Core::request_taken(TimeNs now, RdmaId& id) {
  if (!id.passive) return fail(EINVAL, "not made by a request");
  engine_.request_taken(now, id.connection);
  engine_.sidr_request_taken(id.exchange);
  if (RdmaId* const listening = find(id.listen_id)) listening->untaken.erase(id.id);
  id.listen_id = 0;
  return {};
}

std::uint64_t Core::device_guid(const RdmaId& id) const {
  const host::Device* const device = host_.find_device(id.ifindex);
  return device != nullptr ? device->guid : 0;
}

Result<void> Core::connect(TimeNs now, RdmaId& id, const ipc::CmCommand& command) {
  if (auto connectable = check_connectable(id); !connectable) return connectable;
  if (id.is_datagram()) return connect_datagram(now, id, command);
  if (id.qp_type == kQpTypeXrcRecv) return fail(EINVAL, "a QP that receives asks nobody");  // Linux: same
  const auto data = private_data(command.conn);
  if (!data) return fail(EINVAL, "private data longer than 56 bytes");
  if (!callbacks_.owns_qpn(id.session, command.conn.qp_num)) return fail(EINVAL, "the QP number is not the process's");
  if (auto asking = begin_asking(now, id); !asking) return asking;
  const auto connection = engine_.connect(now, {.path = {.local = id.local.address,
                                                         .remote = id.remote.address,
                                                         .ifindex = id.ifindex,
                                                         .traffic_class = id.traffic_class},
                                                .ca_guid = device_guid(id),
                                                .service_id = wire::ip_service_id(id.port_space, id.remote.port),
                                                .source_port = id.local.port,
                                                .transport = *transport_of(id.qp_type),
                                                .path_mtu = id.path_mtu,
                                                .packet_lifetime = id.packet_lifetime,
                                                .flow_label = id.flow_label,
                                                .params = connection_params(command.conn),
                                                .private_data = *data,
                                                .user = id.id});
  if (!connection) {
    end_asking(id);
    return tl::unexpected(connection.error());
  }
  id.connection = *connection;
  return {};
}

// No QP is named: the peer learns it from the datagrams.
Result<void> Core::connect_datagram(TimeNs now, RdmaId& id, const ipc::CmCommand& command) {
  const auto data = private_data(command.conn);
  if (!data) return fail(EINVAL, "private data longer than 180 bytes");
  if (auto asking = begin_asking(now, id); !asking) return asking;
  const auto exchange = engine_.sidr_connect(now, {.path = {.local = id.local.address,
                                                            .remote = id.remote.address,
                                                            .ifindex = id.ifindex,
                                                            .traffic_class = id.traffic_class},
                                                   .service_id = wire::ip_service_id(id.port_space, id.remote.port),
                                                   .source_port = id.local.port,
                                                   .qkey = command.conn.qkey,
                                                   .private_data = *data,
                                                   .user = id.id});
  if (!exchange) {
    end_asking(id);
    return tl::unexpected(exchange.error());
  }
  id.exchange = *exchange;
  return {};
}

Result<void> Core::accept(TimeNs now, RdmaId& id, const ipc::CmCommand& command) {
  if (!id.passive) return fail(EINVAL, "there is no request");
  const auto& conn = command.conn;
  const auto data = private_data(conn);
  if (!data) return fail(EINVAL, "private data longer than 196 bytes");
  if (!callbacks_.owns_qpn(id.session, conn.qp_num)) return fail(EINVAL, "the QP number is not the process's");
  auto accepted =
      id.is_datagram()
          ? engine_.sidr_accept(now, id.exchange, {.qpn = conn.qp_num, .qkey = conn.qkey, .private_data = *data})
          : engine_.accept(now, id.connection,
                           {.ca_guid = device_guid(id), .params = connection_params(conn), .private_data = *data});
  if (accepted) id.accepted = true;
  return accepted;
}

Result<void> Core::reject(TimeNs now, RdmaId& id, const ipc::CmCommand& command) {
  const auto data = private_data(command.conn);
  if (!data) return fail(EINVAL, "private data longer than 148 bytes");
  if (id.is_datagram()) return engine_.sidr_reject(now, id.exchange, *data);
  const auto reason = static_cast<wire::RejReason>(command.conn.reject_reason);
  const bool ece = reason == wire::RejReason::kVendorOptionNotSupported;
  return engine_.reject(now, id.connection,
                        {.reason = ece ? reason : wire::RejReason::kConsumerDefined, .private_data = *data});
}

Result<void> Core::establish(TimeNs now, RdmaId& id, const ipc::CmCommand&) {
  return engine_.establish(now, id.connection);
}

Result<void> Core::notify(TimeNs now, RdmaId& id, const ipc::CmCommand&) {
  return engine_.notify_established(now, id.connection);
}

Result<void> Core::disconnect(TimeNs now, RdmaId& id, const ipc::CmCommand&) {
  engine_.disconnect(now, id.connection);
  end_asking(id);
  return {};
}

// RoCE has no subnet administrator to ask: every IPv4 group is there. Its packets are asked for when a QP is
// attached.
Result<void> Core::join_multicast(TimeNs, RdmaId& id, const ipc::CmCommand& command) {
  if (id.ifindex == 0 || !id.is_datagram()) return fail(EINVAL, "not a datagram ID with a device");
  const auto group = endpoint_of(command.destination);
  if (!group || !group->address.is_multicast()) return fail(EINVAL, "not a multicast address");
  if (!group->address.is_ipv4()) return fail(kNotSupported, "RoCEv2 has IPv4 groups only");
  ipc::CmEvent told{.type = ipc::CmEventType::kMulticastJoin, .id = id.id, .path = path_of(id)};
  told.path.remote = to_socket_address(*group);
  told.path.traffic_class = 0;
  told.path.flow_label = 0;
  told.multicast = command.multicast;
  push_event(id.id, told);
  return {};
}

}  // namespace ucm::node
