#include "cm/engine.h"

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "base/hash.h"
#include "cm/limits.h"
#include "cm/timing.h"
#include "wire/headers.h"

namespace ucm::cm {
namespace {

constexpr unsigned kCommIdRandomBits = 28;  // below the shard's four
constexpr std::uint32_t kCommIdRandomMask = (1u << kCommIdRandomBits) - 1;
constexpr std::uint32_t kFlowLabelMask = 0xFFFFF;

constexpr std::uint8_t from_peer(std::uint8_t exponent) { return std::min(exponent, kPeerTimeoutExponentMax); }

// Of the peer, to a REQ.
constexpr bool is_answer(Input input) {
  return input == Input::kRep || input == Input::kRepStale || input == Input::kMra || input == Input::kRej ||
         input == Input::kRejStale;
}

bool fits_24_bits(std::uint32_t value) { return value <= wire::kMask24; }

}  // namespace

Engine::Engine(const Config& config)
    : config_(config),
      random_(config.random_key),
      requests_(config.random_key),
      peers_(config.random_key, config.recovery) {
  UCM_CHECK(config.shard < 16);
  UCM_CHECK(config.cm_response_timeout < 32 && config.max_cm_retries < 16);
  UCM_CHECK(config.mra_service_timeout < 32 && config.target_ack_delay < 32);
  config_.connections_max = std::min(config.connections_max, kConnectionsMax);
}

// --------------------------------------------------------------------------------------------------------------------
// Handles and tables.

Engine::Slot Engine::slot_of(ConnectionId id) const {
  const Slot slot = slot_in(id);
  if (slot >= connections_.capacity() || handle_of(slot) != id) return Connection::kNone;
  return has_handle(connections_[slot].state) ? slot : Connection::kNone;
}

ListenerId Engine::listener_handle(Listeners::Index index) const {
  return ListenerId{std::uint64_t{listeners_[index].generation} << 32 | index};
}

std::uint32_t Engine::new_comm_id() {
  const std::uint32_t shard = std::uint32_t{config_.shard} << kCommIdRandomBits;
  const auto unusable = [&](std::uint32_t random_bits) {
    const std::uint32_t id = shard | random_bits;
    return random_bits == 0 || by_comm_id_.find(id, [](Slot) { return true; }) != SlotTable::kNone ||
           find_sidr_exchange(id) != SlotTable::kNone;
  };
  // At most one ID in 64 is taken (kConnectionsMax), so this ends at once.
  std::uint32_t random_bits = 0;
  while (unusable(random_bits)) random_bits = random_.next_u32() & kCommIdRandomMask;
  return shard | random_bits;
}

Engine::Slot Engine::create_connection(const Path& path) {
  const Slot slot = connections_.take();
  Connection& c = connections_[slot];
  c = Connection{.generation = c.generation, .noted = c.noted};
  c.path = path;
  c.local_comm_id = new_comm_id();
  c.rq_psn = random_.next_u32() & wire::kMask24;
  by_comm_id_.insert(c.local_comm_id, slot);
  return slot;
}

void Engine::release_connection(Slot slot) {
  Connection& c = connections_[slot];
  by_comm_id_.erase(c.local_comm_id, slot);
  ++c.generation;
  connections_.give_back(slot);
}

// A peer's numbers are the peer's choice: the hash is keyed, so that nobody can aim at one bucket.
std::uint32_t Engine::remote_hash(const Path& path, std::uint64_t guid, std::uint32_t number) const {
  const auto [upper, lower] = path.remote.words();
  return static_cast<std::uint32_t>(table_hash(config_.random_key, {upper, lower, guid, number}));
}

Engine::Slot Engine::find_remote_id(std::uint32_t hash, const Path& path, std::uint64_t guid,
                                    std::uint32_t comm_id) const {
  return by_remote_id_.find(hash, [&](Slot slot) {
    const Connection& c = connections_[slot];
    return c.remote_comm_id == comm_id && c.remote_guid == guid && same_peer(c.path, path);
  });
}

Engine::Slot Engine::find_remote_qp(std::uint32_t hash, const Path& path, std::uint64_t guid, std::uint32_t qpn) const {
  return by_remote_qp_.find(hash, [&](Slot slot) {
    const Connection& c = connections_[slot];
    return c.remote_qpn == qpn && c.remote_guid == guid && same_peer(c.path, path);
  });
}

void Engine::know_peer(Slot slot, const RemoteHashes& hashes) {
  Connection& c = connections_[slot];
  c.remote_id_hash = hashes.id;
  c.remote_qp_hash = hashes.qp;
  by_remote_id_.insert(hashes.id, slot);
  by_remote_qp_.insert(hashes.qp, slot);
}

void Engine::forget_peer(Slot slot) {
  const Connection& c = connections_[slot];
  by_remote_id_.erase(c.remote_id_hash, slot);
  by_remote_qp_.erase(c.remote_qp_hash, slot);
}

// --------------------------------------------------------------------------------------------------------------------
// The state machine.

void Engine::begin_exchange(TimeNs now, Slot slot, const Mad& mad) {
  Connection& c = connections_[slot];
  UCM_CHECK(c.exchange == Connection::kNone);
  c.exchange = exchanges_.take();
  const Peers::Index peer = c.peer = peers_.find(c.path, c.peer);
  Exchange& exchange = exchanges_[c.exchange];
  exchange.mad = mad;
  exchange.sent_at = now;
  exchange.give_up_at = now + (1 + c.retries_max) * duration(c.retry_interval_ms);
  exchange.wait = peers_.first_wait(peer);
  exchange.slot = slot;
  exchange.peer = peer;
  exchange.repetitions = 0;
  exchange.in_flight = false;
}

void Engine::end_exchange(Slot slot, bool held) {
  Connection& c = connections_[slot];
  if (c.exchange == Connection::kNone) return;
  peers_.forget_request(exchanges_, c.exchange, held);
  exchanges_.give_back(c.exchange);
  c.exchange = Connection::kNone;
  timers_.remove(slot);
}

void Engine::arm(TimeNs now, Slot slot) {
  const Connection& c = connections_[slot];
  const Exchange& exchange = exchanges_[c.exchange];
  const TimeNs wait = spread(exchange.wait, c.local_comm_id, exchange.repetitions);
  timers_.set(slot, std::min(now + wait, exchange.give_up_at));
}

// Not from the random sequence: what others do does not change when this message is repeated.
TimeNs Engine::spread(TimeNs wait, std::uint32_t id, std::uint8_t time) const {
  const std::uint64_t draw = table_hash(config_.random_key, {std::uint64_t{id} << 32 | time});
  const TimeNs most = wait * config_.recovery.jitter_percent / 100;
  return wait + static_cast<TimeNs>(draw % static_cast<std::uint64_t>(2 * most + 1)) - most;
}

void Engine::say_again(TimeNs now, LastWords::Word word) {
  const std::uint32_t id = load_be32(&word.mad[wire::MadHeader::kSize]);
  word.cause = cause_;
  word.cause.last_words = true;
  last_words_.add(now + spread(word.wait, id, word.repetitions), word);
}

void Engine::say_twice(TimeNs now, Slot slot, const Mad& mad) {
  const Connection& c = connections_[slot];
  const TimeNs wait = config_.recovery.last_words_foreign;
  if (wait > 0 && !c.peer_is_ucm) say_again(now, {.path = c.path, .mad = mad, .wait = wait, .repetitions = 1});
}

void Engine::on_last_words_deadline(TimeNs now) {
  for (std::size_t i = 0; i < kTimersPerCall && last_words_.next_deadline() <= now; ++i) {
    LastWords::Word word = last_words_.take();
    ++counters_.retries;
    ++word.cause.repetition;
    cause_ = word.cause;
    new_packet(word.path).mad = word.mad;
    if (--word.repetitions == 0) continue;
    word.wait *= 2;
    say_again(now, word);
  }
}

void Engine::wait_longer(TimeNs now, Slot slot, std::uint8_t service_timeout) {
  Connection& c = connections_[slot];
  Exchange& exchange = exchanges_[c.exchange];
  const TimeNs gone_by = (now - exchange.sent_at) / duration(c.retry_interval_ms);
  const TimeNs left = 1 + std::max<TimeNs>(c.retries_max - gone_by, 0);
  exchange.give_up_at =
      now + left * duration(milliseconds(from_peer(service_timeout)) + milliseconds(from_peer(c.ack_timeout)));
  // A REQ that has arrived will be answered by a REP, which has a timer of its own; an RTU has none, and only the REP
  // brings it back. So the REP goes on as before.
  if (c.active) {
    exchange.wait = config_.recovery.longest_backoff;
    peers_.request_found(exchange);
  }
  arm(now, slot);
}

void Engine::learn_from_answer(TimeNs now, Slot slot, const wire::MadHeader& header, State awaited,
                               State awaited_longer) {
  const Connection& c = connections_[slot];
  if (c.state != awaited && c.state != awaited_longer) return;
  const Exchange& exchange = exchanges_[c.exchange];
  const Peers::Index peer = exchange.peer != Peers::kNone ? exchange.peer : peers_.find_or_add(c.path);
  peers_.answered(peer, {.elapsed = now - exchange.sent_at,
                         .ambiguous = exchange.repetitions > 0 && c.state == awaited,
                         .is_ucm = from_ucm(header)});
}

void Engine::enter(TimeNs now, Slot slot, State next) {
  Connection& c = connections_[slot];
  const State before = c.state;
  if (next == before) return;
  c.state = next;
  orphans_ += next == State::kOrphaned ? 1 : 0;
  orphans_ -= before == State::kOrphaned ? 1 : 0;
  if (!retransmits(next)) end_exchange(slot, before == State::kReqHeld);
  if (occupies_peer(before) && !occupies_peer(next) && c.remote_comm_id != 0) forget_peer(slot);
  if (next == State::kTimewait) {
    timers_.set(slot, now + duration(milliseconds(from_peer(c.ack_timeout))));
  } else if (before == State::kTimewait) {
    timers_.remove(slot);
  }
  if (!has_handle(next)) take_request(now, slot);
  if (next == State::kGone) release_connection(slot);
}

void Engine::step(Slot slot, const Stimulus& stimulus) {
  const Transition& to = transition(connections_[slot].state, stimulus.input);
  if (const auto exchange = connections_[slot].exchange; exchange != Connection::kNone && is_answer(stimulus.input)) {
    peers_.request_answered(exchanges_[exchange]);
  }
  cause_ = {.of = Cause::Of::kConnection, .input = static_cast<std::uint8_t>(stimulus.input), .slot = slot};
  act(slot, to.action, stimulus);
  if (observer_ != nullptr) observer_->on_step(slot, connections_[slot], stimulus.input, to);
  enter(stimulus.now, slot, to.next);
  note(slot);
  if (stimulus.input != Input::kTurn) send_held_requests(stimulus.now);
}

void Engine::act(Slot slot, Action action, const Stimulus& stimulus) {
  Connection& c = connections_[slot];
  switch (action) {
    case Action::kIgnore:
      ++counters_.ignored;
      return;
    case Action::kNothing:
      return;
    case Action::kRefuse:  // command() lets neither through
    case Action::kRefuseConnected:
    case Action::kImpossible:
      return check_failed("the input is possible in the state", __FILE__, __LINE__);
    case Action::kTakeRep:
      return take_rep(slot, *stimulus.header, *stimulus.rep, stimulus.rep_hashes);
    case Action::kRejectStaleRep:
      ++counters_.rejected_stale;
      return reject_rep(c.path, *stimulus.header, *stimulus.rep, wire::RejReason::kStaleConnection);
    case Action::kWaitLonger:
      return wait_longer(stimulus.now, slot, stimulus.service_timeout);
    case Action::kWithdrawRequest:
      ++counters_.withdrawn;
      return;
    case Action::kSendReq:
      return send_req(stimulus.now, slot);
    case Action::kSendMra:
      ++counters_.duplicates_answered;
      return send_mra(slot);
    case Action::kSendRep:
      return send_rep(stimulus.now, slot, *stimulus.accept);
    case Action::kSendRtu:
      if (stimulus.input == Input::kRep) {
        ++counters_.duplicates_answered;
        send_rtu(slot);
        return;
      }
      ++counters_.established;
      return say_twice(stimulus.now, slot, send_rtu(slot));
    case Action::kResend:
      ++counters_.duplicates_answered;
      return send_again(slot);
    case Action::kRetry: {
      ++counters_.retries;
      Exchange& exchange = exchanges_[c.exchange];
      peers_.request_lost(stimulus.now, exchange);
      cause_.repetition = ++exchange.repetitions;
      exchange.wait = std::min(2 * exchange.wait, config_.recovery.longest_backoff);
      send_again(slot);
      return arm(stimulus.now, slot);
    }
    case Action::kSendRej:
      return send_rej(stimulus.now, slot, stimulus.reject != nullptr ? *stimulus.reject : RejectParams{});
    case Action::kSendRejTimeout:
      return send_rej_timeout(stimulus.now, slot);
    case Action::kSendDreq:
      return send_dreq(stimulus.now, slot);
    case Action::kSendDrep:
      if (stimulus.header != nullptr) {
        ++counters_.duplicates_answered;
        answer_dreq(slot, stimulus.header);
        return;
      }
      return say_twice(stimulus.now, slot, answer_dreq(slot, nullptr));
    case Action::kTakeDreq:
      c.transaction_id = stimulus.header->transaction_id;
      return report(slot, EventType::kDisconnected, 0);
    case Action::kTakeCrossingDreq:
      report(slot, EventType::kDisconnected, 0);
      return say_twice(stimulus.now, slot, answer_dreq(slot, stimulus.header));
    case Action::kReportRequest:
      return report_request(slot);
    case Action::kReportEstablished:
      return report(slot, EventType::kEstablished, 0);
    case Action::kReportRejected:
      return report(slot, EventType::kRejected, static_cast<std::int32_t>(stimulus.rej->reason),
                    stimulus.rej->private_data);
    case Action::kReportUnreachable:
      return report(slot, EventType::kUnreachable, -ETIMEDOUT);
    case Action::kReportDisconnected:
      return report(slot, EventType::kDisconnected, 0);
    case Action::kReportDisconnectTimeout:
      return report(slot, EventType::kDisconnected, -ETIMEDOUT);
    case Action::kReportTimewaitExit:
      // Linux: only after a disconnection; an application that was rejected hears no more.
      if (c.disconnect_reported) report(slot, EventType::kTimewaitExit, 0);
      return;
    case Action::kGiveUpOrphan:
      ++counters_.orphans_given_up;
      return;
  }
}

void Engine::take_rep(Slot slot, const wire::MadHeader& header, const wire::Rep& rep, const RemoteHashes& hashes) {
  Connection& c = connections_[slot];
  c.remote_comm_id = rep.local_comm_id;
  c.peer_is_ucm = from_ucm(header);
  c.remote_guid = rep.local_ca_guid;
  c.remote_qpn = qpn_of(c, rep);
  c.sq_psn = rep.starting_psn;
  c.responder_resources = rep.initiator_depth;
  c.initiator_depth = rep.responder_resources;
  c.rnr_retry_count = rep.rnr_retry_count;
  c.ack_timeout = ack_timeout(rep.target_ack_delay, c.packet_lifetime);
  know_peer(slot, hashes);
  Event& event = push_event(slot, EventType::kConnectResponse, rep.private_data);
  event.peer = {.qpn = c.remote_qpn,
                .srq = rep.srq,
                .responder_resources = rep.responder_resources,
                .initiator_depth = rep.initiator_depth,
                .flow_control = rep.end_to_end_flow_control,
                .rnr_retry_count = rep.rnr_retry_count,
                .vendor_id = rep.vendor_id,
                .ece_options = header.attribute_modifier};
}

// --------------------------------------------------------------------------------------------------------------------
// Commands.

Result<ListenerId> Engine::listen(const ListenParams& params) {
  const auto index = listeners_.add(params);
  if (!index) return tl::unexpected(index.error());
  return listener_handle(*index);
}

void Engine::close_listener(TimeNs now, ListenerId id) {
  const auto index = static_cast<Listeners::Index>(static_cast<std::uint64_t>(id));
  if (!listeners_.valid(index, static_cast<std::uint32_t>(static_cast<std::uint64_t>(id) >> 32))) return;
  const Requests::Queue& queue = listeners_[index].requests;
  while (queue.size() > 0) destroy(now, handle_of(requests_[requests_.any(queue)].slot));
  close_sidr_listener(now, index);
  listeners_.remove(index);
}

Result<ConnectionId> Engine::connect(TimeNs now, const ConnectParams& params) {
  if (params.private_data.size() > kConnectPrivateDataMax) return fail(EINVAL, "private data longer than 56 bytes");
  if (params.path_mtu < 1 || params.path_mtu > 5) return fail(EINVAL, "path MTU is not 1 (256) to 5 (4096)");
  if (params.packet_lifetime > 31) return fail(EINVAL, "packet lifetime exponent above 31");
  if (params.flow_label > kFlowLabelMask) return fail(EINVAL, "flow label above 20 bits");
  if (!fits_24_bits(params.params.qpn)) return fail(EINVAL, "QP number above 24 bits");
  if (!fits_24_bits(params.params.vendor_id)) return fail(EINVAL, "vendor ID above 24 bits");
  if (connections_.in_use() >= config_.connections_max) return fail(ENOMEM, "too many connections");
  ++counters_.connects;
  const Slot slot = create_connection(params.path);
  Connection& c = connections_[slot];
  c.state = State::kReqHeld;
  c.active = true;
  c.transport = params.transport;
  c.user = params.user;
  c.local_guid = params.ca_guid;
  c.local_qpn = params.params.qpn;
  c.flow_label = params.flow_label;
  c.path_mtu = params.path_mtu;
  c.packet_lifetime = params.packet_lifetime;
  c.ack_timeout = std::min<std::uint8_t>(params.packet_lifetime + 1, 31);  // until REP tells the peer's ACK delay
  c.responder_resources = params.params.responder_resources;
  c.initiator_depth = params.params.initiator_depth;
  c.retry_count = std::min<std::uint8_t>(params.params.retry_count, 7);
  c.rnr_retry_count = std::min<std::uint8_t>(params.params.rnr_retry_count, 7);
  c.retry_interval_ms = 2 * milliseconds(params.packet_lifetime) + milliseconds(config_.cm_response_timeout);
  c.retries_max = config_.max_cm_retries;
  const Peers::Index peer = c.peer = peers_.find_or_add(c.path);
  if (observer_ != nullptr) observer_->on_begin(slot, c);
  begin_exchange(now, slot, make_req(slot, params));
  timers_.set(slot, exchanges_[c.exchange].give_up_at);
  note(slot);
  if (peer != Peers::kNone) {
    peers_.hold(exchanges_, c.exchange);
    send_held_requests(now);
  } else {
    step(slot, {.now = now, .input = Input::kTurn});
  }
  return handle_of(slot);
}

void Engine::send_held_requests(TimeNs now) {
  while (peers_.may_send_request()) {
    step(exchanges_[peers_.next_request(exchanges_)].slot, {.now = now, .input = Input::kTurn});
  }
}

void Engine::take_request(TimeNs now, Slot slot) {
  Connection& c = connections_[slot];
  if (c.request == Connection::kNone) return;
  const auto [listener, delivered] = std::pair(requests_[c.request].listener, requests_[c.request].delivered);
  requests_.remove(listeners_[listener].requests, c.request);
  c.request = Connection::kNone;
  if (delivered) report_requests(now, listener);
}

void Engine::report_requests(TimeNs now, Listeners::Index listener) {
  while (true) {
    const auto next = requests_.deliver_next(listeners_[listener].requests);
    if (next == Requests::kNone) return;
    step(requests_[next].slot, {.now = now, .input = Input::kTurn});
  }
}

void Engine::report_request(Slot slot) {
  const Requests::Request& request = requests_[connections_[slot].request];
  Event& event = push_event(slot, EventType::kConnectRequest, request.private_data);
  event.listener = listener_handle(request.listener);
  event.user = listeners_[request.listener].params.user;
  event.peer = request.params;
  event.addresses = request.addresses;
  event.path = connections_[slot].path;
}

void Engine::request_taken(TimeNs now, ConnectionId id) {
  if (const Slot slot = slot_of(id); slot != Connection::kNone) take_request(now, slot);
}

void Engine::set_user(ConnectionId id, std::uint64_t user) {
  const Slot slot = slot_of(id);
  if (slot == Connection::kNone) return;
  connections_[slot].user = user;
  note(slot);
}

Result<void> Engine::accept(TimeNs now, ConnectionId id, const AcceptParams& params) {
  const bool valid = params.private_data.size() <= kAcceptPrivateDataMax && fits_24_bits(params.params.qpn) &&
                     fits_24_bits(params.params.vendor_id);
  if (valid) return command(id, {.now = now, .input = Input::kAccept, .accept = &params});
  // The peer must not wait for an answer that will not come.  // Linux: same
  if (state(id) == State::kReqReceived) (void)reject(now, id, {});
  return fail(EINVAL, "private data longer than 196 bytes, or a QP number or vendor ID above 24 bits");
}

Result<void> Engine::command(ConnectionId id, const Stimulus& stimulus) {
  const Slot slot = slot_of(id);
  if (slot == Connection::kNone) return fail(EINVAL, "no such connection");
  const State state = connections_[slot].state;
  const Action action = transition(state, stimulus.input).action;
  if (action == Action::kRefuse || action == Action::kRefuseConnected) {
    return fail(action == Action::kRefuse ? EINVAL : EISCONN,
                std::string(name(stimulus.input)) + " is not possible in state " + std::string(name(state)));
  }
  step(slot, stimulus);
  return {};
}

Result<void> Engine::reject(TimeNs now, ConnectionId id, const RejectParams& params) {
  if (params.private_data.size() > kRejectPrivateDataMax) return fail(EINVAL, "private data longer than 148 bytes");
  return command(id, {.now = now, .input = Input::kReject, .reject = &params});
}

Result<void> Engine::establish(TimeNs now, ConnectionId id) {
  return command(id, {.now = now, .input = Input::kEstablish});
}

Result<void> Engine::notify_established(TimeNs now, ConnectionId id) {
  return command(id, {.now = now, .input = Input::kNotify});
}

void Engine::disconnect(TimeNs now, ConnectionId id) { (void)command(id, {.now = now, .input = Input::kDisconnect}); }

void Engine::destroy(TimeNs now, ConnectionId id) {
  const Slot slot = slot_of(id);
  if (slot == Connection::kNone) return;
  step(slot, {.now = now, .input = Input::kDestroy});
  if (orphans_ > kOrphansMax) step(slot, {.now = now, .input = Input::kRetriesExhausted});
}

std::optional<QpParameters> Engine::qp_parameters(ConnectionId id) const {
  const Slot slot = slot_of(id);
  if (slot == Connection::kNone) return std::nullopt;
  const Connection& c = connections_[slot];
  return QpParameters{.local_qpn = c.local_qpn,
                      .dest_qpn = c.remote_qpn,
                      .rq_psn = c.rq_psn,
                      .sq_psn = c.sq_psn,
                      .path_mtu = c.path_mtu,
                      .responder_resources = c.responder_resources,
                      .initiator_depth = c.initiator_depth,
                      .retry_count = c.retry_count,
                      .rnr_retry_count = c.rnr_retry_count,
                      .ack_timeout = c.ack_timeout,
                      .flow_label = c.flow_label,
                      .traffic_class = c.path.traffic_class,
                      .hop_limit = c.path.hop_limit,
                      .dest_known = c.remote_comm_id != 0};
}

const Connection* Engine::connection(ConnectionId id) const {
  const Slot slot = slot_of(id);
  return slot != Connection::kNone ? &connections_[slot] : nullptr;
}

std::optional<State> Engine::state(ConnectionId id) const {
  const Slot slot = slot_of(id);
  if (slot == Connection::kNone) return std::nullopt;
  return connections_[slot].state;
}

// --------------------------------------------------------------------------------------------------------------------
// Events, packets, time.

Event& Engine::push_event(Slot slot, EventType type, Bytes private_data) {
  Event& event = events_.push_reused();
  event.type = type;
  event.connection = handle_of(slot);
  event.listener = {};
  event.user = connections_[slot].user;
  event.status = 0;
  event.peer = {};
  event.addresses = {};
  event.path = {};
  event.private_data.assign(private_data);
  return event;
}

void Engine::report(Slot slot, EventType type, std::int32_t status, Bytes private_data) {
  push_event(slot, type, private_data).status = status;
  switch (type) {
    case EventType::kEstablished:
      ++counters_.established;
      break;
    case EventType::kRejected:
      ++counters_.rejected;
      break;
    case EventType::kUnreachable:
      ++counters_.unreachable;
      break;
    case EventType::kDisconnected:
      connections_[slot].disconnect_reported = true;
      ++(status == 0 ? counters_.disconnected : counters_.disconnect_timeouts);
      break;
    case EventType::kConnectRequest:
    case EventType::kConnectResponse:
    case EventType::kTimewaitExit:
      break;
  }
}

const Packet* Engine::poll_packet() {
  if (packets_.empty()) return nullptr;
  const Packet& packet = packets_.front();
  packets_.pop_front();
  return &packet;
}

std::optional<Event> Engine::poll_event() {
  while (!events_.empty()) {
    const Event& event = events_.front();
    events_.pop_front();
    // What was destroyed in the meantime has no events any more.
    if (slot_of(event.connection) != Connection::kNone) return event;
  }
  return std::nullopt;
}

TimeNs Engine::next_deadline() const {
  return std::min({timers_.next(), sidr_.timers.next(), last_words_.next_deadline()});
}

void Engine::on_deadline(TimeNs now) {
  for (std::size_t i = 0; i < kTimersPerCall && timers_.next() <= now; ++i) {
    const Slot slot = timers_.pop();
    const Connection& c = connections_[slot];
    const Input input = c.state == State::kTimewait               ? Input::kTimewaitOver
                        : now < exchanges_[c.exchange].give_up_at ? Input::kRetryDue
                                                                  : Input::kRetriesExhausted;
    step(slot, {.now = now, .input = input});
  }
  on_sidr_deadline(now);
  on_last_words_deadline(now);
}

Engine::Usage Engine::usage() const {
  return {.connections = connections_.in_use(),
          .orphans = orphans_,
          .listeners = listeners_.size(),
          .comm_ids = by_comm_id_.size(),
          .remote_ids = by_remote_id_.size(),
          .remote_qps = by_remote_qp_.size(),
          .exchanges = exchanges_.in_use(),
          .requests = requests_.size(),
          .requests_in_flight = peers_.requests_in_flight(),
          .timers = timers_.size() + sidr_.timers.size(),
          .sidr_exchanges = sidr_.exchanges.in_use(),
          .sidr_messages = sidr_.messages.in_use(),
          .last_words = last_words_.size()};
}

std::uint64_t Engine::state_hash() const {
  StateHash hash;
  listeners_.add_to(hash);
  listeners_.for_each([&](const Listener& listener) { requests_.add_to(hash, listener.requests); });
  for (Slot slot = 0; slot < connections_.capacity(); ++slot) {
    const Connection& c = connections_[slot];
    hash.add(c.state);
    if (c.state == State::kGone) continue;
    c.add_to(hash);
    hash.add(timers_.deadline_of(slot));
    if (c.exchange != Connection::kNone) {
      const Exchange& exchange = exchanges_[c.exchange];
      hash.add(Bytes(exchange.mad));
      for (const TimeNs time : {exchange.sent_at, exchange.give_up_at, exchange.wait}) hash.add(time);
      hash.add(exchange.peer);
      hash.add(exchange.repetitions);
      hash.add(exchange.in_flight);
    }
  }
  for (auto i = packets_.begin_index(); i != packets_.end_index(); ++i) hash.add(Bytes(packets_[i].mad));
  for (auto i = events_.begin_index(); i != events_.end_index(); ++i) {
    hash.add(events_[i].type);
    hash.add(static_cast<Slot>(static_cast<std::uint64_t>(events_[i].connection)));
    hash.add(events_[i].status);
  }
  add_sidr_to(hash);
  last_words_.add_to(hash);
  peers_.add_to(hash, exchanges_);
  Random random = random_;
  hash.add(random.next());
  return hash.value();
}

}  // namespace ucm::cm
