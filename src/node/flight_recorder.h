// The one list of what happens in a node, as records in a bounded ring: messages, calls, timers, events. Each record
// leads to the one before of the same connection, so that a connection's story can be told after the fact. Beside it:
// what `ucm list` and `ucm stats` show of a connection's past. Pure.
//
// The core tells what it does; the engine tells by cm::Observer. `now` is given once per call from outside (at()).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/time.h"
#include "cm/engine.h"
#include "cm/observer.h"
#include "ipc/cm_api.h"
#include "ipc/trace.h"
#include "net/packet_port.h"
#include "node/rdma_id.h"

namespace ucm::node {

// Times of one kind, in buckets whose upper ends are 1.024 us * 2^i; the last one takes the rest.
struct Histogram {
  static constexpr std::size_t kBuckets = 32;
  static constexpr TimeNs upper_end(std::size_t bucket) { return TimeNs{1024} << bucket; }

  std::array<std::uint64_t, kBuckets> counts{};
  TimeNs sum = 0;

  void add(TimeNs time);
  std::uint64_t total() const;
};

// Of messages of one type.
struct MessageCounts {
  std::uint64_t sent = 0;
  std::uint64_t repeated = 0;  // of these
  std::uint64_t received = 0;
  std::uint64_t duplicates = 0;  // of these: answered as the one before
  std::uint64_t refused = 0;     // of these: for no connection, and answered
  std::uint64_t dropped = 0;     // of these
};

class FlightRecorder final : public cm::Observer {
 public:
  // What is known of a connection's past, by its slot in the engine.
  struct Track {
    TimeNs began = 0;
    TimeNs entered = 0;  // its state
    TimeNs sent_at = 0;
    TimeNs received_at = 0;
    std::uint64_t last = 0;  // record; see Last
    std::uint32_t id = 0;
    std::uint32_t user = ipc::kTraceNoUser;
    std::uint32_t local_comm_id = 0;
    std::uint16_t retries = 0;
    std::uint8_t sent = 0;      // the last message; 0: none
    std::uint8_t received = 0;  // the last message; 0: none
    std::uint8_t state = 0;
  };
  static_assert(sizeof(Track) <= 64);
  // A message as it travelled, beside its record.
  struct Message {
    const wire::DatagramInfo& info;
    Bytes mad;
    bool sent = false;
  };
  // `message` is null for records that are no messages.
  using Tap = std::function<void(const ipc::TraceRecord&, const Message* message)>;
  // Indices of messages(): the low byte of the MAD's attribute; 0: anything else.
  static constexpr std::size_t kMessages = 0x1B;

  // `capacity` is a power of two.
  explicit FlightRecorder(std::size_t capacity);

  void at(TimeNs now) { now_ = now; }

  // Around one call of a program; `id` is null while there is none, and at its end not yet destroyed. A call that the
  // engine has taken is in its connection's records already; any other one, or one that failed, gets its own.
  void begin_call(RdmaId* id) {
    caller_ = id;
    call_is_told_ = false;
  }
  void end_call(RdmaId* id, ipc::CmCall call, std::int32_t error);
  // Why the call or event that is told next is a failure.
  void explain(std::string_view why);
  // The ID of a connection, or exchange, that a request has made.
  void adopt(const RdmaId& id);
  void event(RdmaId& id, const ipc::CmEvent& event);
  // Around cm::Engine::on_packet().
  void begin_packet(const wire::DatagramInfo& info, Bytes mad);
  void end_packet() { packet_.reset(); }
  void sent(const cm::Packet& packet, const wire::DatagramInfo& info);

  void on_begin(std::uint32_t slot, const cm::Connection& connection) override;
  void on_begin(std::uint32_t slot, const cm::SidrExchange& exchange) override;
  void on_step(std::uint32_t slot, const cm::Connection& connection, cm::Input input,
               const cm::Transition& to) override;
  void on_step(std::uint32_t slot, const cm::SidrExchange& exchange, cm::SidrInput input,
               const cm::SidrTransition& to) override;
  void on_stray(std::uint64_t cm::Counters::* counted) override;

