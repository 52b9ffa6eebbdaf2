#include "daemon/observation.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "daemon/address_text.h"
#include "node/flight_recorder.h"

namespace ucm::daemon {
namespace {

using nlohmann::json;

// An entry of a list is far below 768 bytes of JSON.
constexpr std::size_t kEntriesPerPiece = ipc::kObservePieceMax / 1024;
// A second's worth of messages at a high rate.
constexpr std::size_t kTraceWaitingMax = 4u << 20;
// 48 MiB: what a disk that stands still for a while costs.
constexpr std::size_t kRecordPiecesMax = 1024;

void append(Piece& piece, Bytes bytes) { piece.insert(piece.end(), bytes.begin(), bytes.end()); }

const char* kind_name(node::Node::Listing::Kind kind) {
  switch (kind) {
    case node::Node::Listing::Kind::kListener:
      return "listener";
    case node::Node::Listing::Kind::kConnection:
      return "connection";
    case node::Node::Listing::Kind::kDatagram:
      return "datagram";
  }
  return "";
}

// Times are nanoseconds ago.
void add_track(json& entry, const node::FlightRecorder::Track& track, TimeNs now) {
  entry["age_ns"] = now - track.began;
  entry["in_state_ns"] = now - track.entered;
  entry["retries"] = track.retries;
  if (track.sent != 0) entry["last_sent"] = {{"message", track.sent}, {"ago_ns", now - track.sent_at}};
  if (track.received != 0) entry["last_received"] = {{"message", track.received}, {"ago_ns", now - track.received_at}};
}

json entry_of(const node::Node::Listing& listing) {
  json entry{{"kind", kind_name(listing.kind)},
             {"id", listing.id},
             {"state", listing.state},
             {"local", text_of(listing.local)},
             {"port_space", listing.port_space}};
  if (listing.kind == node::Node::Listing::Kind::kListener) {
    entry["backlog"] = listing.backlog;
    entry["pending"] = listing.pending;
    return entry;
  }
  entry["remote"] = text_of(listing.remote);
  entry["active"] = listing.active;
  entry["local_comm_id"] = listing.local_comm_id;
  entry["remote_comm_id"] = listing.remote_comm_id;
  entry["qpn"] = listing.qpn;
  entry["peer_qpn"] = listing.peer_qpn;
  if (listing.answer_time) entry["answer_time_ns"] = *listing.answer_time;
  return entry;
}

const node::FlightRecorder::Track* track_of(const node::FlightRecorder& recorder, const node::Node::Listing& listing) {
  if (!listing.track_slot) return nullptr;
  return listing.kind == node::Node::Listing::Kind::kDatagram ? recorder.exchange_track(*listing.track_slot)
                                                              : recorder.connection_track(*listing.track_slot);
}

}  // namespace

ListObservation::ListObservation(const NodeAccess& node, Viewer viewer,
                                 std::function<Program(node::SessionId)> program_of, std::function<TimeNs()> now)
    : node_(node), viewer_(viewer), program_of_(std::move(program_of)), now_(std::move(now)) {}

Observation::Next ListObservation::next(Piece& piece) {
  if (position_.part == node::Node::ListPosition::Part::kEnd) return Next::kEnd;
  json entries = json::array();
  const node::FlightRecorder* const recorder = node_.recorder();
  for (const auto& listing : node_.list(position_, kEntriesPerPiece)) {
    const auto* const track = recorder != nullptr ? track_of(*recorder, listing) : nullptr;
    // What no program has any more is still its user's.
    const std::uint32_t owner = listing.id == 0 && track != nullptr ? track->user : listing.user;
    if (!viewer_.sees(owner)) continue;
    json entry = entry_of(listing);
    if (owner != ipc::kTraceNoUser) entry["uid"] = owner;
    if (track != nullptr) add_track(entry, *track, now_());
    if (listing.session != 0) {
      const Program program = program_of_(listing.session);
      entry["pid"] = program.pid;
      entry["program"] = program.name;
    }
    entries.push_back(std::move(entry));
  }
  if (entries.empty()) return Next::kPiece;  // nothing to send, but not the end
  const std::string text = entries.dump(-1, ' ', false, json::error_handler_t::replace);
  append(piece, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  return Next::kPiece;
}

// The newest record of an ID may be older than those that its connection goes on to make without it.
ShowObservation::ShowObservation(const node::FlightRecorder& recorder, Viewer viewer, std::uint32_t id_or_comm_id)
    : recorder_(recorder), viewer_(viewer) {
  const auto find = [&](auto member) {
    return recorder.find([&](const ipc::TraceRecord& r) { return r.*member == id_or_comm_id && viewer.sees(r.user); });
  };
  next_ = find(&ipc::TraceRecord::id);
  if (!next_) next_ = find(&ipc::TraceRecord::local_comm_id);
  if (!next_) return;
  for (auto number = next_; number; number = recorder.previous(*number)) {
    const std::uint32_t comm_id = recorder.record(*number).local_comm_id;
    if (comm_id == 0) continue;
    next_ = std::max(next_, recorder.find([&](const ipc::TraceRecord& r) {
      return r.local_comm_id == comm_id && viewer.sees(r.user) && r.kind != ipc::TraceKind::kStray;
    }));
    return;
  }
}

Observation::Next ShowObservation::next(Piece& piece) {
  if (!next_) return Next::kEnd;
  while (next_ && piece.size() + sizeof(ipc::TraceFrame) + UINT8_MAX <= ipc::kObservePieceMax) {
    // It may have been overwritten since the piece before.
    if (*next_ < recorder_.oldest()) {
      next_.reset();
      break;
    }
    ipc::TraceFrame frame = frame_of(recorder_.record(*next_), nullptr);
    const bool told = frame.record.kind == ipc::TraceKind::kCall || frame.record.kind == ipc::TraceKind::kEvent;
    const std::string_view why = told ? recorder_.reason_of(*next_) : std::string_view();
    frame.why_size = static_cast<std::uint8_t>(why.size());
    append(piece, ipc::bytes_of(frame));
    append(piece, {reinterpret_cast<const std::uint8_t*>(why.data()), why.size()});
    next_ = recorder_.previous(*next_);
  }
  return Next::kPiece;
}

Observation::Next TextObservation::next(Piece& piece) {
  if (done_ == text_.size()) return Next::kEnd;
  const std::size_t size = std::min(text_.size() - done_, ipc::kObservePieceMax);
  append(piece, {reinterpret_cast<const std::uint8_t*>(text_.data()) + done_, size});
  done_ += size;
  return Next::kPiece;
}

ipc::TraceFrame frame_of(const ipc::TraceRecord& record, const node::FlightRecorder::Message* message) {
  ipc::TraceFrame frame{.record = record};
  if (message == nullptr) return frame;
  frame.source = message->info.source.bytes;
  frame.destination = message->info.destination.bytes;
  frame.ifindex = message->info.ifindex;
  frame.source_port = message->info.source_port;
  frame.mad_size = message->mad.size() <= UINT16_MAX ? static_cast<std::uint16_t>(message->mad.size()) : 0;
  frame.traffic_class = message->info.traffic_class;
  frame.hop_limit = message->info.hop_limit;
  frame.sent = message->sent ? 1 : 0;
  return frame;
}

void TraceObservation::take(const ipc::TraceRecord& record, const node::FlightRecorder::Message* message) {
  if (!viewer_.sees(record.user)) return;
  const ipc::TraceFrame frame = frame_of(record, message);
  if (waiting_.size() + sizeof frame + frame.mad_size > kTraceWaitingMax) {
    if (lost_ != INT32_MAX) ++lost_;
    return;
  }
  append(waiting_, ipc::bytes_of(frame));
  if (frame.mad_size != 0) append(waiting_, message->mad);
}

Observation::Next TraceObservation::next(Piece& piece) {
  while (done_ < waiting_.size()) {
    ipc::TraceFrame frame;
    std::memcpy(&frame, &waiting_[done_], sizeof frame);
    const std::size_t size = sizeof frame + frame.mad_size;
    if (piece.size() + size > ipc::kObservePieceMax) return Next::kPiece;
    append(piece, Bytes(waiting_).subspan(done_, size));
    done_ += size;
  }
  waiting_.clear();
  done_ = 0;
  if (lost_ != 0 && piece.size() + sizeof(ipc::TraceFrame) <= ipc::kObservePieceMax) {
    ipc::TraceFrame frame;
    frame.record.status = lost_;
    append(piece, ipc::bytes_of(frame));
    lost_ = 0;
  }
  return piece.empty() ? Next::kNothingYet : Next::kPiece;
}

std::function<bool(Bytes)> RecordObservation::sink() {
  return [queue = queue_](Bytes record) {
    if (queue->pieces.empty() || queue->pieces.back().size() + record.size() > ipc::kObservePieceMax) {
      if (queue->pieces.size() == kRecordPiecesMax) queue->closed = true;
      if (!queue->closed) queue->pieces.emplace_back();
    }
    if (queue->closed) return false;
    append(queue->pieces.back(), record);
    return true;
  };
}

Observation::Next RecordObservation::next(Piece& piece) {
  if (queue_->pieces.empty()) return queue_->closed ? Next::kEnd : Next::kNothingYet;
  piece = std::move(queue_->pieces.front());
  queue_->pieces.pop_front();
  return Next::kPiece;
}

}  // namespace ucm::daemon
