// From a packet to the connection it belongs to, and to the state machine's input.
#include <algorithm>

#include "cm/engine.h"
#include "cm/limits.h"
#include "cm/timing.h"
#include "wire/headers.h"

namespace ucm::cm {
namespace {

// Of the one partition there is, as a full or a limited member.
bool is_default_pkey(std::uint16_t pkey) { return (pkey | 0x8000) == wire::kDefaultPkey; }

// A reply goes back where the packet came from, with nothing copied from what the peer chose.
Path reply_path(const Path& path) {
  return {.local = path.local, .remote = path.remote, .ifindex = path.ifindex, .traffic_class = 0, .hop_limit = 64};
}

// Linux: no broadcast, multicast or unspecified address; loopback is for packets of this host.
bool is_plausible(const wire::IpAddress& address, const Path& path) {
  constexpr auto kBroadcast = wire::IpAddress::ipv4(0xFFFFFFFF);
  if (address.is_unspecified() || address.is_multicast() || address == kBroadcast) return false;
  return !address.is_loopback() || path.remote.is_loopback();
}

}  // namespace

void Engine::stray(std::uint64_t Counters::* counted) {
  ++(counters_.*counted);
  cause_ = {.of = Cause::Of::kPacket, .counted = counted};
  if (observer_ != nullptr) observer_->on_stray(counted);
}

void Engine::on_packet(TimeNs now, const Path& path, Bytes mad) {
  ++counters_.packets_received;
  if (mad.size() != wire::kMadSize) {
    stray(&Counters::bad_size);
    return;
  }
  const auto header = *wire::MadHeader::parse(mad);
  if (header.base_version != wire::kMadBaseVersion || header.management_class != wire::kMadClassCm ||
      header.class_version != wire::kMadClassVersionCm) {
    stray(&Counters::bad_header);
    return;
  }
  const Path reply = reply_path(path);
  if (header.method == wire::kMadMethodGet && header.attribute == wire::Attribute::kClassPortInfo) {
    stray(&Counters::class_port_info_answered);
    return answer_class_port_info(reply, mad);
  }
  if (header.method != wire::kMadMethodSend) {
    stray(&Counters::bad_header);
    return;
  }
  // Every payload of this size parses.
  const Bytes payload = mad.subspan(wire::MadHeader::kSize);
  switch (header.attribute) {
    case wire::Attribute::kReq:
      return on_req(now, reply, header, *wire::Req::parse(payload));
    case wire::Attribute::kMra:
      return on_mra(now, reply, *wire::Mra::parse(payload));
    case wire::Attribute::kRej:
      return on_rej(now, reply, *wire::Rej::parse(payload));
    case wire::Attribute::kRep:
      return on_rep(now, reply, header, *wire::Rep::parse(payload));
    case wire::Attribute::kRtu:
      return on_rtu(now, reply, header, *wire::Rtu::parse(payload));
    case wire::Attribute::kDreq:
      return on_dreq(now, reply, header, *wire::Dreq::parse(payload));
    case wire::Attribute::kDrep:
      return on_drep(now, reply, header, *wire::Drep::parse(payload));
    case wire::Attribute::kSidrReq:
      return on_sidr_req(now, reply, header, *wire::SidrReq::parse(payload));
    case wire::Attribute::kSidrRep:
      return on_sidr_rep(now, reply, header, *wire::SidrRep::parse(payload));
    case wire::Attribute::kLap:
    case wire::Attribute::kApr:
      stray(&Counters::unsupported);
      return;
    case wire::Attribute::kClassPortInfo:
      break;
  }
  stray(&Counters::unknown_attribute);
}

// --------------------------------------------------------------------------------------------------------------------
// Requests.

// The order of the checks decides which reason the peer hears.  // Linux: same
void Engine::on_req(TimeNs now, const Path& path, const wire::MadHeader& header, const wire::Req& req) {
  if (req.local_comm_id == 0) {
    stray(&Counters::bad_message);
    return;
  }
  const RemoteHashes hashes{.id = remote_hash(path, req.local_ca_guid, req.local_comm_id),
                            .qp = remote_hash(path, req.local_ca_guid, req.local_qpn)};
  if (const Slot slot = find_remote_id(hashes.id, path, req.local_ca_guid, req.local_comm_id);
      slot != Connection::kNone) {
    if (role_is(slot, Role::kPassive)) step(slot, {.now = now, .input = Input::kReq, .header = &header});
    return;
  }
  if (const Slot slot = find_remote_qp(hashes.qp, path, req.local_ca_guid, req.local_qpn); slot != Connection::kNone) {
    stray(&Counters::rejected_stale);
    reject_request(path, header, req, wire::RejReason::kStaleConnection);
    step(slot, {.now = now, .input = Input::kPeerForgot});
    return;
  }
  if (!listeners_.has_service(req.service_id)) {
    stray(&Counters::rejected_no_listener);
    return reject_request(path, header, req, wire::RejReason::kInvalidServiceId);
  }
  if (!path_is_usable(path, header, req)) return;
  const auto addresses = *wire::IpCmHeader::parse(req.private_data);
  const bool known_transport =
      req.transport_service != wire::TransportService::kExtended || req.extended_transport_type == wire::kExtendedXrc;
  const Listeners::Index listener = listener_for(path, req.service_id, req.transport_service, addresses);
  if (!known_transport || listener == Listeners::kNone) {
    stray(&Counters::rejected_not_for_us);
    return reject_request(path, header, req, wire::RejReason::kConsumerDefined);
  }
  const Listener& l = listeners_[listener];
  if (!requests_.has_room(l.requests, listener, l.params.backlog, path, header)) {
    stray(&Counters::backlog_full);
    return;
  }
  if (connections_.in_use() >= config_.connections_max) {
    stray(&Counters::connections_full);
    return;
  }
  queue_request(now, path, header, req, hashes, addresses, listener);
}

bool Engine::path_is_usable(const Path& path, const wire::MadHeader& header, const wire::Req& req) {
  if (req.primary.remote_gid != path.local || !is_default_pkey(req.pkey)) {
    stray(&Counters::rejected_gid);
    reject_request(path, header, req, wire::RejReason::kInvalidGid, &path.local);
    return false;
  }
  if (req.alternate.local_lid != 0) {
    stray(&Counters::rejected_alternate_path);
    reject_request(path, header, req, wire::RejReason::kInvalidAlternateGid, &req.primary.remote_gid);
    return false;
  }
  if (req.path_mtu < 1 || req.path_mtu > 5) {
    stray(&Counters::rejected_mtu);
    reject_request(path, header, req, wire::RejReason::kInvalidMtu);
    return false;
  }
  return true;
}

Listeners::Index Engine::listener_for(const Path& path, std::uint64_t service_id,
                                      std::optional<wire::TransportService> transport,
                                      const wire::IpCmHeader& addresses) const {
  const bool valid = addresses.version == 0 && (addresses.ip_version == 4 || addresses.ip_version == 6) &&
                     is_plausible(addresses.source, path) && is_plausible(addresses.destination, path);
  if (!valid) return Listeners::kNone;
  const Listeners::Index listener = listeners_.match(service_id, addresses, path);
  if (listener == Listeners::kNone || listeners_[listener].params.transport != transport) return Listeners::kNone;
  return listener;
}

void Engine::queue_request(TimeNs now, const Path& path, const wire::MadHeader& header, const wire::Req& req,
                           const RemoteHashes& hashes, const wire::IpCmHeader& addresses, Listeners::Index listener) {
  ++counters_.requests;
  Path answer = path;
  answer.traffic_class = req.primary.traffic_class;
  const Slot slot = create_connection(answer);
  Connection& c = connections_[slot];
  c.state = State::kReqQueued;
  c.transport = req.transport_service;
  c.transaction_id = header.transaction_id;
  c.remote_comm_id = req.local_comm_id;
  c.peer_is_ucm = from_ucm(header);
  c.remote_guid = req.local_ca_guid;
  c.remote_qpn = req.local_qpn;
  c.sq_psn = req.starting_psn;
  c.flow_label = req.primary.flow_label;
  c.path_mtu = req.path_mtu;
  c.responder_resources = req.initiator_depth;
  c.initiator_depth = req.responder_resources;
  c.retry_count = req.retry_count;
  c.rnr_retry_count = req.rnr_retry_count;
  c.ack_timeout = std::max<std::uint8_t>(req.primary.local_ack_timeout, 1);
  c.retry_interval_ms = milliseconds(std::min(req.local_cm_response_timeout, kPeerTimeoutExponentMax));
  c.retries_max = req.max_cm_retries;
  know_peer(slot, hashes);
  if (observer_ != nullptr) observer_->on_begin(slot, c);
  c.request = requests_.add(listeners_[listener].requests, listener, slot, path);
  Requests::Request& request = requests_[c.request];
  request.params = {.qpn = req.local_qpn,
                    .srq = req.srq,
                    .responder_resources = req.responder_resources,
                    .initiator_depth = req.initiator_depth,
                    .flow_control = req.end_to_end_flow_control,
                    .retry_count = req.retry_count,
                    .rnr_retry_count = req.rnr_retry_count,
                    .vendor_id = req.vendor_id,
                    .ece_options = header.attribute_modifier};
  request.addresses = addresses;
  std::ranges::copy(Bytes(req.private_data).subspan(wire::IpCmHeader::kSize), request.private_data.begin());
  if (request.delivered) step(slot, {.now = now, .input = Input::kTurn});
}

// The same peer asking the same again is the repetition, whatever else the request says.
void Engine::on_sidr_req(TimeNs now, const Path& path, const wire::MadHeader& header, const wire::SidrReq& req) {
  if (const Slot slot = find_sidr_request(path, req); slot != SidrExchange::kNone) {
    (void)step(slot, {.now = now, .input = SidrInput::kReq});
    return;
  }
  if (!listeners_.has_service(req.service_id)) {
    stray(&Counters::sidr_no_listener);
    return refuse_sidr(path, header, req, wire::SidrStatus::kUnsupportedServiceId);
  }
  const auto addresses = *wire::IpCmHeader::parse(req.private_data);
  const Listeners::Index listener = listener_for(path, req.service_id, std::nullopt, addresses);
  if (listener == Listeners::kNone) {  // whatever P_Key it names  // Linux: same
    stray(&Counters::sidr_not_for_us);
    return refuse_sidr(path, header, req, wire::SidrStatus::kRejected);
  }
  if (listeners_[listener].untaken_sidr >= listeners_[listener].params.backlog ||
      sidr_.exchanges.in_use() >= config_.connections_max) {
    stray(&Counters::sidr_full);
    return refuse_sidr(path, header, req, wire::SidrStatus::kRejected);
  }
  deliver_sidr_request(path, header, req, addresses, listener);
}

// --------------------------------------------------------------------------------------------------------------------
// Messages of a connection.

// By both comm IDs, the remote one 0 while it is not known, and only from the peer's address: a guessed ID is no use
// to a third party. Counts what does not fit.
Engine::Slot Engine::find_connection(const Path& path, std::uint32_t local_comm_id, std::uint32_t remote_comm_id) {
  const Slot slot = by_comm_id_.find(
      local_comm_id, [&](Slot candidate) { return connections_[candidate].remote_comm_id == remote_comm_id; });
  if (slot == SlotTable::kNone) {
    stray(&Counters::unknown_connection);
    return Connection::kNone;
  }
  if (!same_peer(connections_[slot].path, path)) {
    stray(&Counters::wrong_source);
    return Connection::kNone;
  }
  return slot;
}

bool Engine::role_is(Slot slot, Role role) {
  if (connections_[slot].active == (role == Role::kActive)) return true;
  stray(&Counters::wrong_role);
  return false;
}

// An ID that lives elsewhere is nobody else's affair: nothing is to be learnt of it.
bool Engine::awaits_or_has(const Path& path, const wire::Rep& rep) const {
  const Slot slot = by_comm_id_.find(rep.remote_comm_id, [](Slot) { return true; });
  if (slot == SlotTable::kNone) return false;
  const Connection& c = connections_[slot];
  return !c.active || !same_peer(c.path, path) || c.remote_comm_id == 0 || c.remote_comm_id == rep.local_comm_id;
}

void Engine::on_rep(TimeNs now, const Path& path, const wire::MadHeader& header, const wire::Rep& rep) {
  if (rep.local_comm_id == 0) {
    stray(&Counters::bad_message);
    return;
  }
  // Linux may take a repeated REQ for a new one when the first one's connection is over, and would repeat this REP for
  // a minute.
  if (!from_ucm(header) && !awaits_or_has(path, rep)) {
    stray(&Counters::rejected_unknown_rep);
    return reject_rep(path, header, rep, wire::RejReason::kInvalidCommId);
  }
  RemoteHashes hashes{.id = remote_hash(path, rep.local_ca_guid, rep.local_comm_id)};
  const bool repeated = find_remote_id(hashes.id, path, rep.local_ca_guid, rep.local_comm_id) != Connection::kNone;
  const Slot slot = find_connection(path, rep.remote_comm_id, repeated ? rep.local_comm_id : 0);
  if (slot == Connection::kNone || !role_is(slot, Role::kActive)) return;
  learn_from_answer(now, slot, header, State::kReqSent, State::kMraReqReceived);
  const std::uint32_t qpn = qpn_of(connections_[slot], rep);
  hashes.qp = remote_hash(path, rep.local_ca_guid, qpn);
  Input input = Input::kRep;
  const State state = connections_[slot].state;
  const bool awaited = state == State::kReqSent || state == State::kMraReqReceived;
  const Slot holder = awaited ? find_remote_qp(hashes.qp, path, rep.local_ca_guid, qpn) : Connection::kNone;
  if (holder != Connection::kNone) input = Input::kRepStale;
  step(slot, {.now = now, .input = input, .header = &header, .rep = &rep, .rep_hashes = hashes});
  if (holder != Connection::kNone) step(holder, {.now = now, .input = Input::kPeerForgot});
}

void Engine::on_rtu(TimeNs now, const Path& path, const wire::MadHeader& header, const wire::Rtu& rtu) {
  const Slot slot = find_connection(path, rtu.remote_comm_id, rtu.local_comm_id);
  if (slot == Connection::kNone || !role_is(slot, Role::kPassive)) return;
  learn_from_answer(now, slot, header, State::kRepSent, State::kMraRepReceived);
  step(slot, {.now = now, .input = Input::kRtu});
}

// MRA of a REQ comes before its sender's comm ID is known; MRA of a REP after.
void Engine::on_mra(TimeNs now, const Path& path, const wire::Mra& mra) {
  const bool of_req = mra.message == wire::MessageKind::kReq;
  const Slot slot = find_connection(path, mra.remote_comm_id, of_req ? 0 : mra.local_comm_id);
  if (slot == Connection::kNone || !role_is(slot, of_req ? Role::kActive : Role::kPassive)) return;
  step(slot, {.now = now, .input = Input::kMra, .service_timeout = mra.service_timeout});
}

void Engine::on_rej(TimeNs now, const Path& path, const wire::Rej& rej) {
  Slot slot = Connection::kNone;
  if (rej.reason == wire::RejReason::kTimeout && rej.remote_comm_id == 0) {
    const std::uint64_t guid = load_be64(rej.ari.data());
    slot = find_remote_id(remote_hash(path, guid, rej.local_comm_id), path, guid, rej.local_comm_id);
    if (slot == Connection::kNone) stray(&Counters::unknown_connection);
  } else {
    // Linux: a REJ of a REQ has any local comm ID. One of a REP may overtake the REP, and nothing else would tell.
    const bool peer_is_known = by_comm_id_.find(rej.remote_comm_id, [&](Slot candidate) {
      return connections_[candidate].remote_comm_id != 0;
    }) != SlotTable::kNone;
    const bool by_both = peer_is_known && rej.message != wire::MessageKind::kReq;
    slot = find_connection(path, rej.remote_comm_id, by_both ? rej.local_comm_id : 0);
  }
  if (slot == Connection::kNone) return;
  const Input input = rej.reason == wire::RejReason::kStaleConnection ? Input::kRejStale : Input::kRej;
  step(slot, {.now = now, .input = input, .rej = &rej});
}

void Engine::on_dreq(TimeNs now, const Path& path, const wire::MadHeader& header, const wire::Dreq& dreq) {
  const Slot slot = by_comm_id_.find(dreq.remote_comm_id, [&](Slot candidate) {
    return connections_[candidate].remote_comm_id == dreq.local_comm_id;
  });
  // A connection that is gone here is what the peer wants: say so.
  if (slot == SlotTable::kNone) {
    stray(&Counters::unknown_dreqs_answered);
    send_drep(path, header.transaction_id, dreq.remote_comm_id, dreq.local_comm_id);
    return;
  }
  const Connection& c = connections_[slot];
  if (!same_peer(c.path, path)) {
    stray(&Counters::wrong_source);
    return;
  }
  if (dreq.remote_qpn != c.local_qpn) {
    stray(&Counters::wrong_qpn);
    return;
  }
  step(slot, {.now = now, .input = Input::kDreq, .header = &header});
}

void Engine::on_drep(TimeNs now, const Path& path, const wire::MadHeader& header, const wire::Drep& drep) {
  const Slot slot = find_connection(path, drep.remote_comm_id, drep.local_comm_id);
  if (slot == Connection::kNone) return;
  learn_from_answer(now, slot, header, State::kDreqSent, State::kOrphaned);
  step(slot, {.now = now, .input = Input::kDrep});
}

void Engine::on_sidr_rep(TimeNs now, const Path& path, const wire::MadHeader& header, const wire::SidrRep& rep) {
  const Slot slot = find_sidr_exchange(rep.request_id);
  if (slot == SlotTable::kNone) {
    stray(&Counters::unknown_connection);
    return;
  }
  const SidrExchange& e = sidr_.exchanges[slot];
  if (!same_peer(e.path, path)) {
    stray(&Counters::wrong_source);
    return;
  }
  if (e.state == SidrState::kReqSent) {
    peers_.answered(peers_.find_or_add(e.path),
                    {.elapsed = now - e.sent_at, .ambiguous = e.repetitions > 0, .is_ucm = from_ucm(header)});
  }
  const bool good_qkey = rep.qkey != 0 && (e.qkey == 0 || rep.qkey == e.qkey);
  const SidrInput input = rep.status != wire::SidrStatus::kSuccess ? SidrInput::kRepRefused
                          : good_qkey                              ? SidrInput::kRep
                                                                   : SidrInput::kRepBadQkey;
  (void)step(slot, {.now = now, .input = input, .rep = &rep});
}

}  // namespace ucm::cm