  // Records ever made; the newest one is total() - 1. Older ones than the capacity are gone.
  std::uint64_t total() const { return total_; }
  std::uint64_t oldest() const { return total_ > capacity_ ? total_ - capacity_ : 0; }
  // `number` is in [oldest(), total()).
  const ipc::TraceRecord& record(std::uint64_t number) const { return ring_[number & (capacity_ - 1)]; }
  // The newest record of the connection that `matches` finds; nullopt when there is none. Looks through the ring.
  std::optional<std::uint64_t> find(const std::function<bool(const ipc::TraceRecord&)>& matches) const;
  // The one before of the same connection; nullopt when there is none, or it is gone.
  std::optional<std::uint64_t> previous(std::uint64_t number) const;

  // Empty: none was told, or it is gone.
  std::string_view reason_of(std::uint64_t number) const;

  const Track* connection_track(std::uint32_t slot) const { return connections_.find(slot); }
  const Track* exchange_track(std::uint32_t slot) const { return exchanges_.find(slot); }
  const std::array<MessageCounts, kMessages>& messages() const { return messages_; }
  // How many connections are in a state now.
  std::uint64_t count_in(cm::State state) const { return in_state_[static_cast<std::size_t>(state)]; }
  // How long connections stayed in a state.
  const Histogram& time_in(cm::State state) const { return times_[static_cast<std::size_t>(state)]; }
  // From connect() or the REQ to ESTABLISHED.
  const Histogram& set_up_time() const { return set_up_; }

  // Sees every record from now on; nullptr ends that. It must not call the recorder.
  void set_tap(Tap tap) { tap_ = std::move(tap); }

 private:
  // By slot, in chunks that stay where they are.
  class Tracks {
   public:
    Track& operator[](std::uint32_t slot) {
      if (slot / kChunk >= chunks_.size()) grow(slot);
      return chunks_[slot / kChunk][slot % kChunk];
    }
    const Track* find(std::uint32_t slot) const;

   private:
    static constexpr std::uint32_t kChunk = 512;
    void grow(std::uint32_t slot);
    std::vector<std::vector<Track>> chunks_;
  };
  // The last ones; few calls and events are failures.
  static constexpr std::size_t kReasons = 1024;
  struct Reason {
    std::uint64_t number = UINT64_MAX;  // of the record
    std::string text;
  };
  struct Packet {
    Message message;
    std::uint8_t attribute;
    bool taken;  // it has its record
  };

  // The next record of the ring, to be filled; complete() ends that. `last` is the number of the connection's newest
  // record plus one, 0: none.
  ipc::TraceRecord& next(std::uint64_t& last, const ipc::TraceRecord& record);
  void complete(const ipc::TraceRecord& record, const Message* message) const {
    if (tap_) tap_(record, message);
  }
  // Where the story of an ID goes on: with its connection, or its exchange, if it has one.
  std::uint64_t& last_of(RdmaId& id);
  // `record` has what only the kind of connection tells.
  void begin(Track& track, const ipc::TraceRecord& record);
  // `message`: the input is one.
  void step(Track& track, const ipc::TraceRecord& record, bool message);
  // The packet at hand, the first time that something comes of it; then null.
  Packet* take_packet();

  std::size_t capacity_;
  std::vector<ipc::TraceRecord> ring_;
  std::uint64_t total_ = 0;
  TimeNs now_ = 0;
  RdmaId* caller_ = nullptr;      // while a call is executed: whose story a connection that it makes goes on with
  bool call_is_told_ = true;      // by what the engine has made of it
  std::optional<Packet> packet_;  // at hand
  Tracks connections_;
  Tracks exchanges_;
  std::vector<Reason> reasons_;
  std::size_t next_reason_ = 0;
  std::array<MessageCounts, kMessages> messages_{};
  std::array<Histogram, cm::kStateCount> times_{};
  Histogram set_up_;
  std::array<std::uint64_t, cm::kStateCount + 1> in_state_{};  // the last one is kGone
  Tap tap_;
};

// The index of a counter in cm::kCounterFields, as records tell it.
std::int32_t trace_counter(std::uint64_t cm::Counters::* counter);

}  // namespace ucm::node
