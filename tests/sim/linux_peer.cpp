#include "sim/linux_peer.h"

#include <algorithm>

#include "base/check.h"
#include "wire/headers.h"

namespace ucm::sim {
namespace {

using wire::MessageKind;
using wire::RejReason;

constexpr std::uint8_t kCmResponseTimeout = 20;
constexpr std::uint8_t kMaxCmRetries = 15;
constexpr std::uint8_t kMraServiceTimeout = 24;
constexpr std::uint64_t kAgent = 4;  // upper half of the transaction IDs
constexpr std::uint16_t kFullPkey = 0xFFFF;
constexpr std::int32_t kTimedOut = -110;

// Exponents become milliseconds coarsely.
std::uint32_t milliseconds(std::uint8_t exponent) { return exponent > 8 ? 1u << (exponent - 8) : 1u; }

std::uint8_t ack_timeout(std::uint8_t ack_delay, std::uint8_t packet_lifetime) {
  int sum = packet_lifetime + 1;
  if (sum >= ack_delay) {
    sum += ack_delay >= sum - 1;
  } else {
    sum = ack_delay + (sum >= ack_delay - 1);
  }
  return static_cast<std::uint8_t>(std::min(sum, 31));
}

std::uint32_t swapped(std::uint32_t v) { return v >> 24 | (v >> 8 & 0xFF00) | (v << 8 & 0xFF0000) | v << 24; }

template <class Message>
Message parsed(Bytes mad) {
  return *Message::parse(mad.subspan(wire::MadHeader::kSize));
}

}  // namespace

LinuxPeer::LinuxPeer(const LinuxConfig& config) : config_(config), random_(config.seed) {
  id_counter_ = random_.next_u32();
  id_random_ = random_.next_u32();
}

// --------------------------------------------------------------------------------------------------------------------
// IDs and tables.

LinuxPeer::Slot LinuxPeer::slot_of(Handle connection) const {
  const auto slot = static_cast<Slot>(connection);
  if (slot >= ids_.size() || ids_[slot].state == LinuxState::kFree || handle_of(slot) != connection) return kNone;
  return slot;
}

LinuxState LinuxPeer::state(Handle connection) const {
  const Slot slot = slot_of(connection);
  return slot == kNone ? LinuxState::kFree : ids_[slot].state;
}

LinuxPeer::Slot LinuxPeer::create(const wire::IpAddress& remote) {
  Slot slot = static_cast<Slot>(ids_.size());
  if (free_.empty()) {
    ids_.emplace_back();
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  Id& id = ids_[slot];
  const std::uint32_t generation = id.generation;
  id = Id{};
  id.generation = generation;
  id.remote = remote;
  // A counter, its lowest byte first on the wire, XOR a number chosen at boot.
  do {
    id.local_id = swapped(id_counter_++ ^ id_random_);
  } while (id.local_id == 0 || by_local_id_.contains(id.local_id));
  id.rq_psn = random_.next_u32() & wire::kMask24;
  by_local_id_[id.local_id] = slot;
  return slot;
}

void LinuxPeer::free(Slot slot) {
  Id& id = ids_[slot];
  leave_tables(slot);
  leave_backlog(id);
  cancel_mad(slot);
  drop_events(slot);
  by_local_id_.erase(id.local_id);
  id.state = LinuxState::kFree;
  ++id.generation;
  free_.push_back(slot);
}

LinuxPeer::Slot LinuxPeer::acquire(std::uint32_t local_id, std::uint32_t remote_id) const {
  const auto found = by_local_id_.find(local_id);
  return found != by_local_id_.end() && ids_[found->second].remote_id == remote_id ? found->second : kNone;
}

LinuxPeer::Slot LinuxPeer::find(const RemoteTable& table, std::uint64_t guid, std::uint32_t number) {
  const auto found = table.find({guid, number});
  return found == table.end() ? kNone : found->second;
}

void LinuxPeer::leave_tables(Slot slot) {
  Id& id = ids_[slot];
  if (!id.in_tables) return;
  id.in_tables = false;
  by_remote_id_.erase({id.remote_guid, id.remote_id});
  by_remote_qp_.erase({id.remote_guid, id.remote_qpn});
}

void LinuxPeer::leave_backlog(Id& id) {
  if (id.listener == kNone) return;
  --listeners_[id.listener].untaken;
  id.listener = kNone;
}

// --------------------------------------------------------------------------------------------------------------------
// Time.

// The timer wheel at HZ 250: a level has 64 buckets and 8 times the granularity of the one below; a timer goes off when
// the bucket after its time comes round.
TimeNs LinuxPeer::expiry(TimeNs now, std::uint32_t ms) const {
  if (!config_.timer_wheel) return now + TimeNs{ms} * kNanosecondsPerMillisecond;
  constexpr TimeNs kJiffy = 4 * kNanosecondsPerMillisecond;
  constexpr std::uint64_t kBuckets = 64;
  const auto start = static_cast<std::uint64_t>(now / kJiffy);
  const std::uint64_t delta = (ms + 3) / 4;
  std::uint64_t granularity = 1;
  while (delta >= kBuckets * granularity) granularity *= 8;
  const std::uint64_t end = (start + delta + granularity) / granularity * granularity;
  return static_cast<TimeNs>(end) * kJiffy;
}

void LinuxPeer::start_mad(TimeNs now, Slot slot, const Mad& mad, std::uint32_t interval_ms, std::uint8_t retries) {
  Id& id = ids_[slot];
  id.mad = mad;
  id.interval_ms = interval_ms;
  id.retries_left = retries;
  send(id.remote, mad);
  timers_.set(slot, expiry(now, interval_ms));
}

void LinuxPeer::enter_timewait(TimeNs now, Slot slot) {
  leave_tables(slot);
  ids_[slot].state = LinuxState::kTimewait;
  timers_.set(slot, expiry(now, milliseconds(ids_[slot].av_timeout)));
}

void LinuxPeer::reset_to_idle(Slot slot) {
  leave_tables(slot);
  cancel_mad(slot);
  ids_[slot].state = LinuxState::kIdle;
}

void LinuxPeer::on_deadline(TimeNs now) {
  while (timers_.next() <= now) {
    const Slot slot = timers_.pop();
    Id& id = ids_[slot];
    if (id.state == LinuxState::kTimewait) {
      id.state = LinuxState::kIdle;
      if (id.disconnected) report(slot, EventType::kTimewaitExit);
    } else if (id.retries_left == 0) {
      on_retries_exhausted(now, slot);
    } else {
      --id.retries_left;
      send(id.remote, id.mad);
      timers_.set(slot, expiry(now, id.interval_ms));
    }
  }
}

void LinuxPeer::on_retries_exhausted(TimeNs now, Slot slot) {
  if (ids_[slot].state == LinuxState::kDreqSent) {
    enter_timewait(now, slot);
    return report(slot, EventType::kDisconnected, kTimedOut);
  }
  reset_to_idle(slot);
  report(slot, EventType::kUnreachable, kTimedOut);
}

// --------------------------------------------------------------------------------------------------------------------
// Events. rdma_cm passes them on while its ID is in CONNECT; of DISCONNECT it only reports the end of timewait.

void LinuxPeer::report(Slot slot, EventType type, std::int32_t status) {
  Id& id = ids_[slot];
  if (id.deaf || id.disconnected != (type == EventType::kTimewaitExit)) return;
  if (type == EventType::kDisconnected) id.disconnected = true;
  events_.push({.type = type,
                .connection = handle_of(slot),
                .user = id.user,
                .status = status,
                .peer_qpn = id.remote_qpn,
                .peer_note = 0});
}

void LinuxPeer::drop_events(Slot slot) {
  const Handle handle = handle_of(slot);
  events_.remove_if([&](const Event& event) { return event.connection == handle; });
}

bool LinuxPeer::poll_event(Event& event) {
  if (events_.empty()) return false;
  event = events_.front();
  events_.pop_front();
  return true;
}

bool LinuxPeer::poll_packet(Packet& packet) {
  if (packets_.empty()) return false;
  packet = packets_.front();
  packets_.pop_front();
  return true;
}

Usage LinuxPeer::usage() const {
  std::size_t untaken = 0;
  for (const Listener& listener : listeners_) untaken += listener.untaken;
  return {.connections = ids_.size() - free_.size(),
          .listeners = static_cast<std::size_t>(
              std::count_if(listeners_.begin(), listeners_.end(), [](const Listener& l) { return l.open; })),
          .comm_ids = by_local_id_.size(),
          .remote_ids = by_remote_id_.size(),
          .remote_qps = by_remote_qp_.size(),
          .messages = 0,  // inside of the IDs
          .requests = untaken,
          .timers = timers_.size()};
}

// --------------------------------------------------------------------------------------------------------------------
// The program's calls.

Handle LinuxPeer::listen(std::uint16_t port, std::uint32_t backlog, std::uint64_t user) {
  std::size_t index = 0;
  while (index < listeners_.size() && listeners_[index].open) ++index;
  if (index == listeners_.size()) listeners_.emplace_back();
  Listener& listener = listeners_[index];
  listener = {.open = true,
              .generation = listener.generation + 1,
              .port = port,
              .backlog = backlog,
              .untaken = 0,
              .user = user};
  return Handle{listener.generation} << 32 | index;
}

void LinuxPeer::close_listener(TimeNs now, Handle listener) {
  const auto index = static_cast<Slot>(listener);
  if (index >= listeners_.size() || !listeners_[index].open || listeners_[index].generation != listener >> 32) return;
  for (Slot slot = 0; slot < ids_.size(); ++slot) {
    if (ids_[slot].state != LinuxState::kFree && ids_[slot].listener == index) destroy(now, handle_of(slot));
  }
  listeners_[index].open = false;
}

Handle LinuxPeer::connect(TimeNs now, const ConnectRequest& request) {
  const Slot slot = create(request.remote);
  Id& id = ids_[slot];
  id.active = true;
  id.state = LinuxState::kReqSent;
  id.user = request.user;
  id.local_qpn = request.qpn;
  id.tid = kAgent << 32 | swapped(id.local_id);
  id.av_timeout = static_cast<std::uint8_t>(config_.packet_lifetime + 1);
  id.retries_max = kMaxCmRetries;
  id.timeout_ms = 2 * milliseconds(config_.packet_lifetime) + milliseconds(kCmResponseTimeout);

  wire::Req req;
  req.local_comm_id = id.local_id;
  req.service_id = wire::ip_service_id(wire::PortSpace::kTcp, request.port);
  req.local_ca_guid = config_.guid;
  req.local_qpn = request.qpn;
  req.responder_resources = 1;
  req.initiator_depth = 1;
  req.remote_cm_response_timeout = kCmResponseTimeout;
  req.starting_psn = id.rq_psn;
  req.local_cm_response_timeout = kCmResponseTimeout;
  req.retry_count = 7;
  req.pkey = kFullPkey;
  req.path_mtu = 3;  // 1024: what fits 1500 bytes
  req.rnr_retry_count = 7;
  req.max_cm_retries = kMaxCmRetries;
  req.primary.local_lid = 0xFFFF;
  req.primary.remote_lid = 0xFFFF;
  req.primary.local_gid = config_.address;
  req.primary.remote_gid = request.remote;
  req.primary.flow_label = (request.source_port * 31u + request.port) & 0xFFFFF;
  req.primary.hop_limit = 64;
  req.primary.local_ack_timeout = ack_timeout(config_.ca_ack_delay, config_.packet_lifetime);
  wire::IpCmHeader header;
  header.ip_version = config_.address.is_ipv4() ? 4 : 6;
  header.source_port = request.source_port;
  header.source = config_.address;
  header.destination = request.remote;
  header.emit(req.private_data);
  store_be64(&req.private_data[wire::IpCmHeader::kSize], request.note);
  start_mad(now, slot, mad_of(id.tid, req), id.timeout_ms, kMaxCmRetries);
  return handle_of(slot);
}

void LinuxPeer::request_taken(TimeNs, Handle connection) {
  if (const Slot slot = slot_of(connection); slot != kNone) leave_backlog(ids_[slot]);
}

void LinuxPeer::set_user(Handle connection, std::uint64_t user) {
  if (const Slot slot = slot_of(connection); slot != kNone) ids_[slot].user = user;
}

bool LinuxPeer::accept(TimeNs now, Handle connection, std::uint32_t qpn, std::uint64_t note) {
  const Slot slot = slot_of(connection);
  if (slot == kNone || ids_[slot].state != LinuxState::kMraReqSent) return false;
  Id& id = ids_[slot];
  id.deaf = false;
  id.local_qpn = qpn;
  id.state = LinuxState::kRepSent;
  wire::Rep rep;
  rep.local_comm_id = id.local_id;
  rep.remote_comm_id = id.remote_id;
  rep.local_qpn = qpn;
  rep.starting_psn = id.rq_psn;
  rep.responder_resources = 1;
  rep.initiator_depth = 1;
  rep.target_ack_delay = config_.ca_ack_delay;
  rep.rnr_retry_count = 7;
  rep.local_ca_guid = config_.guid;
  store_be64(rep.private_data.data(), note);
  start_mad(now, slot, mad_of(id.tid, rep), id.timeout_ms, id.retries_max);
  return true;
}

bool LinuxPeer::reject(TimeNs, Handle connection) {
  const Slot slot = slot_of(connection);
  if (slot == kNone) return false;
  const LinuxState state = ids_[slot].state;
  if (state != LinuxState::kMraReqSent && state != LinuxState::kMraRepSent) return false;
  send_rej(slot, state == LinuxState::kMraReqSent ? MessageKind::kReq : MessageKind::kRep);
  reset_to_idle(slot);
  return true;
}

bool LinuxPeer::establish(TimeNs, Handle connection) {
  const Slot slot = slot_of(connection);
  if (slot == kNone || ids_[slot].state != LinuxState::kMraRepSent) return false;
  ids_[slot].state = LinuxState::kEstablished;
  send_rtu(slot);
  return true;
}

// Always succeeds; a DREQ that has come is answered by this call alone.
void LinuxPeer::disconnect(TimeNs now, Handle connection) {
  const Slot slot = slot_of(connection);
  if (slot == kNone) return;
  if (ids_[slot].state == LinuxState::kEstablished) {
    send_dreq(now, slot, true);
    ids_[slot].state = LinuxState::kDreqSent;
  } else if (ids_[slot].state == LinuxState::kDreqRcvd) {
    send_drep(slot);
    enter_timewait(now, slot);
  }
}

// Every state leaves its trace on the wire, once.
void LinuxPeer::destroy(TimeNs now, Handle connection) {
  const Slot slot = slot_of(connection);
  if (slot == kNone) return;
  switch (ids_[slot].state) {
    case LinuxState::kReqSent:
    case LinuxState::kMraReqRcvd:
      send_rej_timeout(slot);
      break;
    case LinuxState::kMraRepSent:
      send_rej(slot, MessageKind::kRep);
      break;
    case LinuxState::kMraReqSent:
      send_rej(slot, MessageKind::kReq);
      break;
    case LinuxState::kRepSent:
    case LinuxState::kMraRepRcvd:
      send_rej(slot, MessageKind::kOther);
      break;
    case LinuxState::kEstablished:
      send_dreq(now, slot, false);
      break;
    case LinuxState::kDreqRcvd:
      send_drep(slot);
      break;
    case LinuxState::kDreqSent:
    case LinuxState::kTimewait:
    case LinuxState::kIdle:
    case LinuxState::kFree:
      break;
  }
  free(slot);
}

std::optional<QpNumbers> LinuxPeer::qp(Handle connection) const {
  const Slot slot = slot_of(connection);
  if (slot == kNone) return std::nullopt;
  const Id& id = ids_[slot];
  return QpNumbers{.local_qpn = id.local_qpn, .dest_qpn = id.remote_qpn, .rq_psn = id.rq_psn, .sq_psn = id.sq_psn};
}

// --------------------------------------------------------------------------------------------------------------------
// What arrives. Connections are found by comm IDs alone: neither the source address nor the transaction ID is looked
// at.

void LinuxPeer::on_packet(TimeNs now, const wire::IpAddress& from, Bytes mad) {
  if (mad.size() != wire::kMadSize) return;
  const auto header = *wire::MadHeader::parse(mad);
  if (header.base_version != wire::kMadBaseVersion || header.management_class != wire::kMadClassCm ||
      header.class_version != wire::kMadClassVersionCm || header.method != wire::kMadMethodSend) {
    return;
  }
  switch (header.attribute) {
    case wire::Attribute::kReq:
      return on_req(now, from, mad);
    case wire::Attribute::kRep:
      return on_rep(now, mad);
    case wire::Attribute::kRtu:
      return on_rtu(parsed<wire::Rtu>(mad));
    case wire::Attribute::kMra:
      return on_mra(now, parsed<wire::Mra>(mad));
    case wire::Attribute::kRej:
      return on_rej(now, parsed<wire::Rej>(mad));
    case wire::Attribute::kDreq:
      return on_dreq(now, from, header, parsed<wire::Dreq>(mad));
    case wire::Attribute::kDrep:
      return on_drep(now, parsed<wire::Drep>(mad));
    default:
      return;
  }
}

// The order of the checks decides which reason the peer hears.
void LinuxPeer::on_req(TimeNs now, const wire::IpAddress& from, Bytes mad) {
  const auto header = *wire::MadHeader::parse(mad);
  const auto req = parsed<wire::Req>(mad);
  if (const Slot slot = find(by_remote_id_, req.local_ca_guid, req.local_comm_id); slot != kNone) {
    return on_duplicate_req(slot);
  }
  if (const Slot slot = find(by_remote_qp_, req.local_ca_guid, req.local_qpn); slot != kNone) {
    refuse(from, header, 0, req.local_comm_id, RejReason::kStaleConnection);
    if (ids_[slot].state == LinuxState::kEstablished) {
      send_dreq(now, slot, true);
      ids_[slot].state = LinuxState::kDreqSent;
    }
    return;
  }
  const auto listener = std::find_if(listeners_.begin(), listeners_.end(), [&](const Listener& l) {
    return l.open && req.service_id == wire::ip_service_id(wire::PortSpace::kTcp, l.port);
  });
  if (listener == listeners_.end()) {
    // It answers in the REQ's own buffer: what the REQ has where REJ has the local comm ID stays there.
    const std::uint32_t leftover = load_be32(&mad[wire::MadHeader::kSize + 4]);
    return refuse(from, header, leftover, req.local_comm_id, RejReason::kInvalidServiceId);
  }
  if (req.primary.remote_gid != config_.address || (req.pkey & 0x7FFF) != 0x7FFF) {
    return refuse(from, header, 0, req.local_comm_id, RejReason::kInvalidGid, &config_.address);
  }
  if (req.alternate.local_lid != 0) {
    return refuse(from, header, 0, req.local_comm_id, RejReason::kInvalidAlternateGid, &req.primary.remote_gid);
  }
  const auto addresses = *wire::IpCmHeader::parse(req.private_data);
  if (addresses.version != 0 || addresses.ip_version != (config_.address.is_ipv4() ? 4 : 6) ||
      addresses.destination != config_.address || req.transport_service != wire::TransportService::kRc) {
    return refuse(from, header, 0, req.local_comm_id, RejReason::kConsumerDefined);
  }
  if (listener->untaken >= listener->backlog) return;

  // The answers go to the address in the REQ, wherever the packet came from.
  const Slot slot = create(req.primary.local_gid);
  Id& id = ids_[slot];
  id.state = LinuxState::kMraReqSent;
  id.deaf = true;
  id.tid = header.transaction_id;
  id.remote_id = req.local_comm_id;
  id.remote_guid = req.local_ca_guid;
  id.remote_qpn = req.local_qpn;
  id.sq_psn = req.starting_psn;
  id.av_timeout = std::max<std::uint8_t>(req.primary.local_ack_timeout, 1);
  id.retries_max = req.max_cm_retries;
  id.timeout_ms = milliseconds(req.local_cm_response_timeout);
  id.listener = static_cast<Slot>(listener - listeners_.begin());
  ++listener->untaken;
  id.in_tables = true;
  by_remote_id_[{id.remote_guid, id.remote_id}] = slot;
  by_remote_qp_[{id.remote_guid, id.remote_qpn}] = slot;
  events_.push({.type = EventType::kConnectRequest,
                .connection = handle_of(slot),
                .user = listener->user,
                .status = 0,
                .peer_qpn = req.local_qpn,
                .peer_note = load_be64(&req.private_data[wire::IpCmHeader::kSize])});
}

// A REP is never repeated for it: its own timer does that.
void LinuxPeer::on_duplicate_req(Slot slot) {
  if (ids_[slot].state == LinuxState::kMraReqSent) send_mra(slot);
}

void LinuxPeer::on_rep(TimeNs now, Bytes mad) {
  const auto header = *wire::MadHeader::parse(mad);
  const auto rep = parsed<wire::Rep>(mad);
  const Slot slot = acquire(rep.remote_comm_id, 0);
  if (slot == kNone) {
    const Slot known = acquire(rep.remote_comm_id, rep.local_comm_id);
    if (known == kNone) return;
    if (ids_[known].state == LinuxState::kEstablished) send_rtu(known);
    if (ids_[known].state == LinuxState::kMraRepSent) send_mra(known);
    return;
  }
  Id& id = ids_[slot];
  if (id.state != LinuxState::kReqSent && id.state != LinuxState::kMraReqRcvd) return;
  if (find(by_remote_id_, rep.local_ca_guid, rep.local_comm_id) != kNone) return;
  if (const Slot holder = find(by_remote_qp_, rep.local_ca_guid, rep.local_qpn); holder != kNone) {
    // The REQ goes on being repeated.
    wire::Rej rej;
    rej.local_comm_id = rep.remote_comm_id;
    rej.remote_comm_id = rep.local_comm_id;
    rej.message = MessageKind::kRep;
    rej.reason = RejReason::kStaleConnection;
    send(id.remote, mad_of(header.transaction_id, rej));
    if (ids_[holder].state == LinuxState::kEstablished) {
      send_dreq(now, holder, true);
      ids_[holder].state = LinuxState::kDreqSent;
    }
    return;
  }
  cancel_mad(slot);
  id.state = LinuxState::kMraRepSent;
  id.remote_id = rep.local_comm_id;
  id.remote_guid = rep.local_ca_guid;
  id.remote_qpn = rep.local_qpn;
  id.sq_psn = rep.starting_psn;
  id.av_timeout = ack_timeout(rep.target_ack_delay, config_.packet_lifetime);
  id.in_tables = true;
  by_remote_id_[{id.remote_guid, id.remote_id}] = slot;
  by_remote_qp_[{id.remote_guid, id.remote_qpn}] = slot;
  report(slot, EventType::kConnectResponse);
  events_.back().peer_note = load_be64(rep.private_data.data());
}

void LinuxPeer::on_rtu(const wire::Rtu& rtu) {
  const Slot slot = acquire(rtu.remote_comm_id, rtu.local_comm_id);
  if (slot == kNone) return;
  Id& id = ids_[slot];
  if (id.state != LinuxState::kRepSent && id.state != LinuxState::kMraRepRcvd) return;
  cancel_mad(slot);
  id.state = LinuxState::kEstablished;
  report(slot, EventType::kEstablished);
}

// Only the first MRA of an exchange counts, for the wait going on and for those of all later retries.
void LinuxPeer::on_mra(TimeNs now, const wire::Mra& mra) {
  const bool of_req = mra.message == MessageKind::kReq;
  const Slot slot = acquire(mra.remote_comm_id, of_req ? 0 : mra.local_comm_id);
  if (slot == kNone) return;
  Id& id = ids_[slot];
  if (id.state != (of_req ? LinuxState::kReqSent : LinuxState::kRepSent)) return;
  if (!of_req && mra.message != MessageKind::kRep) return;
  id.state = of_req ? LinuxState::kMraReqRcvd : LinuxState::kMraRepRcvd;
  id.interval_ms = milliseconds(mra.service_timeout) + milliseconds(id.av_timeout);
  timers_.set(slot, expiry(now, id.interval_ms));
}

void LinuxPeer::on_rej(TimeNs now, const wire::Rej& rej) {
  Slot slot = kNone;
  if (rej.reason == RejReason::kTimeout) {
    // A withdrawn REQ: its sender is named by its GUID.
    slot = find(by_remote_id_, load_be64(rej.ari.data()), rej.local_comm_id);
  } else {
    slot = acquire(rej.remote_comm_id, rej.message == MessageKind::kReq ? 0 : rej.local_comm_id);
  }
  if (slot == kNone) return;
  switch (ids_[slot].state) {
    case LinuxState::kReqSent:
    case LinuxState::kMraReqRcvd:
    case LinuxState::kMraReqSent:
    case LinuxState::kRepSent:
    case LinuxState::kMraRepRcvd:
      if (rej.reason == RejReason::kStaleConnection) {
        enter_timewait(now, slot);
      } else {
        reset_to_idle(slot);
      }
      break;
    case LinuxState::kMraRepSent:
    case LinuxState::kEstablished:
    case LinuxState::kDreqSent:
      enter_timewait(now, slot);
      break;
    case LinuxState::kDreqRcvd:
    case LinuxState::kTimewait:
    case LinuxState::kIdle:
    case LinuxState::kFree:
      return;
  }
  report(slot, EventType::kRejected, static_cast<std::int32_t>(rej.reason));
}

void LinuxPeer::on_dreq(TimeNs, const wire::IpAddress& from, const wire::MadHeader& header, const wire::Dreq& dreq) {
  const Slot slot = acquire(dreq.remote_comm_id, dreq.local_comm_id);
  if (slot == kNone) {
    wire::Drep drep;
    drep.local_comm_id = dreq.remote_comm_id;
    drep.remote_comm_id = dreq.local_comm_id;
    return send(from, mad_of(header.transaction_id, drep));
  }
  Id& id = ids_[slot];
  if (dreq.remote_qpn != id.local_qpn) return;
  switch (id.state) {
    case LinuxState::kRepSent:
    case LinuxState::kMraRepRcvd:
    case LinuxState::kDreqSent:
    case LinuxState::kEstablished:
      cancel_mad(slot);
      id.state = LinuxState::kDreqRcvd;
      id.tid = header.transaction_id;
      return report(slot, EventType::kDisconnected);
    case LinuxState::kTimewait:
      id.tid = header.transaction_id;
      return send_drep(slot);
    default:
      return;
  }
}

void LinuxPeer::on_drep(TimeNs now, const wire::Drep& drep) {
  const Slot slot = acquire(drep.remote_comm_id, drep.local_comm_id);
  if (slot == kNone) return;
  const LinuxState state = ids_[slot].state;
  if (state != LinuxState::kDreqSent && state != LinuxState::kDreqRcvd) return;
  enter_timewait(now, slot);
  report(slot, EventType::kDisconnected);
}

// --------------------------------------------------------------------------------------------------------------------
// Messages.

template <class Message>
LinuxPeer::Mad LinuxPeer::mad_of(std::uint64_t tid, const Message& message) {
  Mad mad{};
  const wire::MadHeader header{.transaction_id = tid, .attribute = Message::kAttribute};
  header.emit(MutableBytes(mad).first(wire::MadHeader::kSize));
  message.emit(MutableBytes(mad).subspan(wire::MadHeader::kSize));
  return mad;
}

void LinuxPeer::send(const wire::IpAddress& to, const Mad& mad) { packets_.push({config_.address, to, mad}); }

void LinuxPeer::refuse(const wire::IpAddress& to, const wire::MadHeader& header, std::uint32_t local_id,
                       std::uint32_t remote_id, RejReason reason, const wire::IpAddress* ari) {
  wire::Rej rej;
  rej.local_comm_id = local_id;
  rej.remote_comm_id = remote_id;
  rej.message = MessageKind::kReq;
  rej.reason = reason;
  if (ari != nullptr) {
    rej.ari_length = static_cast<std::uint8_t>(ari->bytes.size());
    std::copy(ari->bytes.begin(), ari->bytes.end(), rej.ari.begin());
  }
  send(to, mad_of(header.transaction_id, rej));
}

void LinuxPeer::send_rej(Slot slot, MessageKind message) {
  const Id& id = ids_[slot];
  wire::Rej rej;
  rej.local_comm_id = id.local_id;
  rej.remote_comm_id = id.remote_id;
  rej.message = message;
  rej.reason = RejReason::kConsumerDefined;
  send(id.remote, mad_of(id.tid, rej));
}

void LinuxPeer::send_rej_timeout(Slot slot) {
  const Id& id = ids_[slot];
  wire::Rej rej;
  rej.local_comm_id = id.local_id;
  rej.message = MessageKind::kOther;
  rej.reason = RejReason::kTimeout;
  rej.ari_length = sizeof(config_.guid);
  store_be64(rej.ari.data(), config_.guid);
  send(id.remote, mad_of(id.tid, rej));
}

void LinuxPeer::send_mra(Slot slot) {
  const Id& id = ids_[slot];
  wire::Mra mra;
  mra.local_comm_id = id.local_id;
  mra.remote_comm_id = id.remote_id;
  mra.message = id.active ? MessageKind::kRep : MessageKind::kReq;
  mra.service_timeout = kMraServiceTimeout;
  send(id.remote, mad_of(id.tid, mra));
}

void LinuxPeer::send_rtu(Slot slot) {
  const Id& id = ids_[slot];
  wire::Rtu rtu;
  rtu.local_comm_id = id.local_id;
  rtu.remote_comm_id = id.remote_id;
  send(id.remote, mad_of(id.tid, rtu));
}

void LinuxPeer::send_dreq(TimeNs now, Slot slot, bool repeated) {
  Id& id = ids_[slot];
  id.tid = kAgent << 32 | swapped(id.local_id);
  wire::Dreq dreq;
  dreq.local_comm_id = id.local_id;
  dreq.remote_comm_id = id.remote_id;
  dreq.remote_qpn = id.remote_qpn;
  const Mad mad = mad_of(id.tid, dreq);
  if (!repeated) return send(id.remote, mad);
  start_mad(now, slot, mad, id.timeout_ms, id.retries_max);
}

void LinuxPeer::send_drep(Slot slot) {
  const Id& id = ids_[slot];
  wire::Drep drep;
  drep.local_comm_id = id.local_id;
  drep.remote_comm_id = id.remote_id;
  send(id.remote, mad_of(id.tid, drep));
}

}  // namespace ucm::sim
