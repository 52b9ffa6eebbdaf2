#include "sim/ucm_node.h"

#include "base/check.h"
#include "wire/ip_cm.h"

namespace ucm::sim {
namespace {

EventType type_of(cm::EventType type) {
  switch (type) {
    case cm::EventType::kConnectRequest:
      return EventType::kConnectRequest;
    case cm::EventType::kConnectResponse:
      return EventType::kConnectResponse;
    case cm::EventType::kEstablished:
      return EventType::kEstablished;
    case cm::EventType::kRejected:
      return EventType::kRejected;
    case cm::EventType::kUnreachable:
      return EventType::kUnreachable;
    case cm::EventType::kDisconnected:
      return EventType::kDisconnected;
    case cm::EventType::kTimewaitExit:
      break;
  }
  return EventType::kTimewaitExit;
}

std::array<std::uint8_t, 8> note_bytes(std::uint64_t note) {
  std::array<std::uint8_t, 8> bytes{};
  store_be64(bytes.data(), note);
  return bytes;
}

cm::ConnectionId id_of(Handle connection) { return cm::ConnectionId{connection}; }

}  // namespace

Handle UcmNode::listen(std::uint16_t port, std::uint32_t backlog, std::uint64_t user) {
  const auto listener = engine_.listen({.service_id = wire::ip_service_id(wire::PortSpace::kTcp, port),
                                        .address = wire::IpAddress::ipv4_any(),
                                        .backlog = backlog,
                                        .user = user});
  UCM_CHECK(listener);
  return static_cast<Handle>(*listener);
}

void UcmNode::close_listener(TimeNs now, Handle listener) { engine_.close_listener(now, cm::ListenerId{listener}); }

Handle UcmNode::connect(TimeNs now, const ConnectRequest& request) {
  const auto note = note_bytes(request.note);
  const auto id = engine_.connect(now, {.path = {.local = address_, .remote = request.remote},
                                        .ca_guid = guid_,
                                        .service_id = wire::ip_service_id(wire::PortSpace::kTcp, request.port),
                                        .source_port = request.source_port,
                                        .params = {.qpn = request.qpn},
                                        .private_data = note,
                                        .user = request.user});
  UCM_CHECK(id);
  return static_cast<Handle>(*id);
}

void UcmNode::request_taken(TimeNs now, Handle connection) { engine_.request_taken(now, id_of(connection)); }

void UcmNode::set_user(Handle connection, std::uint64_t user) { engine_.set_user(id_of(connection), user); }

bool UcmNode::accept(TimeNs now, Handle connection, std::uint32_t qpn, std::uint64_t note) {
  const auto bytes = note_bytes(note);
  return engine_.accept(now, id_of(connection), {.ca_guid = guid_, .params = {.qpn = qpn}, .private_data = bytes})
      .has_value();
}

bool UcmNode::reject(TimeNs now, Handle connection) { return engine_.reject(now, id_of(connection), {}).has_value(); }

bool UcmNode::establish(TimeNs now, Handle connection) { return engine_.establish(now, id_of(connection)).has_value(); }

void UcmNode::disconnect(TimeNs now, Handle connection) { engine_.disconnect(now, id_of(connection)); }

void UcmNode::destroy(TimeNs now, Handle connection) { engine_.destroy(now, id_of(connection)); }

std::optional<QpNumbers> UcmNode::qp(Handle connection) const {
  const auto parameters = engine_.qp_parameters(id_of(connection));
  if (!parameters) return std::nullopt;
  return QpNumbers{.local_qpn = parameters->local_qpn,
                   .dest_qpn = parameters->dest_qpn,
                   .rq_psn = parameters->rq_psn,
                   .sq_psn = parameters->sq_psn};
}

void UcmNode::on_packet(TimeNs now, const wire::IpAddress& from, Bytes mad) {
  engine_.on_packet(now, {.local = address_, .remote = from}, mad);
}

bool UcmNode::poll_packet(Packet& packet) {
  const auto sent = engine_.poll_packet();
  if (!sent) return false;
  packet.from = sent->path.local;
  packet.to = sent->path.remote;
  packet.mad = sent->mad;
  return true;
}

bool UcmNode::poll_event(Event& event) {
  const auto reported = engine_.poll_event();
  if (!reported) return false;
  event = {.type = type_of(reported->type),
           .connection = static_cast<Handle>(reported->connection),
           .user = reported->user,
           .status = reported->status,
           .peer_qpn = reported->peer.qpn,
           .peer_note = reported->private_data.size() < 8 ? 0 : load_be64(reported->private_data.view().data())};
  return true;
}

Usage UcmNode::usage() const {
  const auto usage = engine_.usage();
  return {.connections = usage.connections,
          .orphans = usage.orphans,
          .listeners = usage.listeners,
          .comm_ids = usage.comm_ids,
          .remote_ids = usage.remote_ids,
          .remote_qps = usage.remote_qps,
          .messages = usage.exchanges,
          .requests = usage.requests,
          .timers = usage.timers};
}

}  // namespace ucm::sim
