// What the events of the node do to an ID before the program sees them.
#include <cerrno>
#include <cstring>

#include "rdma/convert.h"
#include "rdma/id.h"

namespace ucm::rdma {

std::optional<ipc::CmEventType> Id::event_when_node_lost() {
  const std::lock_guard lock(mutex_);
  // With datagrams nothing ends but the device.
  const bool settled = is_datagram() && phase_ == Phase::kEstablished;
  const ipc::CmEventType type = settled ? ipc::CmEventType::kDeviceRemoval : rules_of(phase_).when_node_lost;
  const bool nothing_lost = verbs == nullptr && phase_ != Phase::kListening;
  if (type == ipc::CmEventType::kDeviceRemoval && nothing_lost) return std::nullopt;
  return type;
}

bool Id::process_event(const ipc::CmEvent& cause, Event& told) {
  told.id = this;
  set_type(told, cause.type);
  told.status = cause.status;
  switch (cause.type) {
    case ipc::CmEventType::kAddrResolved:
      if (auto attached = attach_device(cause.path.ifindex, cause.device); !attached) {
        told.event = RDMA_CM_EVENT_ADDR_ERROR;
        told.status = -attached.error().code;
        set_phase(Phase::kBound);
        return true;
      }
      set_addresses(cause.path, cause.device);
      set_phase(Phase::kAddressResolved);
      current_channel()->set_resolved(cause.path.remote);
      return true;
    case ipc::CmEventType::kAddrError: {
      current_channel()->forget_resolved();
      // A datagram service may answer with a Q_Key that cannot be used.
      const std::lock_guard lock(mutex_);
      const bool answered = phase_ == Phase::kConnecting;
      if (answered) told.set_datagram(cause.conn, {});
      phase_ = answered ? Phase::kClosed : Phase::kBound;
      return true;
    }
    case ipc::CmEventType::kRouteResolved:
      set_route(cause.path, cause.device);
      set_phase(Phase::kRouteResolved);
      return true;
    case ipc::CmEventType::kRouteError:
      set_phase(Phase::kAddressResolved);
      return true;
    case ipc::CmEventType::kConnectRequest:
      return process_request(cause, told);
    case ipc::CmEventType::kConnectResponse:
      told.set_connection(cause.conn);
      process_response(cause, told);
      return true;
    case ipc::CmEventType::kEstablished:
      set_phase(Phase::kEstablished);
      if (is_datagram()) process_datagram_answer(cause, told);
      return true;
    case ipc::CmEventType::kRejected:
    case ipc::CmEventType::kUnreachable:
      // It has crossed with kEstablish. (A rejection may come to what is established.  // Linux: the same)
      if (cause.type == ipc::CmEventType::kUnreachable && !is_datagram() && phase() == Phase::kEstablished) {
        set_type(told, ipc::CmEventType::kDisconnected);
        told.status = 0;
        return process_end(told);
      }
      if (cause.type == ipc::CmEventType::kRejected) told.set_connection(cause.conn);
      if (cause.type == ipc::CmEventType::kUnreachable && is_datagram()) told.set_datagram(cause.conn, {});
      return process_end(told);
    case ipc::CmEventType::kConnectError:
    case ipc::CmEventType::kDisconnected:
      return process_end(told);
    case ipc::CmEventType::kUser:
      std::memcpy(&told.param, cause.conn.private_data.data(), sizeof(std::uint64_t));
      return true;
    case ipc::CmEventType::kMulticastJoin:
      return process_multicast(cause, told);
    case ipc::CmEventType::kDeviceRemoval:
    case ipc::CmEventType::kAddrChange:
    case ipc::CmEventType::kTimewaitExit:
    case ipc::CmEventType::kAddrinfoResolved:
    case ipc::CmEventType::kAddrinfoError:
      return true;
  }
  return false;
}

bool Id::process_request(const ipc::CmEvent& cause, Event& told) {
  auto adopted = adopt(cause);
  if (!adopted) return false;
  told.id = adopted->get();
  told.listen_id = this;
  is_datagram() ? told.set_datagram(cause.conn, {}) : told.set_connection(cause.conn);
  return true;
}

Result<std::shared_ptr<Id>> Id::adopt(const ipc::CmEvent& request) {
  const std::shared_ptr<EventChannel> events = current_channel();
  const std::shared_ptr<Id> child(new Id(events, context, ps, qp_type, request.id));
  child->phase_ = Phase::kRequested;
  child->qp_params_ = request.qp;
  child->remote_ece_ = ibv_ece{request.conn.ece_vendor_id, request.conn.ece_options, 0};
  // A datagram request tells no route.  // Linux: same
  is_datagram() ? child->set_addresses(request.path, request.device) : child->set_route(request.path, request.device);
  Result<void> usable = child->attach_device(request.path.ifindex, request.device);
  if (usable) {
    // The request may have been withdrawn, or the listener destroyed, while the event waited. Once the program knows of
    // the request, the backlog has room for another one.
    if (auto reply = child->call(child->command(ipc::CmCall::kRequestTaken)); !reply) {
      usable = tl::unexpected(reply.error());
    }
  }
  if (usable) {
    events->add(child);
    if (synchronous_) usable = child->migrate(nullptr);
  }
  if (!usable) {
    child->destroy();
    return tl::unexpected(usable.error());
  }
  return child;
}

void Id::process_response(const ipc::CmEvent& cause, Event& told) {
  {
    const std::lock_guard lock(mutex_);
    qp_params_ = cause.qp;
    remote_ece_ = ibv_ece{cause.conn.ece_vendor_id, cause.conn.ece_options, 0};
    phase_ = Phase::kResponded;
  }
  {
    const std::lock_guard lock(qp_mutex_);
    if (qp == nullptr) return;  // the program brings up its own QP and calls rdma_establish
  }
  const auto connected = connect_qp();
  if (connected) {
    told.event = RDMA_CM_EVENT_ESTABLISHED;
    return;
  }
  told.event = RDMA_CM_EVENT_CONNECT_ERROR;
  told.status = -1;  // whatever the reason  // librdmacm: same
  fail_qp();
  const std::lock_guard lock(mutex_);
  phase_ = Phase::kClosed;
  connect_failed_ = true;
}

void Id::process_datagram_answer(const ipc::CmEvent& cause, Event& told) {
  if (cause.device.port != 0) return told.set_datagram(cause.conn, address_handle_of(cause.path, cause.device));
  {
    const std::lock_guard lock(mutex_);
    qp_params_.dest_known = 1;
  }
  const auto known = facts();
  if (known) return told.set_datagram(cause.conn, address_of_peer(*known));
  // The own address has gone.
  told.event = RDMA_CM_EVENT_ADDR_ERROR;
  told.status = -known.error().code;
  set_phase(Phase::kClosed);
}

Result<void> Id::connect_qp() {
  ibv_ece local;
  ibv_ece remote;
  {
    const std::lock_guard lock(mutex_);
    local = local_ece_;
    remote = remote_ece_;
  }
  if (remote.vendor_id != 0 && remote.vendor_id != local.vendor_id) {
    return fail(EINVAL, "the peer answered with the ECE of another vendor");
  }
  {
    const std::lock_guard lock(qp_mutex_);
    if (qp == nullptr) return fail(EINVAL, "the QP was destroyed while the connection was being made");
    if (local.vendor_id != 0 && ibv_set_ece(qp, &remote) != 0) return fail(EINVAL, "the QP refused the peer's ECE");
    if (auto ready = ready_qp(); !ready) return ready;
  }
  const auto reply = call_entering(Phase::kEstablished, command(ipc::CmCall::kEstablish), Answer::kExpected);
  if (!reply) return tl::unexpected(reply.error());
  return {};
}

bool Id::process_end(Event& told) {
  if (told.event == RDMA_CM_EVENT_REJECTED) fail_qp();
  const std::lock_guard lock(mutex_);
  phase_ = Phase::kClosed;
  return !connect_failed_;
}

}  // namespace ucm::rdma
