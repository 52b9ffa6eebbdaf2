// The messages an engine sends. IBTA 12.6; constant fields are those of Linux over RoCE.
#include <algorithm>

#include "cm/engine.h"
#include "cm/limits.h"
#include "cm/timing.h"
#include "wire/headers.h"

namespace ucm::cm {
namespace {

constexpr std::uint16_t kPermissiveLid = 0xFFFF;  // RoCE has no LIDs
constexpr std::uint64_t kTransactionIdAgent = 2;  // upper half of every transaction ID, as of one agent of Linux

// The lower half is the comm ID, byte-swapped on the wire.  // Linux: same
std::uint64_t transaction_id_of(std::uint32_t comm_id) {
  const std::uint32_t swapped = comm_id >> 24 | (comm_id >> 8 & 0xFF00) | (comm_id << 8 & 0xFF0000) | comm_id << 24;
  return kTransactionIdAgent << 32 | swapped;
}

void copy_into(MutableBytes field, Bytes data) { std::copy(data.begin(), data.end(), field.begin()); }

// A request's private data: the IP CM header, then the application's.
void put_private_data(MutableBytes field, const Path& path, std::uint16_t source_port, Bytes data) {
  const wire::IpCmHeader addresses{.ip_version = static_cast<std::uint8_t>(path.remote.is_ipv4() ? 4 : 6),
                                   .source_port = source_port,
                                   .source = path.local,
                                   .destination = path.remote};
  addresses.emit(field.first(wire::IpCmHeader::kSize));
  copy_into(field.subspan(wire::IpCmHeader::kSize), data);
}

// A MAD with UCM's mark.
template <class Message>
void emit(const Message& message, std::uint64_t transaction_id, std::uint32_t attribute_modifier, MutableBytes mad) {
  const wire::MadHeader header{.transaction_id = transaction_id,
                               .attribute = Message::kAttribute,
                               .reserved = kUcmMark,
                               .attribute_modifier = attribute_modifier};
  header.emit(mad.first(wire::MadHeader::kSize));
  message.emit(mad.subspan(wire::MadHeader::kSize));
}

}  // namespace

Packet& Engine::new_packet(const Path& path) {
  ++counters_.packets_sent;
  Packet& packet = packets_.push_reused();
  packet.path = path;
  packet.cause = cause_;
  return packet;
}

template <class Message>
const Engine::Mad& Engine::send(const Path& path, std::uint64_t transaction_id, const Message& message,
                                std::uint32_t attribute_modifier) {
  Packet& packet = new_packet(path);
  emit(message, transaction_id, attribute_modifier, packet.mad);
  return packet.mad;
}

Engine::Mad Engine::make_req(Slot slot, const ConnectParams& params) {
  Connection& c = connections_[slot];
  c.transaction_id = transaction_id_of(c.local_comm_id);
  wire::Req req;
  req.local_comm_id = c.local_comm_id;
  req.vendor_id = params.params.vendor_id;
  req.service_id = params.service_id;
  req.local_ca_guid = c.local_guid;
  req.local_qpn = c.local_qpn;
  if (c.is_xrc()) {  // only the peer's QP receives and answers  // Linux: same
    req.extended_transport_type = wire::kExtendedXrc;
  } else {
    req.responder_resources = c.responder_resources;
    req.retry_count = c.retry_count;
    req.rnr_retry_count = c.rnr_retry_count;
    req.srq = params.params.srq;
  }
  req.initiator_depth = c.initiator_depth;
  req.remote_cm_response_timeout = config_.cm_response_timeout;
  req.transport_service = params.transport;
  req.end_to_end_flow_control = params.params.flow_control;
  req.starting_psn = c.rq_psn;
  req.local_cm_response_timeout = config_.cm_response_timeout;
  req.pkey = wire::kDefaultPkey;
  req.path_mtu = c.path_mtu;
  req.max_cm_retries = config_.max_cm_retries;
  req.primary = {.local_lid = kPermissiveLid,
                 .remote_lid = kPermissiveLid,
                 .local_gid = c.path.local,
                 .remote_gid = c.path.remote,
                 .flow_label = c.flow_label,
                 .traffic_class = c.path.traffic_class,
                 .hop_limit = c.path.hop_limit,
                 .local_ack_timeout = ack_timeout(config_.target_ack_delay, c.packet_lifetime)};
  put_private_data(req.private_data, c.path, params.source_port, params.private_data);
  Mad mad{};
  emit(req, c.transaction_id, params.params.ece_options, mad);
  return mad;
}

void Engine::send_req(TimeNs now, Slot slot) {
  Exchange& exchange = exchanges_[connections_[slot].exchange];
  exchange.sent_at = now;
  exchange.wait = peers_.first_wait(exchange.peer);
  send_again(slot);
  arm(now, slot);
}

void Engine::send_rep(TimeNs now, Slot slot, const AcceptParams& params) {
  Connection& c = connections_[slot];
  c.local_guid = params.ca_guid;
  c.local_qpn = params.params.qpn;
  c.responder_resources = params.params.responder_resources;
  c.initiator_depth = params.params.initiator_depth;
  wire::Rep rep;
  rep.local_comm_id = c.local_comm_id;
  rep.remote_comm_id = c.remote_comm_id;
  rep.vendor_id = params.params.vendor_id;
  rep.starting_psn = c.rq_psn;
  rep.responder_resources = c.responder_resources;
  if (c.is_xrc()) {  // this side's QP only receives, and what it receives goes to SRQs  // Linux: same
    rep.local_eecn = c.local_qpn;
    rep.srq = true;
  } else {
    rep.local_qpn = c.local_qpn;
    rep.initiator_depth = c.initiator_depth;
    rep.end_to_end_flow_control = params.params.flow_control;
    rep.srq = params.params.srq;
  }
  rep.target_ack_delay = config_.target_ack_delay;
  rep.rnr_retry_count = std::min<std::uint8_t>(params.params.rnr_retry_count, 7);
  rep.local_ca_guid = c.local_guid;
  copy_into(rep.private_data, params.private_data);
  begin_exchange(now, slot, send(c.path, c.transaction_id, rep, params.params.ece_options));
  arm(now, slot);
}

const Engine::Mad& Engine::send_rtu(Slot slot) {
  const Connection& c = connections_[slot];
  wire::Rtu rtu;
  rtu.local_comm_id = c.local_comm_id;
  rtu.remote_comm_id = c.remote_comm_id;
  return send(c.path, c.transaction_id, rtu);
}

void Engine::send_mra(Slot slot) {
  const Connection& c = connections_[slot];
  wire::Mra mra;
  mra.local_comm_id = c.local_comm_id;
  mra.remote_comm_id = c.remote_comm_id;
  mra.message = c.active ? wire::MessageKind::kRep : wire::MessageKind::kReq;
  mra.service_timeout = config_.mra_service_timeout;
  send(c.path, c.transaction_id, mra);
}

void Engine::send_rej(TimeNs now, Slot slot, const RejectParams& params) {
  const Connection& c = connections_[slot];
  wire::Rej rej;
  rej.local_comm_id = c.local_comm_id;
  rej.remote_comm_id = c.remote_comm_id;
  rej.message = c.state == State::kReqReceived   ? wire::MessageKind::kReq
                : c.state == State::kRepReceived ? wire::MessageKind::kRep
                                                 : wire::MessageKind::kOther;
  rej.reason = params.reason;
  copy_into(rej.private_data, params.private_data);
  const Mad& mad = send(c.path, c.transaction_id, rej);
  // It takes back a REP: the peer may count on the connection already, and would for ever.
  if (retransmits(c.state)) withdraw_again(now, slot, mad);
}

void Engine::withdraw_again(TimeNs now, Slot slot, const Mad& mad) {
  const Connection& c = connections_[slot];
  const TimeNs wait = peers_.first_wait(exchanges_[c.exchange].peer);
  say_again(now, {.path = c.path, .mad = mad, .wait = wait, .repetitions = kWithdrawalRepetitions});
}

// The peer knows neither whether we got an ID for it nor which: it finds its half by our GUID and our ID. When
// this is lost, it accepts in vain; those of one moment are more than its receive queue holds when many lose patience.
void Engine::send_rej_timeout(TimeNs now, Slot slot) {
  const Connection& c = connections_[slot];
  wire::Rej rej;
  rej.local_comm_id = c.local_comm_id;
  rej.message = wire::MessageKind::kOther;
  rej.reason = wire::RejReason::kTimeout;
  rej.ari_length = sizeof(c.local_guid);
  store_be64(rej.ari.data(), c.local_guid);
  withdraw_again(now, slot, send(c.path, c.transaction_id, rej));
}

void Engine::reject_request(const Path& path, const wire::MadHeader& header, const wire::Req& req,
                            wire::RejReason reason, const wire::IpAddress* additional) {
  wire::Rej rej;
  rej.remote_comm_id = req.local_comm_id;
  rej.message = wire::MessageKind::kReq;
  rej.reason = reason;
  if (additional != nullptr) {
    rej.ari_length = static_cast<std::uint8_t>(additional->bytes.size());
    copy_into(rej.ari, additional->bytes);
  }
  send(path, header.transaction_id, rej);
}

void Engine::reject_rep(const Path& path, const wire::MadHeader& header, const wire::Rep& rep, wire::RejReason reason) {
  wire::Rej rej;
  rej.local_comm_id = rep.remote_comm_id;
  rej.remote_comm_id = rep.local_comm_id;
  rej.message = wire::MessageKind::kRep;
  rej.reason = reason;
  send(path, header.transaction_id, rej);
}

void Engine::send_dreq(TimeNs now, Slot slot) {
  Connection& c = connections_[slot];
  c.transaction_id = transaction_id_of(c.local_comm_id);
  wire::Dreq dreq;
  dreq.local_comm_id = c.local_comm_id;
  dreq.remote_comm_id = c.remote_comm_id;
  dreq.remote_qpn = c.remote_qpn;
  begin_exchange(now, slot, send(c.path, c.transaction_id, dreq));
  arm(now, slot);
}

const Engine::Mad& Engine::answer_dreq(Slot slot, const wire::MadHeader* header) {
  Connection& c = connections_[slot];
  if (header != nullptr) c.transaction_id = header->transaction_id;
  return send_drep(c.path, c.transaction_id, c.local_comm_id, c.remote_comm_id);
}

const Engine::Mad& Engine::send_drep(const Path& path, std::uint64_t transaction_id, std::uint32_t local_comm_id,
                                     std::uint32_t remote_comm_id) {
  wire::Drep drep;
  drep.local_comm_id = local_comm_id;
  drep.remote_comm_id = remote_comm_id;
  return send(path, transaction_id, drep);
}

void Engine::send_again(Slot slot) {
  const Connection& c = connections_[slot];
  new_packet(c.path).mad = exchanges_[c.exchange].mad;
}

void Engine::keep_sidr_message(Slot slot, const Mad& mad) {
  SidrExchange& e = sidr_.exchanges[slot];
  e.message = sidr_.messages.take();
  sidr_.messages[e.message] = mad;
}

void Engine::send_sidr_again(Slot slot) {
  const SidrExchange& e = sidr_.exchanges[slot];
  new_packet(e.path).mad = sidr_.messages[e.message];
}

void Engine::send_sidr_req(Slot slot, const SidrConnectParams& params) {
  SidrExchange& e = sidr_.exchanges[slot];
  e.transaction_id = transaction_id_of(e.request_id);
  wire::SidrReq req;
  req.request_id = e.request_id;
  req.pkey = wire::kDefaultPkey;
  req.service_id = e.service_id;
  put_private_data(req.private_data, e.path, params.source_port, params.private_data);
  keep_sidr_message(slot, send(e.path, e.transaction_id, req));
}

void Engine::send_sidr_rep(Slot slot, wire::SidrStatus status, const SidrAcceptParams& params) {
  const SidrExchange& e = sidr_.exchanges[slot];
  wire::SidrRep rep;
  rep.request_id = e.request_id;
  rep.status = status;
  rep.qpn = params.qpn;
  rep.service_id = e.service_id;
  rep.qkey = params.qkey;
  copy_into(rep.private_data, params.private_data);
  keep_sidr_message(slot, send(e.path, e.transaction_id, rep));
}

void Engine::refuse_sidr(const Path& path, const wire::MadHeader& header, const wire::SidrReq& request,
                         wire::SidrStatus status) {
  wire::SidrRep rep;
  rep.request_id = request.request_id;
  rep.status = status;
  rep.service_id = request.service_id;
  send(path, header.transaction_id, rep);
}

// Linux: the request comes back as GetResp with status "method or attribute not supported".
void Engine::answer_class_port_info(const Path& path, Bytes mad) {
  constexpr std::uint16_t kStatusUnsupported = 0x000C;
  Packet& packet = new_packet(path);
  std::copy(mad.begin(), mad.end(), packet.mad.begin());
  auto header = *wire::MadHeader::parse(mad);
  header.method = wire::kMadMethodGetResp;
  header.status = kStatusUnsupported;
  header.emit(MutableBytes(packet.mad).first(wire::MadHeader::kSize));
}

}  // namespace ucm::cm
