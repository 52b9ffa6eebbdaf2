// A connection's way into another engine.
#include <algorithm>
#include <cerrno>

#include "cm/engine.h"
#include "cm/limits.h"
#include "wire/headers.h"

namespace ucm::cm {
namespace {

Path path_of(const ConnectionRecord& record) {
  return {.local = {record.local_address},
          .remote = {record.remote_address},
          .ifindex = record.ifindex,
          .traffic_class = record.traffic_class,
          .hop_limit = record.hop_limit};
}

// Its message is repeated, or is held back until it may be sent.
bool has_message(State state) { return retransmits(state) || state == State::kReqHeld; }

bool is_sound(const ConnectionRecord& record) {
  return record.state < kStateCount && static_cast<State>(record.state) != State::kReqQueued &&
         record.local_comm_id != 0 && record.local_qpn <= wire::kMask24 && record.remote_qpn <= wire::kMask24 &&
         record.exchanging == static_cast<std::uint8_t>(has_message(static_cast<State>(record.state))) &&
         record.transport < 4 && record.ack_timeout < 32 && record.retries_max < 16;
}

}  // namespace

std::optional<std::uint32_t> Engine::poll_changed() {
  if (changed_.empty()) return std::nullopt;
  const Slot slot = changed_.back();
  changed_.pop_back();
  connections_[slot].noted = false;
  return slot;
}

void Engine::note(Slot slot) {
  Connection& c = connections_[slot];
  if (!notes_changes_ || c.noted) return;
  c.noted = true;
  changed_.push_back(slot);
}

// A request that waits for its listener is not worth it: its sender asks again.
std::optional<ConnectionRecord> Engine::record_of(Slot slot) const {
  const Connection& c = connections_[slot];
  if (c.state == State::kGone || c.state == State::kReqQueued) return std::nullopt;
  ConnectionRecord record{.user = c.user,
                          .local_guid = c.local_guid,
                          .remote_guid = c.remote_guid,
                          .transaction_id = c.transaction_id,
                          .local_address = c.path.local.bytes,
                          .remote_address = c.path.remote.bytes,
                          .ifindex = c.path.ifindex,
                          .local_comm_id = c.local_comm_id,
                          .remote_comm_id = c.remote_comm_id,
                          .local_qpn = c.local_qpn,
                          .remote_qpn = c.remote_qpn,
                          .rq_psn = c.rq_psn,
                          .sq_psn = c.sq_psn,
                          .flow_label = c.flow_label,
                          .retry_interval_ms = c.retry_interval_ms,
                          .traffic_class = c.path.traffic_class,
                          .hop_limit = c.path.hop_limit,
                          .state = static_cast<std::uint8_t>(c.state),
                          .transport = static_cast<std::uint8_t>(c.transport),
                          .active = c.active,
                          .peer_is_ucm = c.peer_is_ucm,
                          .disconnect_reported = c.disconnect_reported,
                          .retries_max = c.retries_max,
                          .ack_timeout = c.ack_timeout,
                          .packet_lifetime = c.packet_lifetime,
                          .path_mtu = c.path_mtu,
                          .responder_resources = c.responder_resources,
                          .initiator_depth = c.initiator_depth,
                          .retry_count = c.retry_count,
                          .rnr_retry_count = c.rnr_retry_count,
                          .deadline = timers_.deadline_of(slot)};
  if (c.exchange == Connection::kNone) return record;
  const Exchange& exchange = exchanges_[c.exchange];
  record.exchanging = 1;
  record.repetitions = exchange.repetitions;
  record.sent_at = exchange.sent_at;
  record.give_up_at = exchange.give_up_at;
  record.wait = exchange.wait;
  record.mad = exchange.mad;
  return record;
}

Result<ConnectionId> Engine::restore(const ConnectionRecord& record) {
  if (!is_sound(record)) return fail(EPROTO, "the record of a connection contradicts itself");
  const auto is_taken = [](Slot) { return true; };
  if (by_comm_id_.find(record.local_comm_id, is_taken) != SlotTable::kNone) {
    return fail(EPROTO, "two connections have the same comm ID");
  }
  if (connections_.in_use() >= config_.connections_max) return fail(ENOMEM, "too many connections");
  const Slot slot = connections_.take();
  Connection& c = connections_[slot];
  c = Connection{.user = record.user,
                 .local_guid = record.local_guid,
                 .remote_guid = record.remote_guid,
                 .transaction_id = record.transaction_id,
                 .path = path_of(record),
                 .generation = c.generation,
                 .local_comm_id = record.local_comm_id,
                 .remote_comm_id = record.remote_comm_id,
                 .local_qpn = record.local_qpn,
                 .remote_qpn = record.remote_qpn,
                 .rq_psn = record.rq_psn,
                 .sq_psn = record.sq_psn,
                 .flow_label = record.flow_label,
                 .retry_interval_ms = record.retry_interval_ms,
                 .state = static_cast<State>(record.state),
                 .transport = static_cast<wire::TransportService>(record.transport),
                 .active = record.active != 0,
                 .peer_is_ucm = record.peer_is_ucm != 0,
                 .disconnect_reported = record.disconnect_reported != 0,
                 .retries_max = record.retries_max,
                 .ack_timeout = record.ack_timeout,
                 .packet_lifetime = record.packet_lifetime,
                 .path_mtu = record.path_mtu,
                 .responder_resources = record.responder_resources,
                 .initiator_depth = record.initiator_depth,
                 .retry_count = record.retry_count,
                 .rnr_retry_count = record.rnr_retry_count};
  by_comm_id_.insert(c.local_comm_id, slot);
  if (occupies_peer(c.state) && c.remote_comm_id != 0) {
    know_peer(slot, {.id = remote_hash(c.path, c.remote_guid, c.remote_comm_id),
                     .qp = remote_hash(c.path, c.remote_guid, c.remote_qpn)});
  }
  orphans_ += c.state == State::kOrphaned ? 1 : 0;
  if (observer_ != nullptr) observer_->on_begin(slot, c);
  if (record.exchanging != 0) restore_exchange(slot, record);
  // What was held back and cannot be held is due at once.
  const bool due = c.state != static_cast<State>(record.state);
  if (record.exchanging != 0 || c.state == State::kTimewait) timers_.set(slot, due ? record.sent_at : record.deadline);
  note(slot);
  return handle_of(slot);
}

// Whatever was on its way counts as lost: it is not in flight, and is repeated at its time.
void Engine::restore_exchange(Slot slot, const ConnectionRecord& record) {
  Connection& c = connections_[slot];
  c.exchange = exchanges_.take();
  c.peer = peers_.find_or_add(c.path);
  exchanges_[c.exchange] = Exchange{.mad = record.mad,
                                    .sent_at = record.sent_at,
                                    .give_up_at = record.give_up_at,
                                    .wait = std::max<TimeNs>(record.wait, 1),
                                    .slot = slot,
                                    .peer = c.peer,
                                    .repetitions = record.repetitions};
  if (c.state != State::kReqHeld) return;
  if (c.peer != Peers::kNone) return peers_.hold(exchanges_, c.exchange);
  c.state = State::kReqSent;
}

void Engine::resume(TimeNs now) { send_held_requests(now); }

}  // namespace ucm::cm
