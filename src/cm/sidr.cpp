// The life of a SIDR exchange: handles, tables, timers, the table's actions, commands, events.
#include "cm/sidr.h"

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "cm/engine.h"
#include "cm/limits.h"
#include "cm/timing.h"
#include "wire/headers.h"

namespace ucm::cm {
namespace {

constexpr TimeNs kInterval = duration(milliseconds(20));  // Linux: fixed, and what the budgets follow from

}  // namespace

void SidrExchange::add_to(StateHash& hash) const {
  hash.add(user);
  hash.add(transaction_id);
  hash.add(service_id);
  hash.add(Bytes(path.local.bytes));
  hash.add(Bytes(path.remote.bytes));
  hash.add(path.ifindex);
  for (const std::uint32_t word : {request_id, qkey, message, listener}) hash.add(word);
  hash.add(active);
  for (const TimeNs time : {sent_at, give_up_at, wait}) hash.add(time);
  hash.add(repetitions);
}

// --------------------------------------------------------------------------------------------------------------------
// Handles and tables.

SidrId Engine::sidr_handle(Slot slot) const {
  return SidrId{std::uint64_t{sidr_.exchanges[slot].generation} << 32 | slot};
}

Engine::Slot Engine::slot_of(SidrId id) const {
  const Slot slot = slot_in(id);
  if (slot >= sidr_.exchanges.capacity() || sidr_handle(slot) != id) return SidrExchange::kNone;
  return sidr_.exchanges[slot].state == SidrState::kGone ? SidrExchange::kNone : slot;
}

Engine::Slot Engine::create_sidr_exchange(const Path& path) {
  const Slot slot = sidr_.exchanges.take();
  SidrExchange& e = sidr_.exchanges[slot];
  const std::uint32_t generation = e.generation;
  e = SidrExchange{};
  e.generation = generation;
  e.path = path;
  return slot;
}

Engine::Slot Engine::find_sidr_request(const Path& path, const wire::SidrReq& req) const {
  return sidr_.by_remote_request.find(remote_hash(path, req.service_id, req.request_id), [&](Slot slot) {
    const SidrExchange& e = sidr_.exchanges[slot];
    return e.request_id == req.request_id && e.service_id == req.service_id && same_peer(e.path, path);
  });
}

Engine::Slot Engine::find_sidr_exchange(std::uint32_t request_id) const {
  return sidr_.by_request_id.find(request_id, [](Slot) { return true; });
}

void Engine::take_sidr_request(Slot slot) {
  SidrExchange& e = sidr_.exchanges[slot];
  if (e.listener == SidrExchange::kNone) return;
  --listeners_[e.listener].untaken_sidr;
  e.listener = SidrExchange::kNone;
}

// --------------------------------------------------------------------------------------------------------------------
// The state machine.

void Engine::arm_sidr(TimeNs now, Slot slot) {
  const SidrExchange& e = sidr_.exchanges[slot];
  sidr_.timers.set(slot, std::min(now + spread(e.wait, e.request_id, e.repetitions), e.give_up_at));
}

Result<void> Engine::step(Slot slot, const SidrStimulus& stimulus) {
  const SidrState state = sidr_.exchanges[slot].state;
  const SidrTransition& to = transition(state, stimulus.input);
  UCM_CHECK(to.action != SidrAction::kImpossible);
  if (to.action == SidrAction::kRefuse) {
    return fail(EINVAL, std::string(name(stimulus.input)) + " is not possible in state " + std::string(name(state)));
  }
  cause_ = {.of = Cause::Of::kExchange, .input = static_cast<std::uint8_t>(stimulus.input), .slot = slot};
  act(slot, to.action, stimulus);
  if (observer_ != nullptr) observer_->on_step(slot, sidr_.exchanges[slot], stimulus.input, to);
  enter(stimulus.now, slot, to.next);
  return {};
}

void Engine::act(Slot slot, SidrAction action, const SidrStimulus& stimulus) {
  SidrExchange& e = sidr_.exchanges[slot];
  switch (action) {
    case SidrAction::kIgnore:
      ++counters_.ignored;
      return;
    case SidrAction::kNothing:
    case SidrAction::kRefuse:
    case SidrAction::kImpossible:
      return;  // step() lets none of the latter two through
    case SidrAction::kSendRep:
      return send_sidr_rep(slot, wire::SidrStatus::kSuccess, stimulus.answer);
    case SidrAction::kSendRefusal:
      return send_sidr_rep(slot, wire::SidrStatus::kRejected, stimulus.answer);
    case SidrAction::kResend:
      ++counters_.duplicates_answered;
      return send_sidr_again(slot);
    case SidrAction::kRetry:
      ++counters_.retries;
      cause_.repetition = ++e.repetitions;
      e.wait = std::min(2 * e.wait, kInterval);
      send_sidr_again(slot);
      return arm_sidr(stimulus.now, slot);
    case SidrAction::kReportReply: {
      ++counters_.sidr_replies;
      SidrEvent& event = push_event(slot, SidrEventType::kReply, 0, stimulus.rep->private_data);
      event.qpn = stimulus.rep->qpn;
      event.qkey = stimulus.rep->qkey;
      return;
    }
    case SidrAction::kReportBadQkey:
      ++counters_.sidr_rejected;
      push_event(slot, SidrEventType::kBadQkey, -EINVAL, stimulus.rep->private_data);
      return;
    case SidrAction::kReportRefused:
      ++counters_.sidr_rejected;
      push_event(slot, SidrEventType::kRefused, static_cast<std::int32_t>(stimulus.rep->status),
                 stimulus.rep->private_data);
      return;
    case SidrAction::kReportUnreachable:
      ++counters_.sidr_unreachable;
      push_event(slot, SidrEventType::kUnreachable, -ETIMEDOUT, {});
      return;
  }
}

void Engine::enter(TimeNs now, Slot slot, SidrState next) {
  SidrExchange& e = sidr_.exchanges[slot];
  const SidrState before = e.state;
  if (next == before) return;
  e.state = next;
  if (next == SidrState::kRepSent) {
    // As long as one asks that hears nothing.
    sidr_.timers.set(slot, now + (config_.max_cm_retries + 1) * kInterval);
    return;
  }
  // What is left is kIdle and kGone.
  sidr_.timers.remove(slot);
  if (e.message != SidrExchange::kNone) sidr_.messages.give_back(e.message);
  e.message = SidrExchange::kNone;
  if (!e.active && before != SidrState::kIdle) {
    sidr_.by_remote_request.erase(remote_hash(e.path, e.service_id, e.request_id), slot);
  }
  if (next != SidrState::kGone) return;
  if (e.active) sidr_.by_request_id.erase(e.request_id, slot);
  take_sidr_request(slot);
  ++e.generation;
  sidr_.exchanges.give_back(slot);
}

// --------------------------------------------------------------------------------------------------------------------
// Commands.

Result<SidrId> Engine::sidr_connect(TimeNs now, const SidrConnectParams& params) {
  if (params.private_data.size() > kSidrRequestPrivateDataMax) {
    return fail(EINVAL, "private data longer than 180 bytes");
  }
  if (sidr_.exchanges.in_use() >= config_.connections_max) return fail(ENOMEM, "too many SIDR exchanges");
  ++counters_.sidr_connects;
  const std::uint32_t request_id = new_comm_id();
  const Slot slot = create_sidr_exchange(params.path);
  SidrExchange& e = sidr_.exchanges[slot];
  e.state = SidrState::kReqSent;
  e.active = true;
  e.user = params.user;
  e.request_id = request_id;
  e.service_id = params.service_id;
  e.qkey = params.qkey;
  e.sent_at = now;
  e.give_up_at = now + (config_.max_cm_retries + 1) * kInterval;
  e.wait = peers_.first_sidr_wait(peers_.find(e.path), kInterval);
  sidr_.by_request_id.insert(request_id, slot);
  if (observer_ != nullptr) observer_->on_begin(slot, e);
  cause_ = {.of = Cause::Of::kSidrConnect, .slot = slot};
  send_sidr_req(slot, params);
  arm_sidr(now, slot);
  return sidr_handle(slot);
}

void Engine::sidr_request_taken(SidrId id) {
  if (const Slot slot = slot_of(id); slot != SidrExchange::kNone) take_sidr_request(slot);
}

void Engine::sidr_set_user(SidrId id, std::uint64_t user) {
  if (const Slot slot = slot_of(id); slot != SidrExchange::kNone) sidr_.exchanges[slot].user = user;
}

Result<void> Engine::command(SidrId id, const SidrStimulus& stimulus) {
  const Slot slot = slot_of(id);
  if (slot == SidrExchange::kNone) return fail(EINVAL, "no such SIDR exchange");
  return step(slot, stimulus);
}

Result<void> Engine::sidr_accept(TimeNs now, SidrId id, const SidrAcceptParams& params) {
  if (params.private_data.size() <= kSidrReplyPrivateDataMax && params.qpn <= wire::kMask24) {
    return command(id, {.now = now, .input = SidrInput::kAccept, .answer = params});
  }
  // The peer must not wait for an answer that will not come.  // Linux: same
  if (state(id) == SidrState::kReqReceived) (void)sidr_reject(now, id, {});
  return fail(EINVAL, "private data longer than 136 bytes, or a QP number above 24 bits");
}

Result<void> Engine::sidr_reject(TimeNs now, SidrId id, Bytes private_data) {
  if (private_data.size() > kSidrReplyPrivateDataMax) return fail(EINVAL, "private data longer than 136 bytes");
  return command(id, {.now = now, .input = SidrInput::kReject, .answer = {.private_data = private_data}});
}

void Engine::sidr_destroy(TimeNs now, SidrId id) { (void)command(id, {.now = now, .input = SidrInput::kDestroy}); }

std::optional<SidrState> Engine::state(SidrId id) const {
  const Slot slot = slot_of(id);
  if (slot == SidrExchange::kNone) return std::nullopt;
  return sidr_.exchanges[slot].state;
}

void Engine::close_sidr_listener(TimeNs now, Listeners::Index listener) {
  for (Slot slot = 0; listeners_[listener].untaken_sidr != 0; ++slot) {
    if (sidr_.exchanges[slot].listener == listener) sidr_destroy(now, sidr_handle(slot));
  }
}

// --------------------------------------------------------------------------------------------------------------------
// Events, packets, time.

void Engine::deliver_sidr_request(const Path& path, const wire::MadHeader& header, const wire::SidrReq& req,
                                  const wire::IpCmHeader& addresses, Listeners::Index listener) {
  ++counters_.sidr_requests;
  const Slot slot = create_sidr_exchange(path);
  SidrExchange& e = sidr_.exchanges[slot];
  e.state = SidrState::kReqReceived;
  e.transaction_id = header.transaction_id;
  e.request_id = req.request_id;
  e.service_id = req.service_id;
  e.listener = listener;
  ++listeners_[listener].untaken_sidr;
  sidr_.by_remote_request.insert(remote_hash(path, req.service_id, req.request_id), slot);
  if (observer_ != nullptr) observer_->on_begin(slot, e);
  SidrEvent& event =
      push_event(slot, SidrEventType::kRequest, 0, Bytes(req.private_data).subspan(wire::IpCmHeader::kSize));
  event.listener = listener_handle(listener);
  event.user = listeners_[listener].params.user;
  event.addresses = addresses;
  event.path = path;
}

SidrEvent& Engine::push_event(Slot slot, SidrEventType type, std::int32_t status, Bytes private_data) {
  SidrEvent& event = sidr_.events.push_reused();
  event = SidrEvent{};
  event.type = type;
  event.exchange = sidr_handle(slot);
  event.user = sidr_.exchanges[slot].user;
  event.status = status;
  event.private_data.assign(private_data);
  return event;
}

std::optional<SidrEvent> Engine::poll_sidr_event() {
  auto& events = sidr_.events;
  // What was destroyed in the meantime has no events any more.
  while (!events.empty() && slot_of(events.front().exchange) == SidrExchange::kNone) events.pop_front();
  if (events.empty()) return std::nullopt;
  std::optional<SidrEvent> event = events.front();
  events.pop_front();
  return event;
}

void Engine::on_sidr_deadline(TimeNs now) {
  for (std::size_t i = 0; i < kTimersPerCall && sidr_.timers.next() <= now; ++i) {
    const Slot slot = sidr_.timers.pop();
    const SidrExchange& e = sidr_.exchanges[slot];
    const SidrInput input = e.state == SidrState::kRepSent ? SidrInput::kPeerSatisfied
                            : now < e.give_up_at           ? SidrInput::kRetryDue
                                                           : SidrInput::kRetriesExhausted;
    (void)step(slot, {.now = now, .input = input});
  }
}

void Engine::add_sidr_to(StateHash& hash) const {
  for (Slot slot = 0; slot < sidr_.exchanges.capacity(); ++slot) {
    const SidrExchange& e = sidr_.exchanges[slot];
    hash.add(e.generation);
    hash.add(e.state);
    if (e.state == SidrState::kGone) continue;
    e.add_to(hash);
    hash.add(sidr_.timers.deadline_of(slot));
    if (e.message != SidrExchange::kNone) hash.add(Bytes(sidr_.messages[e.message]));
  }
  for (auto i = sidr_.events.begin_index(); i != sidr_.events.end_index(); ++i) {
    hash.add(sidr_.events[i].type);
    hash.add(sidr_.events[i].exchange);
    hash.add(sidr_.events[i].status);
  }
}

}  // namespace ucm::cm
