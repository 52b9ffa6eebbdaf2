#include "recording/recorded_engine.h"

#include <utility>

#include "recording/coding.h"

namespace ucm::recording {
namespace {

template <class T>
std::int32_t error_of(const Result<T>& result) {
  return result ? 0 : result.error().code;
}
template <class T>
T value_of(const Result<T>& result) {
  return result ? *result : T{};
}

}  // namespace

void RecordedEngine::record(TimeNs now, const cm::Config& config, Sink sink) {
  static_cast<cm::Engine&>(*this) = cm::Engine(config);
  sink_ = std::move(sink);
  drained_ = 0;
  write(Start{.now = now, .config = config});
}

void RecordedEngine::write(const Record& record) {
  const bool input = output_kind(record) == 0;
  buffer_.clear();
  emit(record, input ? drained_ : std::uint8_t{0}, buffer_);
  if (input) drained_ = 0;
  if (!sink_(buffer_)) sink_ = nullptr;
}

Result<cm::ListenerId> RecordedEngine::listen(const cm::ListenParams& params) {
  auto result = Engine::listen(params);
  if (sink_) write(Listen{params, error_of(result), value_of(result)});
  return result;
}

void RecordedEngine::close_listener(TimeNs now, cm::ListenerId id) {
  Engine::close_listener(now, id);
  if (sink_) write(CloseListener{now, id});
}

Result<cm::ConnectionId> RecordedEngine::connect(TimeNs now, const cm::ConnectParams& params) {
  auto result = Engine::connect(now, params);
  if (sink_) write(Connect{now, params, error_of(result), value_of(result)});
  return result;
}

void RecordedEngine::request_taken(TimeNs now, cm::ConnectionId id) {
  Engine::request_taken(now, id);
  if (sink_) write(RequestTaken{now, id, 0});
}

void RecordedEngine::set_user(cm::ConnectionId id, std::uint64_t user) {
  Engine::set_user(id, user);
  if (sink_) write(SetUser{id, user});
}

Result<void> RecordedEngine::accept(TimeNs now, cm::ConnectionId id, const cm::AcceptParams& params) {
  auto result = Engine::accept(now, id, params);
  if (sink_) write(Accept{now, id, params, error_of(result)});
  return result;
}

Result<void> RecordedEngine::reject(TimeNs now, cm::ConnectionId id, const cm::RejectParams& params) {
  auto result = Engine::reject(now, id, params);
  if (sink_) write(Reject{now, id, params, error_of(result)});
  return result;
}

Result<void> RecordedEngine::establish(TimeNs now, cm::ConnectionId id) {
  auto result = Engine::establish(now, id);
  if (sink_) write(Establish{now, id, error_of(result)});
  return result;
}

Result<void> RecordedEngine::notify_established(TimeNs now, cm::ConnectionId id) {
  auto result = Engine::notify_established(now, id);
  if (sink_) write(Notify{now, id, error_of(result)});
  return result;
}

void RecordedEngine::disconnect(TimeNs now, cm::ConnectionId id) {
  Engine::disconnect(now, id);
  if (sink_) write(Disconnect{now, id, 0});
}

void RecordedEngine::destroy(TimeNs now, cm::ConnectionId id) {
  Engine::destroy(now, id);
  if (sink_) write(Destroy{now, id, 0});
}

Result<cm::SidrId> RecordedEngine::sidr_connect(TimeNs now, const cm::SidrConnectParams& params) {
  auto result = Engine::sidr_connect(now, params);
  if (sink_) write(SidrConnect{now, params, error_of(result), value_of(result)});
  return result;
}

void RecordedEngine::sidr_request_taken(cm::SidrId id) {
  Engine::sidr_request_taken(id);
  if (sink_) write(SidrRequestTaken{id});
}

void RecordedEngine::sidr_set_user(cm::SidrId id, std::uint64_t user) {
  Engine::sidr_set_user(id, user);
  if (sink_) write(SidrSetUser{id, user});
}

Result<void> RecordedEngine::sidr_accept(TimeNs now, cm::SidrId id, const cm::SidrAcceptParams& params) {
  auto result = Engine::sidr_accept(now, id, params);
  if (sink_) write(SidrAccept{now, id, params, error_of(result)});
  return result;
}

Result<void> RecordedEngine::sidr_reject(TimeNs now, cm::SidrId id, Bytes private_data) {
  auto result = Engine::sidr_reject(now, id, private_data);
  if (sink_) write(SidrReject{now, id, private_data, error_of(result)});
  return result;
}

void RecordedEngine::sidr_destroy(TimeNs now, cm::SidrId id) {
  Engine::sidr_destroy(now, id);
  if (sink_) write(SidrDestroy{now, id});
}

void RecordedEngine::on_packet(TimeNs now, const cm::Path& path, Bytes mad) {
  Engine::on_packet(now, path, mad);
  if (sink_) write(Received{now, path, mad});
}

void RecordedEngine::on_deadline(TimeNs now) {
  Engine::on_deadline(now);
  if (sink_) write(Deadline{now});
}

const cm::Packet* RecordedEngine::poll_packet() {
  const cm::Packet* const packet = Engine::poll_packet();
  if (!sink_) return packet;
  if (packet != nullptr) write(Sent{packet->path, packet->mad});
  if (packet == nullptr) drained_ |= kPackets;
  return packet;
}

std::optional<cm::Event> RecordedEngine::poll_event() {
  auto event = Engine::poll_event();
  if (!sink_) return event;
  if (event) write(Told{*event});
  if (!event) drained_ |= kEvents;
  return event;
}

std::optional<cm::SidrEvent> RecordedEngine::poll_sidr_event() {
  auto event = Engine::poll_sidr_event();
  if (!sink_) return event;
  if (event) write(SidrTold{*event});
  if (!event) drained_ |= kSidrEvents;
  return event;
}

}  // namespace ucm::recording
