#include "node/flight_recorder.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "node/probes.h"
#include "wire/mad.h"

namespace ucm::node {
namespace {

using ipc::TraceKind;
using ipc::TraceRecord;

constexpr std::int32_t index_of(std::uint64_t cm::Counters::* counter) {
  const auto* const found = std::ranges::find(cm::kCounterFields, counter, &cm::CounterField::member);
  return static_cast<std::int32_t>(found - cm::kCounterFields.begin());
}

// What is counted there is answered; what is counted before, dropped.
constexpr std::int32_t kFirstAnswered = index_of(&cm::Counters::rejected_no_listener);

constexpr bool is_message(cm::Input input) { return input <= cm::Input::kDrep; }
constexpr bool is_message(cm::SidrInput input) { return input <= cm::SidrInput::kRepRefused; }

// Nothing new to the connection: the answer is the one before.
constexpr bool is_duplicate(const TraceRecord& record) {
  if (record.from != record.to) return false;
  if ((record.flags & ipc::kTraceSidr) != 0) return record.action == static_cast<std::uint8_t>(cm::SidrAction::kResend);
  const auto action = static_cast<cm::Action>(record.action);
  return action == cm::Action::kSendMra || action == cm::Action::kResend || action == cm::Action::kSendRtu ||
         action == cm::Action::kSendDrep;
}

constexpr bool is_ignored(const TraceRecord& record) {
  return (record.flags & ipc::kTraceSidr) != 0 ? record.action == static_cast<std::uint8_t>(cm::SidrAction::kIgnore)
                                               : record.action == static_cast<std::uint8_t>(cm::Action::kIgnore);
}

std::uint8_t attribute_of(Bytes mad) {
  if (mad.size() != wire::kMadSize) return 0;
  const std::uint16_t attribute = load_be16(&mad[wire::MadHeader::kAttributeOffset]);
  return attribute < FlightRecorder::kMessages ? static_cast<std::uint8_t>(attribute) : 0;
}

// Every CM message begins with its sender's comm ID and the receiver's, but for requests, which know none of the
// latter.
struct CommIds {
  std::uint32_t sender = 0;
  std::uint32_t receiver = 0;
};
CommIds comm_ids_of(Bytes mad, std::uint8_t attribute) {
  if (attribute == 0 || mad.size() != wire::kMadSize) return {};
  const bool request = attribute == static_cast<std::uint8_t>(wire::Attribute::kReq) ||
                       attribute == static_cast<std::uint8_t>(wire::Attribute::kSidrReq);
  const bool answer = attribute == static_cast<std::uint8_t>(wire::Attribute::kSidrRep);
  const std::uint32_t first = load_be32(&mad[wire::MadHeader::kSize]);
  const std::uint32_t second = load_be32(&mad[wire::MadHeader::kSize + 4]);
  if (answer) return {.receiver = first};
  return {.sender = first, .receiver = request ? 0 : second};
}

TraceRecord record_of(const cm::Connection& c) {
  return {.local_comm_id = c.local_comm_id,
          .remote_comm_id = c.remote_comm_id,
          .peer = c.path.remote.bytes,
          .flags = c.active ? ipc::kTraceActive : std::uint8_t{0},
          .local_qpn = c.local_qpn,
          .remote_qpn = c.remote_qpn};
}

TraceRecord record_of(const cm::SidrExchange& e) {
  return {.local_comm_id = e.active ? e.request_id : 0,
          .remote_comm_id = e.active ? 0 : e.request_id,
          .peer = e.path.remote.bytes,
          .flags = static_cast<std::uint8_t>(ipc::kTraceSidr | (e.active ? ipc::kTraceActive : 0))};
}

// Of a connection or an exchange.
template <class Subject, class Input, class Transition>
TraceRecord record_of_step(const Subject& subject, Input input, const Transition& to) {
  TraceRecord record = record_of(subject);
  record.input = static_cast<std::uint8_t>(input);
  record.action = static_cast<std::uint8_t>(to.action);
  record.from = static_cast<std::uint8_t>(subject.state);
  record.to = static_cast<std::uint8_t>(to.next);
  return record;
}

}  // namespace

std::int32_t trace_counter(std::uint64_t cm::Counters::* counter) { return index_of(counter); }

void Histogram::add(TimeNs time) {
  const auto units = static_cast<std::uint64_t>(std::max<TimeNs>(time, 1) - 1) / 1024;
  ++counts[std::min<std::size_t>(std::bit_width(units), kBuckets - 1)];
  sum += time;
}

std::uint64_t Histogram::total() const {
  std::uint64_t all = 0;
  for (const std::uint64_t count : counts) all += count;
  return all;
}

void FlightRecorder::Tracks::grow(std::uint32_t slot) {
  while (chunks_.size() <= slot / kChunk) chunks_.emplace_back(kChunk);
}

const FlightRecorder::Track* FlightRecorder::Tracks::find(std::uint32_t slot) const {
  return slot / kChunk < chunks_.size() ? &chunks_[slot / kChunk][slot % kChunk] : nullptr;
}

FlightRecorder::FlightRecorder(std::size_t capacity) : capacity_(capacity), ring_(capacity), reasons_(kReasons) {
  UCM_CHECK(std::has_single_bit(capacity));
}

TraceRecord& FlightRecorder::next(std::uint64_t& last, const TraceRecord& record) {
  const std::uint64_t back = total_ + 1 - last;
  TraceRecord& stored = ring_[total_ & (capacity_ - 1)];
  stored = record;
  stored.time_ns = now_;
  stored.previous = last != 0 && back < capacity_ ? static_cast<std::uint32_t>(back) : 0;
  last = ++total_;
  return stored;
}

// --------------------------------------------------------------------------------------------------------------------
// What the core tells.

std::uint64_t& FlightRecorder::last_of(RdmaId& id) {
  if (id.connection != cm::ConnectionId{}) return connections_[cm::slot_in(id.connection)].last;
  if (id.exchange != cm::SidrId{}) return exchanges_[cm::slot_in(id.exchange)].last;
  return id.last_record;
}

void FlightRecorder::end_call(RdmaId* id, ipc::CmCall call, std::int32_t error) {
  const bool told = call_is_told_ && error == 0;
  call_is_told_ = true;
  caller_ = nullptr;
  if (told) return;
  TraceRecord record{.status = error, .kind = TraceKind::kCall, .input = static_cast<std::uint8_t>(call)};
  std::uint64_t nothing = 0;
  if (id == nullptr) return complete(next(nothing, record), nullptr);
  record.id = id->id;
  record.user = id->user;
  record.peer = id->remote.address.bytes;
  complete(next(last_of(*id), record), nullptr);
}

void FlightRecorder::explain(std::string_view why) {
  Reason& reason = reasons_[next_reason_++ % kReasons];
  reason.number = total_;
  reason.text.assign(why.substr(0, UINT8_MAX));
}

std::string_view FlightRecorder::reason_of(std::uint64_t number) const {
  const auto found = std::ranges::find(reasons_, number, &Reason::number);
  return found != reasons_.end() ? std::string_view(found->text) : std::string_view();
}

void FlightRecorder::adopt(const RdmaId& id) {
  Track& track = id.is_datagram() ? exchanges_[cm::slot_in(id.exchange)] : connections_[cm::slot_in(id.connection)];
  track.id = id.id;
  track.user = id.user;
}

void FlightRecorder::event(RdmaId& id, const ipc::CmEvent& event) {
  const TraceRecord record{.id = id.id,
                           .user = id.user,
                           .status = event.status,
                           .peer = id.remote.address.bytes,
                           .kind = TraceKind::kEvent,
                           .input = static_cast<std::uint8_t>(event.type)};
  complete(next(last_of(id), record), nullptr);
}

void FlightRecorder::begin_packet(const wire::DatagramInfo& info, Bytes mad) {
  const std::uint8_t attribute = attribute_of(mad);
  ++messages_[attribute].received;
  packet_.emplace(Packet{.message = {.info = info, .mad = mad}, .attribute = attribute, .taken = false});
}

FlightRecorder::Packet* FlightRecorder::take_packet() {
  if (!packet_ || packet_->taken) return nullptr;
  packet_->taken = true;
  return &*packet_;
}

void FlightRecorder::sent(const cm::Packet& packet, const wire::DatagramInfo& info) {
  const cm::Cause& cause = packet.cause;
  const std::uint8_t attribute = attribute_of(packet.mad);
  const CommIds ids = comm_ids_of(packet.mad, attribute);
  MessageCounts& counts = messages_[attribute];
  ++counts.sent;
  counts.repeated += cause.repetition != 0 ? 1 : 0;
  TraceRecord record{.local_comm_id = ids.sender,
                     .remote_comm_id = ids.receiver,
                     .peer = packet.path.remote.bytes,
                     .kind = TraceKind::kSent,
                     .message = attribute,
                     .input = cause.input,
                     .repetition = cause.repetition,
                     .flags = cause.last_words ? ipc::kTraceLastWords : std::uint8_t{0}};
  Track* track = nullptr;
  switch (cause.of) {
    case cm::Cause::Of::kPacket:
      record.flags |= ipc::kTraceAnswersStray;
      record.status = index_of(cause.counted);
      break;
    case cm::Cause::Of::kConnection:
      track = &connections_[cause.slot];
      break;
    case cm::Cause::Of::kSidrConnect:
      record.flags |= ipc::kTraceSidrConnect;
      [[fallthrough]];
    case cm::Cause::Of::kExchange:
      record.flags |= ipc::kTraceSidr;
      track = &exchanges_[cause.slot];
      break;
  }
  const Message message{.info = info, .mad = packet.mad, .sent = true};
  std::uint64_t nothing = 0;
  // The slot may be somebody else's already.
  const bool own =
      track != nullptr &&
      track->local_comm_id == (cause.of == cm::Cause::Of::kConnection || ids.sender != 0 ? ids.sender : ids.receiver);
  if (!own) return complete(next(nothing, record), &message);
  record.id = track->id;
  record.user = track->user;
  record.from = track->state;
  track->sent = attribute;
  track->sent_at = now_;
  if (cause.repetition != 0 && track->retries != UINT16_MAX) ++track->retries;
  complete(next(track->last, record), &message);
}

// --------------------------------------------------------------------------------------------------------------------
// What the engine tells.

void FlightRecorder::begin(Track& track, const TraceRecord& record) {
  track = {};
  if (caller_ != nullptr) {
    track.id = caller_->id;
    track.user = caller_->user;
    track.last = caller_->last_record;
  }
  track.began = track.entered = now_;
  track.state = record.to;
  track.local_comm_id = record.local_comm_id != 0 ? record.local_comm_id : record.remote_comm_id;
  TraceRecord& stored = next(track.last, record);
  stored.kind = TraceKind::kBegin;
  stored.id = track.id;
  stored.user = track.user;
  call_is_told_ = true;
  const Packet* const packet = take_packet();
  if (packet != nullptr) {
    stored.message = track.received = packet->attribute;
    track.received_at = now_;
  }
  complete(stored, packet != nullptr ? &packet->message : nullptr);
}

void FlightRecorder::on_begin(std::uint32_t slot, const cm::Connection& connection) {
  TraceRecord record = record_of(connection);
  record.to = static_cast<std::uint8_t>(connection.state);
  ++in_state_[record.to];
  begin(connections_[slot], record);
}

void FlightRecorder::on_begin(std::uint32_t slot, const cm::SidrExchange& exchange) {
  TraceRecord record = record_of(exchange);
  record.to = static_cast<std::uint8_t>(exchange.state);
  begin(exchanges_[slot], record);
}

void FlightRecorder::step(Track& track, const TraceRecord& record, bool message) {
  track.state = record.to;
  TraceRecord& stored = next(track.last, record);
  stored.id = track.id;
  stored.user = track.user;
  const Packet* const packet = message ? take_packet() : nullptr;
  if (packet == nullptr) {
    stored.kind = TraceKind::kStep;
    call_is_told_ = true;
    return complete(stored, nullptr);
  }
  stored.kind = TraceKind::kReceived;
  stored.message = track.received = packet->attribute;
  track.received_at = now_;
  messages_[packet->attribute].duplicates += is_duplicate(record) ? 1 : 0;
  messages_[packet->attribute].dropped += is_ignored(record) ? 1 : 0;
  complete(stored, &packet->message);
}

void FlightRecorder::on_step(std::uint32_t slot, const cm::Connection& connection, cm::Input input,
                             const cm::Transition& to) {
  probes::state(connection.local_comm_id, connection.state, to.next, input);
  Track& track = connections_[slot];
  const TraceRecord record = record_of_step(connection, input, to);
  if (to.next != connection.state) {
    --in_state_[record.from];
    ++in_state_[record.to];
    times_[record.from].add(now_ - track.entered);
    track.entered = now_;
    if (to.next == cm::State::kEstablished) set_up_.add(now_ - track.began);
  }
  step(track, record, is_message(input));
}

void FlightRecorder::on_step(std::uint32_t slot, const cm::SidrExchange& exchange, cm::SidrInput input,
                             const cm::SidrTransition& to) {
  Track& track = exchanges_[slot];
  const TraceRecord record = record_of_step(exchange, input, to);
  if (to.next != exchange.state) track.entered = now_;
  step(track, record, is_message(input));
}

void FlightRecorder::on_stray(std::uint64_t cm::Counters::* counted) {
  const Packet* const packet = take_packet();
  if (packet == nullptr) return;
  const std::int32_t counter = index_of(counted);
  ++(counter >= kFirstAnswered ? messages_[packet->attribute].refused : messages_[packet->attribute].dropped);
  const CommIds ids = comm_ids_of(packet->message.mad, packet->attribute);
  const TraceRecord record{.local_comm_id = ids.receiver,
                           .remote_comm_id = ids.sender,
                           .status = counter,
                           .peer = packet->message.info.source.bytes,
                           .kind = TraceKind::kStray,
                           .message = packet->attribute};
  std::uint64_t nothing = 0;
  complete(next(nothing, record), &packet->message);
}

// --------------------------------------------------------------------------------------------------------------------
// Reading.

std::optional<std::uint64_t> FlightRecorder::find(const std::function<bool(const TraceRecord&)>& matches) const {
  for (std::uint64_t number = total_; number > oldest(); --number) {
    if (matches(record(number - 1))) return number - 1;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> FlightRecorder::previous(std::uint64_t number) const {
  const std::uint64_t back = record(number).previous;
  if (back == 0 || number - back < oldest()) return std::nullopt;
  return number - back;
}

}  // namespace ucm::node
