#include "cli/retelling.h"

#include <optional>
#include <utility>

#include "daemon/observation.h"
#include "node/rdma_id.h"

namespace ucm::cli {
namespace {

using ipc::CmCall;
using ipc::CmEventType;

// What a flight recorder needs to know of a connection's ID. The engine's user is its number.
node::RdmaId owner_of(const cm::Engine& engine, cm::ConnectionId id) {
  node::RdmaId owner;
  const cm::Connection* const connection = engine.connection(id);
  if (connection != nullptr) owner.id = static_cast<std::uint32_t>(connection->user);
  if (connection != nullptr) owner.connection = id;
  return owner;
}

node::RdmaId owner_of(const cm::Engine& engine, cm::SidrId id) {
  node::RdmaId owner;
  owner.qp_type = node::kQpTypeUd;
  if (!engine.state(id)) return owner;
  owner.id = static_cast<std::uint32_t>(engine.exchange_in(cm::slot_in(id))->user);
  owner.exchange = id;
  return owner;
}

struct CallTold {
  CmCall call{};
  node::RdmaId owner;
  std::int32_t error = 0;
};

// The program's call behind an input; nullopt: there is none. Asked before the input is played.
std::optional<CallTold> call_of(const cm::Engine& engine, const recording::Record& input) {
  using namespace recording;
  const auto with = [&](CmCall call, const auto& x) {
    return CallTold{.call = call, .owner = owner_of(engine, x.connection), .error = x.error};
  };
  const auto with_exchange = [&](CmCall call, const auto& x, std::int32_t error) {
    return CallTold{.call = call, .owner = owner_of(engine, x.exchange), .error = error};
  };
  const auto newcomer = [](const auto& x) {
    CallTold told{.call = CmCall::kConnect, .owner = {}, .error = x.error};
    told.owner.id = static_cast<std::uint32_t>(x.params.user);
    return told;
  };
  if (const auto* x = std::get_if<Listen>(&input)) {
    CallTold told{.call = CmCall::kListen, .owner = {}, .error = x->error};
    told.owner.id = static_cast<std::uint32_t>(x->params.user);
    return told;
  }
  if (const auto* x = std::get_if<Connect>(&input)) return newcomer(*x);
  if (const auto* x = std::get_if<SidrConnect>(&input)) return newcomer(*x);
  if (const auto* x = std::get_if<Accept>(&input)) return with(CmCall::kAccept, *x);
  if (const auto* x = std::get_if<Reject>(&input)) return with(CmCall::kReject, *x);
  if (const auto* x = std::get_if<RequestTaken>(&input)) return with(CmCall::kRequestTaken, *x);
  if (const auto* x = std::get_if<Establish>(&input)) return with(CmCall::kEstablish, *x);
  if (const auto* x = std::get_if<Notify>(&input)) return with(CmCall::kNotify, *x);
  if (const auto* x = std::get_if<Disconnect>(&input)) return with(CmCall::kDisconnect, *x);
  if (const auto* x = std::get_if<Destroy>(&input)) return with(CmCall::kDestroyId, *x);
  if (const auto* x = std::get_if<SidrAccept>(&input)) return with_exchange(CmCall::kAccept, *x, x->error);
  if (const auto* x = std::get_if<SidrReject>(&input)) return with_exchange(CmCall::kReject, *x, x->error);
  if (const auto* x = std::get_if<SidrDestroy>(&input)) return with_exchange(CmCall::kDestroyId, *x, 0);
  return std::nullopt;
}

CmEventType type_of(cm::EventType type) {
  switch (type) {
    case cm::EventType::kConnectRequest:
      return CmEventType::kConnectRequest;
    case cm::EventType::kConnectResponse:
      return CmEventType::kConnectResponse;
    case cm::EventType::kEstablished:
      return CmEventType::kEstablished;
    case cm::EventType::kRejected:
      return CmEventType::kRejected;
    case cm::EventType::kUnreachable:
      return CmEventType::kUnreachable;
    case cm::EventType::kDisconnected:
      return CmEventType::kDisconnected;
    case cm::EventType::kTimewaitExit:
      break;
  }
  return CmEventType::kTimewaitExit;
}

CmEventType type_of(cm::SidrEventType type) {
  switch (type) {
    case cm::SidrEventType::kRequest:
      return CmEventType::kConnectRequest;
    case cm::SidrEventType::kReply:
      return CmEventType::kEstablished;
    case cm::SidrEventType::kBadQkey:
      return CmEventType::kAddrError;
    case cm::SidrEventType::kRefused:
    case cm::SidrEventType::kUnreachable:
      break;
  }
  return CmEventType::kUnreachable;
}

wire::DatagramInfo info_of(const wire::IpAddress& source, const wire::IpAddress& destination, const cm::Path& path) {
  return {.source = source,
          .destination = destination,
          .traffic_class = path.traffic_class,
          .hop_limit = path.hop_limit,
          .ifindex = path.ifindex};
}

// The newest records are all that is asked for.
constexpr std::size_t kRecords = 1024;

}  // namespace

Retelling::Retelling(recording::Player& player) : player_(player), recorder_(kRecords) {
  recorder_.set_tap([this](const ipc::TraceRecord& record, const node::FlightRecorder::Message* message) {
    ToldFrame& told = told_.emplace_back(ToldFrame{.frame = daemon::frame_of(record, message)});
    if (message != nullptr) told.mad.assign(message->mad.begin(), message->mad.end());
  });
  recorder_.at(player_.started_at());
  player_.engine().observe(&recorder_);
  player_.on_sent = [this](const cm::Packet& packet) {
    recorder_.sent(packet, info_of(packet.path.local, packet.path.remote, packet.path));
  };
  player_.on_told = [this](const cm::Event& event) {
    node::RdmaId owner = owner_of(player_.engine(), event.connection);
    recorder_.event(owner, {.type = type_of(event.type), .status = event.status});
  };
  player_.on_sidr_told = [this](const cm::SidrEvent& event) {
    node::RdmaId owner = owner_of(player_.engine(), event.exchange);
    recorder_.event(owner, {.type = type_of(event.type), .status = event.status});
  };
}

std::vector<ToldFrame> Retelling::play() {
  told_.clear();
  const recording::Record input = player_.upcoming()->record;
  if (const auto now = recording::time_of(input)) recorder_.at(*now);
  if (const auto* const received = std::get_if<recording::Received>(&input)) {
    const auto info = info_of(received->path.remote, received->path.local, received->path);
    recorder_.begin_packet(info, received->mad);
    player_.play();
    recorder_.end_packet();
  } else if (auto call = call_of(player_.engine(), input)) {
    // An ID that is destroyed has no connection any more that the call could be told of.
    const bool ends = call->call == CmCall::kDestroyId;
    recorder_.begin_call(&call->owner);
    if (ends) recorder_.end_call(&call->owner, call->call, call->error);
    player_.play();
    if (!ends) recorder_.end_call(&call->owner, call->call, call->error);
  } else {
    player_.play();
  }
  if (const auto* const named = std::get_if<recording::SetUser>(&input)) {
    recorder_.adopt(owner_of(player_.engine(), named->connection));
  } else if (const auto* const exchange = std::get_if<recording::SidrSetUser>(&input)) {
    recorder_.adopt(owner_of(player_.engine(), exchange->exchange));
  }
  return std::move(told_);
}

}  // namespace ucm::cli
