#include "wire/cm_messages.h"

#include "wire/fields.h"

namespace ucm::wire {

// A path as REQ carries it, primary and alternate alike; 44 bytes from `base`. IBTA 12.6.5
constexpr void req_path(auto& f, std::size_t base, auto& path) {
  f.word(base + 0, path.local_lid);
  f.word(base + 2, path.remote_lid);
  f.gid(base + 4, path.local_gid);
  f.gid(base + 20, path.remote_gid);
  f.upper20(base + 36, path.flow_label);
  f.bits(base + 39, 5, 0, path.packet_rate);
  f.word(base + 40, path.traffic_class);
  f.word(base + 41, path.hop_limit);
  f.bits(base + 42, 7, 4, path.sl);
  f.bit(base + 42, 3, path.subnet_local);
  f.bits(base + 43, 7, 3, path.local_ack_timeout);
}

constexpr void layout(auto& f, Is<Req> auto& m) {
  f.word(0, m.local_comm_id);
  f.word24(5, m.vendor_id);
  f.word(8, m.service_id);
  f.word(16, m.local_ca_guid);
  f.word(28, m.local_qkey);
  f.word24(32, m.local_qpn);
  f.word(35, m.responder_resources);
  f.word24(36, m.local_eecn);
  f.word(39, m.initiator_depth);
  f.word24(40, m.remote_eecn);
  f.bits(43, 7, 3, m.remote_cm_response_timeout);
  f.bits(43, 2, 1, m.transport_service);
  f.bit(43, 0, m.end_to_end_flow_control);
  f.word24(44, m.starting_psn);
  f.bits(47, 7, 3, m.local_cm_response_timeout);
  f.bits(47, 2, 0, m.retry_count);
  f.word(48, m.pkey);
  f.bits(50, 7, 4, m.path_mtu);
  f.bit(50, 3, m.rdc_exists);
  f.bits(50, 2, 0, m.rnr_retry_count);
  f.bits(51, 7, 4, m.max_cm_retries);
  f.bit(51, 3, m.srq);
  f.bits(51, 2, 0, m.extended_transport_type);
  req_path(f, 52, m.primary);
  req_path(f, 96, m.alternate);
  f.octets(140, m.private_data);
}

constexpr void layout(auto& f, Is<Rep> auto& m) {
  f.word(0, m.local_comm_id);
  f.word(4, m.remote_comm_id);
  f.word(8, m.local_qkey);
  f.word24(12, m.local_qpn);
  f.split24(15, 19, 23, m.vendor_id);
  f.word24(16, m.local_eecn);
  f.word24(20, m.starting_psn);
  f.word(24, m.responder_resources);
  f.word(25, m.initiator_depth);
  f.bits(26, 7, 3, m.target_ack_delay);
  f.bits(26, 2, 1, m.failover_accepted);
  f.bit(26, 0, m.end_to_end_flow_control);
  f.bits(27, 7, 5, m.rnr_retry_count);
  f.bit(27, 4, m.srq);
  f.word(28, m.local_ca_guid);
  f.octets(36, m.private_data);
}

constexpr void layout(auto& f, Is<Rtu> auto& m) {
  f.word(0, m.local_comm_id);
  f.word(4, m.remote_comm_id);
  f.octets(8, m.private_data);
}

constexpr void layout(auto& f, Is<Mra> auto& m) {
  f.word(0, m.local_comm_id);
  f.word(4, m.remote_comm_id);
  f.bits(8, 7, 6, m.message);
  f.bits(9, 7, 3, m.service_timeout);
  f.octets(10, m.private_data);
}

constexpr void layout(auto& f, Is<Rej> auto& m) {
  f.word(0, m.local_comm_id);
  f.word(4, m.remote_comm_id);
  f.bits(8, 7, 6, m.message);
  f.bits(9, 7, 1, m.ari_length);
  f.word(10, m.reason);
  f.octets(12, m.ari);
  f.octets(84, m.private_data);
}

constexpr void layout(auto& f, Is<Dreq> auto& m) {
  f.word(0, m.local_comm_id);
  f.word(4, m.remote_comm_id);
  f.word24(8, m.remote_qpn);
  f.octets(12, m.private_data);
}

constexpr void layout(auto& f, Is<Drep> auto& m) {
  f.word(0, m.local_comm_id);
  f.word(4, m.remote_comm_id);
  f.octets(8, m.private_data);
}

constexpr void layout(auto& f, Is<SidrReq> auto& m) {
  f.word(0, m.request_id);
  f.word(4, m.pkey);
  f.word(8, m.service_id);
  f.octets(16, m.private_data);
}

constexpr void layout(auto& f, Is<SidrRep> auto& m) {
  f.word(0, m.request_id);
  f.word(4, m.status);
  f.word(5, m.info_length);
  f.split24(6, 7, 11, m.vendor_id);
  f.word24(8, m.qpn);
  f.word(12, m.service_id);
  f.word(20, m.qkey);
  f.octets(24, m.info);
  f.octets(96, m.private_data);
}

constexpr void layout(auto& f, Is<Lap> auto& m) {
  f.word(0, m.local_comm_id);
  f.word(4, m.remote_comm_id);
  f.word24(12, m.remote_qpn);
  f.bits(15, 7, 3, m.remote_cm_response_timeout);
  f.word(20, m.alternate.local_lid);
  f.word(22, m.alternate.remote_lid);
  f.gid(24, m.alternate.local_gid);
  f.gid(40, m.alternate.remote_gid);
  f.upper20(56, m.alternate.flow_label);
  f.word(59, m.alternate.traffic_class);
  f.word(60, m.alternate.hop_limit);
  f.bits(61, 5, 0, m.alternate.packet_rate);
  f.bits(62, 7, 4, m.alternate.sl);
  f.bit(62, 3, m.alternate.subnet_local);
  f.bits(63, 7, 3, m.alternate.local_ack_timeout);
  f.octets(64, m.private_data);
}

constexpr void layout(auto& f, Is<Apr> auto& m) {
  f.word(0, m.local_comm_id);
  f.word(4, m.remote_comm_id);
  f.word(8, m.info_length);
  f.word(9, m.status);
  f.octets(12, m.info);
  f.octets(84, m.private_data);
}

namespace {

template <class Message>
std::optional<Message> parse_message(Bytes payload) {
  if (payload.size() != kMadPayloadSize) return std::nullopt;
  return parse_fields<Message, kMadPayloadSize>(payload);
}

template <class Message>
void emit_message(const Message& message, MutableBytes payload) {
  UCM_CHECK(payload.size() == kMadPayloadSize);
  emit_fields<Message, kMadPayloadSize>(message, payload);
}

}  // namespace

std::optional<Req> Req::parse(Bytes payload) { return parse_message<Req>(payload); }
void Req::emit(MutableBytes payload) const { emit_message(*this, payload); }

std::optional<Rep> Rep::parse(Bytes payload) { return parse_message<Rep>(payload); }
void Rep::emit(MutableBytes payload) const { emit_message(*this, payload); }

std::optional<Rtu> Rtu::parse(Bytes payload) { return parse_message<Rtu>(payload); }
void Rtu::emit(MutableBytes payload) const { emit_message(*this, payload); }

std::optional<Mra> Mra::parse(Bytes payload) { return parse_message<Mra>(payload); }
void Mra::emit(MutableBytes payload) const { emit_message(*this, payload); }

std::optional<Rej> Rej::parse(Bytes payload) { return parse_message<Rej>(payload); }
void Rej::emit(MutableBytes payload) const { emit_message(*this, payload); }

std::optional<Dreq> Dreq::parse(Bytes payload) { return parse_message<Dreq>(payload); }
void Dreq::emit(MutableBytes payload) const { emit_message(*this, payload); }

std::optional<Drep> Drep::parse(Bytes payload) { return parse_message<Drep>(payload); }
void Drep::emit(MutableBytes payload) const { emit_message(*this, payload); }

std::optional<SidrReq> SidrReq::parse(Bytes payload) { return parse_message<SidrReq>(payload); }
void SidrReq::emit(MutableBytes payload) const { emit_message(*this, payload); }

std::optional<SidrRep> SidrRep::parse(Bytes payload) { return parse_message<SidrRep>(payload); }
void SidrRep::emit(MutableBytes payload) const { emit_message(*this, payload); }

std::optional<Lap> Lap::parse(Bytes payload) { return parse_message<Lap>(payload); }
void Lap::emit(MutableBytes payload) const { emit_message(*this, payload); }

std::optional<Apr> Apr::parse(Bytes payload) { return parse_message<Apr>(payload); }
void Apr::emit(MutableBytes payload) const { emit_message(*this, payload); }

}  // namespace ucm::wire
