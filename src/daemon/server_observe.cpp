// The server's side of kObserve: pieces go out a few per turn, on the session's control socket. Nobody waits for a
// reader: one that leaves its socket full for long is dropped.
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "daemon/server.h"
#include "daemon/server_types.h"
#include "daemon/stats.h"
#include "node/flight_recorder.h"

namespace ucm::daemon {
namespace {

// Of one observer in one turn: about as long as a batch of packets takes.
constexpr int kPiecesPerTurn = 4;
// A full socket is tried again after so long.
constexpr TimeNs kRetryNs = 2 * kNanosecondsPerMillisecond;

}  // namespace

Viewer Server::viewer_of(const Session& session) {
  return {.user = session.peer.uid, .sees_all = session.peer.uid == 0 || session.peer.uid == geteuid()};
}

void Server::observe(Session& session, const ipc::ControlRequest& request) {
  if (session.observation) return send_failure(session, request, EBUSY, "one question at a time");
  const Viewer viewer = viewer_of(session);
  node::FlightRecorder* const recorder = node_->recorder();
  const auto subject = static_cast<ipc::Subject>(request.subject);
  if (recorder == nullptr && (subject == ipc::Subject::kShow || subject == ipc::Subject::kTrace)) {
    return send_failure(session, request, ENODATA, "the flight recorder of this ucmd is off");
  }
  switch (subject) {
    case ipc::Subject::kList:
      session.observation = std::make_unique<ListObservation>(
          *node_, viewer,
          [this](node::SessionId id) {
            const auto it = sessions_.find(id);
            if (it == sessions_.end()) return ListObservation::Program{};
            return ListObservation::Program{.pid = it->second->peer.pid, .name = it->second->program_name};
          },
          [this] { return loop_.now(); });
      break;
    case ipc::Subject::kShow: {
      auto show = std::make_unique<ShowObservation>(*recorder, viewer, request.argument);
      if (!show->found()) return send_failure(session, request, ENOENT, "nothing is recorded of such a connection");
      session.observation = std::move(show);
      break;
    }
    case ipc::Subject::kStats:
      session.observation = std::make_unique<TextObservation>(stats().dump());
      break;
    case ipc::Subject::kTrace:
      session.observation = std::make_unique<TraceObservation>(viewer);
      break;
    case ipc::Subject::kRecord: {
      if (!viewer.sees_all) {
        return send_failure(session, request, EPERM, "only root and user " + std::to_string(geteuid()) + " may record");
      }
      if (std::ranges::any_of(observers_, [&](std::uint32_t id) {
            return dynamic_cast<RecordObservation*>(sessions_.at(id)->observation.get()) != nullptr;
          })) {
        return send_failure(session, request, EBUSY, "somebody records already");
      }
      auto recording = std::make_unique<RecordObservation>();
      const auto begun = node_->record_engine(recording->sink());
      if (!begun) return send_failure(session, request, begun.error().code, begun.error().message);
      session.observation = std::move(recording);
      break;
    }
    default:
      return send_failure(session, request, EINVAL, "no such subject");
  }
  session.observe_sequence = request.header.sequence;
  session.blocked_since = kNever;
  session.piece.clear();
  observers_.push_back(session.id);
  watch_trace();
  ipc::ControlReply reply = ipc::make_reply(request);
  send_reply(session, reply, {});
}

TraceObservation* Server::trace_of(std::uint32_t session) const {
  return dynamic_cast<TraceObservation*>(sessions_.at(session)->observation.get());
}

void Server::watch_trace() {
  node::FlightRecorder* const recorder = node_->recorder();
  if (recorder == nullptr) return;
  std::vector<TraceObservation*> traces;
  for (const std::uint32_t id : observers_) {
    if (TraceObservation* const trace = trace_of(id)) traces.push_back(trace);
  }
  if (traces.empty()) return recorder->set_tap(nullptr);
  recorder->set_tap([traces](const ipc::TraceRecord& record, const node::FlightRecorder::Message* message) {
    for (TraceObservation* const trace : traces) trace->take(record, message);
  });
}

TimeNs Server::serve_observers(TimeNs now) {
  TimeNs next = kNever;
  for (std::size_t i = observers_.size(); i-- > 0;) {
    Session& session = *sessions_.at(observers_[i]);
    if (!session.doomed) next = std::min(next, serve_observer(now, session));
    if (!session.observation) observers_.erase(observers_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return next;
}

TimeNs Server::serve_observer(TimeNs now, Session& session) {
  for (int i = 0; i < kPiecesPerTurn; ++i) {
    auto next = Observation::Next::kPiece;
    if (session.piece.empty()) {
      Piece payload;
      next = session.observation->next(payload);
      if (next == Observation::Next::kNothingYet) return kNever;
      if (next == Observation::Next::kPiece && payload.empty()) continue;
      const ipc::ControlHeader header{.call = ipc::ControlCall::kObserve,
                                      .size = static_cast<std::uint32_t>(sizeof(ipc::ControlHeader) + payload.size()),
                                      .sequence = session.observe_sequence};
      const Bytes bytes = ipc::bytes_of(header);
      session.piece.assign(bytes.begin(), bytes.end());
      session.piece.insert(session.piece.end(), payload.begin(), payload.end());
    }
    const auto sent = ipc::send_message(session.socket.get(), session.piece, {}, ipc::SendMode::kDontWait);
    if (!sent && sent.error().code == EAGAIN) {
      if (session.blocked_since == kNever) session.blocked_since = now;
      if (now - session.blocked_since < options_.observer_patience_ns) return now + kRetryNs;
      ++counters_.observers_dropped;
      doom(session, "does not read what it has asked for");
      return kNever;
    }
    if (!sent) {
      doom(session, sent.error().message);
      return kNever;
    }
    session.blocked_since = kNever;
    const bool end = session.piece.size() == sizeof(ipc::ControlHeader);
    session.piece.clear();
    if (!end) continue;
    session.observation.reset();
    return kNever;
  }
  return now;
}

bool Server::observers_sleep() const {
  return std::ranges::none_of(observers_, [&](std::uint32_t id) {
    const Session& session = *sessions_.at(id);
    return !session.doomed && session.blocked_since == kNever && session.observation->has_news();
  });
}

}  // namespace ucm::daemon
