// The answers to kObserve: each gives its pieces as they are asked for, so that a long one never holds up the node, and
// a reader that does not read costs one piece.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/node_access.h"
#include "ipc/observe.h"
#include "node/flight_recorder.h"

namespace ucm::daemon {

using Piece = std::vector<std::uint8_t>;

// Who looks: one user sees what is that user's, root and the node's own user see all.
struct Viewer {
  std::uint32_t user = 0;
  bool sees_all = false;
  bool sees(std::uint32_t owner) const { return sees_all || owner == user; }
};

class Observation {
 public:
  virtual ~Observation() = default;
  enum class Next : std::uint8_t { kPiece, kNothingYet, kEnd };
  // Appends to `piece`, which has ipc::kObservePieceMax bytes to fill.
  virtual Next next(Piece& piece) = 0;
  // Has a piece although it had nothing before.
  virtual bool has_news() const { return false; }
};

class ListObservation final : public Observation {
 public:
  // A session's process, for a person.
  struct Program {
    std::int32_t pid = 0;
    std::string name;
  };
  ListObservation(const NodeAccess& node, Viewer viewer, std::function<Program(node::SessionId)> program_of,
                  std::function<TimeNs()> now);
  Next next(Piece& piece) override;

 private:
  const NodeAccess& node_;
  Viewer viewer_;
  std::function<Program(node::SessionId)> program_of_;
  std::function<TimeNs()> now_;
  node::Node::ListPosition position_;
};

// The story of a connection, newest record first.
class ShowObservation final : public Observation {
 public:
  ShowObservation(const node::FlightRecorder& recorder, Viewer viewer, std::uint32_t id_or_comm_id);
  // It has been found, and the viewer may see it.
  bool found() const { return next_.has_value(); }
  Next next(Piece& piece) override;

 private:
  const node::FlightRecorder& recorder_;
  const Viewer viewer_;
  std::optional<std::uint64_t> next_;  // the number of the next record
};

class TextObservation final : public Observation {
 public:
  explicit TextObservation(std::string text) : text_(std::move(text)) {}
  Next next(Piece& piece) override;

 private:
  std::string text_;
  std::size_t done_ = 0;
};

// What is recorded while somebody watches. Waits in a bounded queue; what finds it full is counted, and told.
class TraceObservation final : public Observation {
 public:
  explicit TraceObservation(Viewer viewer) : viewer_(viewer) {}
  void take(const ipc::TraceRecord& record, const node::FlightRecorder::Message* message);
  Next next(Piece& piece) override;
  bool has_news() const override { return !waiting_.empty(); }

 private:
  Viewer viewer_;
  Piece waiting_;
  std::size_t done_ = 0;  // of these bytes
  std::int32_t lost_ = 0;
};

// What the engine is given and makes of it (src/recording). Nothing of it may be missing: a reader who is too slow for
// a bounded queue gets the end.
class RecordObservation final : public Observation {
 public:
  RecordObservation() : queue_(std::make_shared<Queue>()) {}
  ~RecordObservation() override { queue_->closed = true; }
  // For the node. It may be called after the end of the observation.
  std::function<bool(Bytes record)> sink();
  Next next(Piece& piece) override;
  bool has_news() const override { return !queue_->pieces.empty() || queue_->closed; }

 private:
  struct Queue {
    std::deque<Piece> pieces;
    bool closed = false;  // takes no more
  };
  std::shared_ptr<Queue> queue_;
};

// As a trace has it.
ipc::TraceFrame frame_of(const ipc::TraceRecord& record, const node::FlightRecorder::Message* message);

}  // namespace ucm::daemon
