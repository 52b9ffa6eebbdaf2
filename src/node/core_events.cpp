// From the engine's events to those that a program sees.
#include <algorithm>

#include "ipc/names.h"
#include "node/core.h"
#include "node/probes.h"
#include "wire/reject_reasons.h"

namespace ucm::node {
namespace {

struct Mapping {
  cm::EventType from;
  ipc::CmEventType to;
  IdInput input;
};
constexpr std::array kMappings{
    Mapping{cm::EventType::kConnectResponse, ipc::CmEventType::kConnectResponse, IdInput::kConnectionEvent},
    Mapping{cm::EventType::kEstablished, ipc::CmEventType::kEstablished, IdInput::kConnectionEvent},
    Mapping{cm::EventType::kRejected, ipc::CmEventType::kRejected, IdInput::kConnectionEvent},
    Mapping{cm::EventType::kUnreachable, ipc::CmEventType::kUnreachable, IdInput::kConnectionEvent},
    Mapping{cm::EventType::kDisconnected, ipc::CmEventType::kDisconnected, IdInput::kDisconnected},
    Mapping{cm::EventType::kTimewaitExit, ipc::CmEventType::kTimewaitExit, IdInput::kTimewaitExit},
};

struct DatagramMapping {
  cm::SidrEventType from;
  ipc::CmEventType to;
};
constexpr std::array kDatagramMappings{
    DatagramMapping{cm::SidrEventType::kReply, ipc::CmEventType::kEstablished},
    DatagramMapping{cm::SidrEventType::kRefused, ipc::CmEventType::kUnreachable},
    DatagramMapping{cm::SidrEventType::kUnreachable, ipc::CmEventType::kUnreachable},
    DatagramMapping{cm::SidrEventType::kBadQkey, ipc::CmEventType::kAddrError},
};

// Of either kind of event.
void copy_private_data(const auto& event, ipc::CmConnParam& conn) {
  conn.private_data_size = static_cast<decltype(conn.private_data_size)>(event.private_data.size());
  std::ranges::copy(event.private_data, conn.private_data.begin());
}

// What the peer serves, the receiver may ask for, and the other way round.
ipc::CmConnParam conn_of(const cm::Event& event) {
  ipc::CmConnParam conn{.qp_num = event.peer.qpn,
                        .srq = event.peer.srq,
                        .responder_resources = event.peer.initiator_depth,
                        .initiator_depth = event.peer.responder_resources,
                        .flow_control = event.peer.flow_control,
                        .retry_count = event.peer.retry_count,
                        .rnr_retry_count = event.peer.rnr_retry_count,
                        .ece_vendor_id = event.peer.vendor_id,
                        .ece_options = event.peer.ece_options};
  copy_private_data(event, conn);
  return conn;
}

bool is_failure(const ipc::CmEvent& event) {
  return event.status != 0 || event.type == ipc::CmEventType::kDeviceRemoval;
}

// What the numbers of an event mean.
std::string_view why_of(const RdmaId& id, const ipc::CmEvent& event) {
  switch (event.type) {
    case ipc::CmEventType::kRejected:
      return wire::text_of(static_cast<wire::RejReason>(event.status));
    case ipc::CmEventType::kUnreachable:
      if (event.status > 0) return wire::text_of(static_cast<wire::SidrStatus>(event.status));
      return id.passive ? "nothing came for the answer, however often it was sent"
                        : "no answer to the request, however often it was sent";
    case ipc::CmEventType::kDisconnected:
      return "the peer does not answer the disconnection";
    case ipc::CmEventType::kAddrError:
      return "the peer has another Q_Key";
    case ipc::CmEventType::kDeviceRemoval:
      return "the interface has gone";
    default:
      return "";
  }
}

}  // namespace

void Core::take_events(TimeNs now) {
  while (const auto event = engine_.poll_event()) on_event(now, *event);
  while (const auto event = engine_.poll_sidr_event()) on_event(now, *event);
}

void Core::on_event(TimeNs now, const cm::Event& event) {
  if (event.type == cm::EventType::kConnectRequest) {
    on_request(now, event);
  } else if (RdmaId* const id = find(static_cast<std::uint32_t>(event.user));
             id != nullptr && id->connection == event.connection) {
    on_connection_event(*id, event);
  }
}

void Core::on_event(TimeNs now, const cm::SidrEvent& event) {
  if (event.type == cm::SidrEventType::kRequest) {
    on_request(now, event);
  } else if (RdmaId* const id = find(static_cast<std::uint32_t>(event.user));
             id != nullptr && id->exchange == event.exchange) {
    on_answer(*id, event);
  }
}

// Addresses inside a request are the peer's word. A loopback address in it counts only when the packet came to one:
// then its sender is on this host. (Linux takes 127.0.0.1 for a wildcard.)
bool Core::request_is_for_us(const wire::IpCmHeader& addresses, const cm::Path& path) const {
  if (host_.find_device_of(addresses.destination, path.ifindex) == nullptr) return false;
  return !addresses.destination.is_loopback() || path.local.is_loopback();
}

RdmaId* Core::create_for_request(std::uint64_t listener, const wire::IpCmHeader& addresses, const cm::Path& path) {
  RdmaId* const listening = find(static_cast<std::uint32_t>(listener));
  if (listening == nullptr || !request_is_for_us(addresses, path)) return nullptr;
  RdmaId* const id = create(listening->session, listening->link);
  if (id == nullptr) return nullptr;
  id->port_space = listening->port_space;
  id->qp_type = listening->qp_type;
  id->type_of_service = listening->type_of_service;
  id->ack_timeout = listening->ack_timeout;
  id->state = IdState::kConnect;
  id->local = {.address = addresses.destination, .port = listening->local.port, .scope = path.ifindex, .known = true};
  id->remote = {.address = addresses.source, .port = addresses.source_port, .scope = path.ifindex, .known = true};
  id->ifindex = host_.find_device_of(id->local.address, path.ifindex)->ifindex;
  id->passive = true;
  id->listen_id = listening->id;
  listening->untaken.insert(id->id);
  return id;
}

void Core::on_request(TimeNs now, const cm::Event& event) {
  RdmaId* const id = create_for_request(event.user, event.addresses, event.path);
  if (id == nullptr) {
    engine_.destroy(now, event.connection);  // REJ 28
    return;
  }
  id->connection = event.connection;
  if (recorder_ != nullptr) recorder_->adopt(*id);
  if (const auto qp = engine_.qp_parameters(event.connection)) {
    id->path_mtu = qp->path_mtu;
    id->flow_label = qp->flow_label;
    id->traffic_class = qp->traffic_class;
  }
  engine_.set_user(event.connection, id->id);
  push_event(id->listen_id, {.type = ipc::CmEventType::kConnectRequest,
                             .id = id->id,
                             .listen_id = id->listen_id,
                             .path = path_of(*id),
                             .qp = qp_params_of(*id),
                             .conn = conn_of(event)});
}

void Core::on_request(TimeNs now, const cm::SidrEvent& event) {
  RdmaId* const id = create_for_request(event.user, event.addresses, event.path);
  if (id == nullptr) {
    engine_.sidr_destroy(now, event.exchange);  // SIDR status 2
    return;
  }
  id->exchange = event.exchange;
  if (recorder_ != nullptr) recorder_->adopt(*id);
  engine_.sidr_set_user(event.exchange, id->id);
  ipc::CmEvent told{
      .type = ipc::CmEventType::kConnectRequest, .id = id->id, .listen_id = id->listen_id, .path = path_of(*id)};
  copy_private_data(event, told.conn);
  push_event(id->listen_id, told);
}

void Core::on_connection_event(RdmaId& id, const cm::Event& event) {
  const auto* const mapping = std::ranges::find(kMappings, event.type, &Mapping::from);
  const auto next = next_state(id.state, mapping->input);
  // What happens to a request before it is accepted, accept() will tell.  // Linux: same
  if (!next || (id.passive && !id.accepted)) return;
  id.state = *next;
  end_asking(id);
  ipc::CmEvent told{.type = mapping->to, .status = event.status, .id = id.id};
  if (event.type == cm::EventType::kConnectResponse) {
    told.path = path_of(id);
    told.qp = qp_params_of(id);
    told.conn = conn_of(event);
    told.conn.retry_count = 0;  // a REP has none
  } else if (event.type == cm::EventType::kRejected) {
    copy_private_data(event, told.conn);
  }
  push_event(id.id, told);
}

void Core::on_answer(RdmaId& id, const cm::SidrEvent& event) {
  id.answered = true;
  const auto* const mapping = std::ranges::find(kDatagramMappings, event.type, &DatagramMapping::from);
  end_asking(id);
  ipc::CmEvent told{.type = mapping->to, .status = event.status, .id = id.id};
  told.conn.qp_num = event.qpn;
  told.conn.qkey = event.qkey;
  copy_private_data(event, told.conn);
  push_event(id.id, told);
}

void Core::push_event(std::uint32_t id, const ipc::CmEvent& event, std::string_view why) {
  events_.push_back({id, event});
  probes::event(event.id, event.type, event.status);
  work_ = true;
  RdmaId* const whose = find(event.id);
  if (whose == nullptr) return;
  note(*whose);
  if (is_failure(event)) {
    explain_failure(
        whose,
        {.what = ipc::name(event.type), .status = event.status, .why = why.empty() ? why_of(*whose, event) : why});
  }
  if (recorder_ != nullptr) recorder_->event(*whose, event);
}

void Core::explain_failure(const RdmaId* id, Failure failure) {
  if (recorder_ != nullptr) recorder_->explain(failure.why);
  if (!callbacks_.failed) return;
  if (id != nullptr) {
    failure.id = id->id;
    failure.session = id->session;
    failure.state = to_string(id->state);
    failure.local = to_socket_address(id->local);
    failure.remote = to_socket_address(id->remote);
    if (const cm::Connection* const connection = engine_.connection(id->connection)) {
      failure.local_comm_id = connection->local_comm_id;
      failure.remote_comm_id = connection->remote_comm_id;
      // The engine's is more exact.
      if (failure.call) failure.state = cm::name(connection->state);
    }
  }
  callbacks_.failed(failure);
}

// Events of IDs destroyed meanwhile are dropped; a request counts as its listener's and as its own.
void Core::deliver_events() {
  std::deque<Told> events;
  events.swap(events_);
  for (Told& told : events) {
    const RdmaId* const id = find(told.id);
    if (id != nullptr && ids_.contains(told.event.id)) callbacks_.deliver_event(id->link, told.event);
    if (journal_ != nullptr) journal_->drop(told.cell);
  }
}

ipc::CmPath Core::path_of(const RdmaId& id) const {
  return {.local = to_socket_address(id.local),
          .remote = to_socket_address(id.remote),
          .ifindex = id.ifindex,
          .flow_label = id.flow_label,
          .mtu = id.path_mtu,
          .traffic_class = id.traffic_class,
          .hop_limit = 64,
          .packet_lifetime = id.packet_lifetime};
}

ipc::CmQpParams Core::qp_params_of(const RdmaId& id) const {
  const auto qp = engine_.qp_parameters(id.connection);
  if (!qp) return {};
  return {.dest_qpn = qp->dest_qpn,
          .rq_psn = qp->rq_psn,
          .sq_psn = qp->sq_psn,
          .dest_known = qp->dest_known,
          .path_mtu = qp->path_mtu,
          .responder_resources = qp->responder_resources,
          .initiator_depth = qp->initiator_depth,
          .retry_count = qp->retry_count,
          .rnr_retry_count = qp->rnr_retry_count,
          .ack_timeout = id.ack_timeout != 0 ? id.ack_timeout : qp->ack_timeout};
}

}  // namespace ucm::node
