// The CM protocol engine: every connection of a node, both roles, as a pure state machine. No I/O, clock, thread or
// random source: what arrives, the time and the random key come in as arguments; what leaves is polled.
//
// After any call that takes `now`, drain poll_packet(), poll_event() and poll_sidr_event() until they return nothing,
// and ask next_deadline() again. Same inputs in the same order give the same outputs. Not thread-safe. Copyable: a copy
// goes on exactly like the original (simulation, exploration, snapshot).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/deadline_heap.h"
#include "base/inline_bytes.h"
#include "base/random.h"
#include "base/result.h"
#include "base/ring_queue.h"
#include "base/time.h"
#include "cm/connection.h"
#include "cm/connection_record.h"
#include "cm/counters.h"
#include "cm/exchange.h"
#include "cm/last_words.h"
#include "cm/listeners.h"
#include "cm/observer.h"
#include "cm/path.h"
#include "cm/peers.h"
#include "cm/sidr.h"
#include "cm/slab.h"
#include "cm/slot_table.h"
#include "cm/state_machine.h"
#include "wire/address.h"
#include "wire/cm_messages.h"
#include "wire/ip_cm.h"
#include "wire/mad.h"

namespace ucm::cm {

// Handles. 0 is never valid; a handle of something destroyed is refused, not misread.
enum class ConnectionId : std::uint64_t {};

struct Config {
  RandomKey random_key{};                 // comm IDs, PSNs and jitter derive from it
  std::uint8_t shard = 0;                 // 4 bit: the top bits of every comm ID
  std::uint8_t cm_response_timeout = 20;  // advertised, exponent of 4.096 us
  std::uint8_t max_cm_retries = 15;
  std::uint8_t mra_service_timeout = 24;
  std::uint8_t target_ack_delay = 15;
  std::uint32_t connections_max = 1u << 20;  // and as many SIDR exchanges
  Recovery recovery{};
};

struct ConnectParams {
  Path path{};
  std::uint64_t ca_guid = 0;  // of the local device
  std::uint64_t service_id = 0;
  std::uint16_t source_port = 0;
  wire::TransportService transport = wire::TransportService::kRc;  // extended: XRC, from a QP that sends
  std::uint8_t path_mtu = 3;                                       // 1 = 256 .. 5 = 4096
  std::uint8_t packet_lifetime = 16;                               // exponent of 4.096 us  // Linux >= 6.2
  std::uint32_t flow_label = 0;
  ConnectionParams params{};
  Bytes private_data{};  // at most 56; copied
  std::uint64_t user = 0;
};

struct AcceptParams {
  std::uint64_t ca_guid = 0;
  ConnectionParams params{};
  Bytes private_data{};  // at most 196; copied
};

struct RejectParams {
  wire::RejReason reason = wire::RejReason::kConsumerDefined;
  Bytes private_data{};  // at most 148; copied
};

// All that is needed to bring a QP to RTR and RTS (cm-protocol: rdma_init_qp_attr).
struct QpParameters {
  std::uint32_t local_qpn = 0;
  std::uint32_t dest_qpn = 0;
  std::uint32_t rq_psn = 0;  // own starting PSN, announced in REQ or REP
  std::uint32_t sq_psn = 0;  // the peer's
  std::uint8_t path_mtu = 0;
  std::uint8_t responder_resources = 0;  // max_dest_rd_atomic
  std::uint8_t initiator_depth = 0;      // max_rd_atomic
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry_count = 0;
  std::uint8_t ack_timeout = 0;  // exponent of 4.096 us
  std::uint32_t flow_label = 0;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
  bool dest_known = false;  // the fields that only the peer can tell are valid
};

enum class EventType : std::uint8_t {
  kConnectRequest,   // a listener got a REQ; `connection` is new
  kConnectResponse,  // the active side got REP: program the QP, then establish()
  kEstablished,      // the passive side got RTU, or notify_established()
  kRejected,         // status = reason
  kUnreachable,      // REQ or REP retries exhausted; status -110
  kDisconnected,     // status 0, or -110 when the DREQ was never answered
  kTimewaitExit,     // the IDs and the QPN may be used again
};

struct Event {
  EventType type{};
  ConnectionId connection{};
  ListenerId listener{};   // kConnectRequest only
  std::uint64_t user = 0;  // of the connection; of the listener for kConnectRequest
  std::int32_t status = 0;
  ConnectionParams peer{};  // kConnectRequest, kConnectResponse: as the peer sent them, not swapped
  // kConnectRequest: 56 bytes after the IP CM header; kConnectResponse: 196; kRejected: 148; else empty.
  InlineBytes<wire::kRepPrivateDataSize> private_data{};
  // kConnectRequest: from the IP CM header and the packet.
  wire::IpCmHeader addresses{};
  Path path{};
};

struct Packet {
  Path path{};
  Cause cause{};
  std::array<std::uint8_t, wire::kMadSize> mad{};
};

class Engine {
 public:
  explicit Engine(const Config& config);

  // Tells `observer` of everything from now on; nullptr: nobody. It outlives the engine, and those copied from it.
  void observe(Observer* observer) { observer_ = observer; }

  // Listeners. EADDRINUSE when one with the same service ID, address, interface and family exists.
  Result<ListenerId> listen(const ListenParams& params);
  // Undelivered and untaken requests of the listener are rejected (REJ 28).
  void close_listener(TimeNs now, ListenerId id);

  // Sends REQ. EINVAL: private data too long or a value out of range; ENOMEM: connections_max.
  Result<ConnectionId> connect(TimeNs now, const ConnectParams& params);

  // Passive side, after kConnectRequest.
  // The application has read the request: one backlog slot is free again, and the next request may come. Idempotent.
  void request_taken(TimeNs now, ConnectionId id);
  // The handle the application's events shall carry from now on.
  void set_user(ConnectionId id, std::uint64_t user);
  // Sends REP. EINVAL when the peer has withdrawn or the state does not allow it; private data over 196 bytes gives
  // EINVAL and REJ 28 is sent.
  Result<void> accept(TimeNs now, ConnectionId id, const AcceptParams& params);
  Result<void> reject(TimeNs now, ConnectionId id, const RejectParams& params);

  // Active side, after kConnectResponse: sends RTU. EINVAL in another state.
  Result<void> establish(TimeNs now, ConnectionId id);

  // Data arrived before RTU (QP event COMM_EST). EISCONN when established already, EINVAL in other states.
  Result<void> notify_established(TimeNs now, ConnectionId id);

  // DREQ when established, DREP when a DREQ waits for its answer, otherwise nothing.
  void disconnect(TimeNs now, ConnectionId id);

  // The connection's last trace on the wire as its state asks for (cm-protocol G), and no event any more. The handle is
  // invalid afterwards; returns at once in every state. A DREQ goes on to be repeated until it is answered (orphans).
  void destroy(TimeNs now, ConnectionId id);

  // Datagram service, where a listener's `transport` is nullopt.
  // Sends SIDR_REQ. EINVAL: private data over 180 bytes; ENOMEM: connections_max.
  Result<SidrId> sidr_connect(TimeNs now, const SidrConnectParams& params);
  // Passive side, after SidrEventType::kRequest; as for connections.
  void sidr_request_taken(SidrId id);
  void sidr_set_user(SidrId id, std::uint64_t user);
  // Sends SIDR_REP, and again when the peer asks again. EINVAL when it has been answered already, or private data is
  // over 136 bytes; then a waiting request is refused.
  Result<void> sidr_accept(TimeNs now, SidrId id, const SidrAcceptParams& params);
  // The same with status 2.
  Result<void> sidr_reject(TimeNs now, SidrId id, Bytes private_data);
  // Refuses a waiting request. No event any more; the handle is invalid afterwards.
  void sidr_destroy(TimeNs now, SidrId id);

  // nullopt for an invalid handle.
  std::optional<QpParameters> qp_parameters(ConnectionId id) const;

  // `mad` is the UDP payload between DETH and ICRC; any bytes. `path` as seen by the receiver (local = destination).
  void on_packet(TimeNs now, const Path& path, Bytes mad);

  // Null when nothing is left. Good until the next call that takes `now`.
  const Packet* poll_packet();
  std::optional<Event> poll_event();
  std::optional<SidrEvent> poll_sidr_event();

  // When on_deadline() wants to be called; kNever when idle.
  TimeNs next_deadline() const;
  // Bounded work per call; call again while next_deadline() <= now.
  void on_deadline(TimeNs now);

  // nullptr for an invalid handle. Good until the next call that takes `now`.
  const Connection* connection(ConnectionId id) const;
  // nullopt for an invalid handle.
  std::optional<State> state(ConnectionId id) const;
  std::optional<SidrState> state(SidrId id) const;
  const Counters& counters() const { return counters_; }

  // To look through what there is in pieces, by slots. nullptr: none there.
  Slab<Connection>::Index connection_slots() const { return static_cast<Slot>(connections_.capacity()); }
  const Connection* connection_in(Slab<Connection>::Index slot) const {
    return connections_[slot].state != State::kGone ? &connections_[slot] : nullptr;
  }
  Slab<SidrExchange>::Index exchange_slots() const { return static_cast<Slot>(sidr_.exchanges.capacity()); }
  const SidrExchange* exchange_in(Slab<SidrExchange>::Index slot) const {
    return sidr_.exchanges[slot].state != SidrState::kGone ? &sidr_.exchanges[slot] : nullptr;
  }
  // What the peer takes to answer a message, smoothed.
  std::optional<TimeNs> answer_time(const Connection& connection) const {
    return peers_.answer_time(connection.path, connection.peer);
  }

  // To outlive this engine (survival.cpp): another one can go on with every connection, but not with datagram
  // exchanges, requests that no application has heard of, and what is known of peers. From now on poll_changed() tells
  // the slots of connections that have changed, each once; in no order.
  void note_changes() { notes_changes_ = true; }
  std::optional<Slab<Connection>::Index> poll_changed();
  // nullopt: nothing is there to go on with.
  std::optional<ConnectionRecord> record_of(Slab<Connection>::Index slot) const;
  // EPROTO: the record contradicts itself or another one; ENOMEM: connections_max. After the last one call resume().
  // An orphan's handle is not valid.
  Result<ConnectionId> restore(const ConnectionRecord& record);
  void resume(TimeNs now);

  // How much the engine holds; all zero when nothing is left.
  struct Usage {
    std::size_t connections = 0;
    std::size_t orphans = 0;  // of these: destroyed, but not yet disconnected
    std::size_t listeners = 0;
    std::size_t comm_ids = 0;
    std::size_t remote_ids = 0;
    std::size_t remote_qps = 0;
    std::size_t exchanges = 0;
    std::size_t requests = 0;
    std::size_t requests_in_flight = 0;
    std::size_t timers = 0;
    std::size_t sidr_exchanges = 0;
    std::size_t sidr_messages = 0;
    std::size_t last_words = 0;
    bool operator==(const Usage&) const = default;
  };
  Usage usage() const;

  // Equal for engines that will act alike, but for the handles they give: connections, listeners, timers, queues,
  // what is known of peers, and the random sequence.
  std::uint64_t state_hash() const;

 private:
  friend struct EngineAccess;  // tests/explore

  using Slot = std::uint32_t;
  using Mad = std::array<std::uint8_t, wire::kMadSize>;
  enum class Role : std::uint8_t { kActive, kPassive };

  // Of a peer's comm ID and of its QP.
  struct RemoteHashes {
    std::uint32_t id = 0;
    std::uint32_t qp = 0;
  };

  // One input to one connection, with what its action may need; null where the input has none.
  struct Stimulus {
    TimeNs now = 0;
    Input input{};
    const wire::MadHeader* header = nullptr;
    const wire::Rep* rep = nullptr;
    RemoteHashes rep_hashes{};
    const wire::Rej* rej = nullptr;
    std::uint8_t service_timeout = 0;
    const AcceptParams* accept = nullptr;
    const RejectParams* reject = nullptr;
  };

  // engine.cpp: the life of a connection.
  Slot slot_of(ConnectionId id) const;  // Connection::kNone when invalid
  ConnectionId handle_of(Slot slot) const {
    return ConnectionId{std::uint64_t{connections_[slot].generation} << 32 | slot};
  }
  ListenerId listener_handle(Listeners::Index index) const;
  // Free among connections and SIDR exchanges.
  std::uint32_t new_comm_id();
  Slot create_connection(const Path& path);
  void release_connection(Slot slot);
  // The application has read the connection's request, or it is over.
  void take_request(TimeNs now, Slot slot);
  // Reports requests to the listener's application as long as it has little to read.
  void report_requests(TimeNs now, Listeners::Index listener);
  void report_request(Slot slot);
  // Sends REQs that were held back as long as there is room for them on the way.
  void send_held_requests(TimeNs now);
  // The tables of peers hold what has a remote comm ID and occupies_peer().
  void know_peer(Slot slot, const RemoteHashes& hashes);
  void forget_peer(Slot slot);
  std::uint32_t remote_hash(const Path& path, std::uint64_t guid, std::uint32_t number) const;
  Slot find_remote_id(std::uint32_t hash, const Path& path, std::uint64_t guid, std::uint32_t comm_id) const;
  Slot find_remote_qp(std::uint32_t hash, const Path& path, std::uint64_t guid, std::uint32_t qpn) const;

  // Looks the input up in the table, acts, and enters the next state.
  void step(Slot slot, const Stimulus& stimulus);
  // The same for an input that the state may refuse.
  Result<void> command(ConnectionId id, const Stimulus& stimulus);
  void act(Slot slot, Action action, const Stimulus& stimulus);
  void enter(TimeNs now, Slot slot, State next);
  // A message of the connection's own waits for its answer from now on; the caller sets the timer.
  void begin_exchange(TimeNs now, Slot slot, const Mad& mad);
  void end_exchange(Slot slot, bool held);
  // Sets the timer to the exchange's next repetition, or to the end of its budget.
  void arm(TimeNs now, Slot slot);
  // `wait`, with jitter of its own for this message and this time.
  TimeNs spread(TimeNs wait, std::uint32_t id, std::uint8_t time) const;
  // The message will be sent again some times although nobody answers it; `wait` is the first wait.
  void say_again(TimeNs now, LastWords::Word word);
  // RTU or DREP: the same once, unless the peer is a UCM, which asks again soon.
  void say_twice(TimeNs now, Slot slot, const Mad& mad);
  void on_last_words_deadline(TimeNs now);
  // The peer asks for patience: the budget is Linux' from now on, with the given interval.
  void wait_longer(TimeNs now, Slot slot, std::uint8_t service_timeout);
  // What came answers the exchange that the connection waits for in one of these states.
  void learn_from_answer(TimeNs now, Slot slot, const wire::MadHeader& header, State awaited, State awaited_longer);
  void take_rep(Slot slot, const wire::MadHeader& header, const wire::Rep& rep, const RemoteHashes& hashes);
  Event& push_event(Slot slot, EventType type, Bytes private_data);
  void report(Slot slot, EventType type, std::int32_t status, Bytes private_data = {});

  // survival.cpp
  void note(Slot slot);
  void restore_exchange(Slot slot, const ConnectionRecord& record);

  // incoming.cpp: the packet at hand is for no connection.
  void stray(std::uint64_t Counters::* counted);
  // From a packet to the connection and its input. `path` is the way back.
  void on_req(TimeNs now, const Path& path, const wire::MadHeader& header, const wire::Req& req);
  void on_rep(TimeNs now, const Path& path, const wire::MadHeader& header, const wire::Rep& rep);
  void on_rtu(TimeNs now, const Path& path, const wire::MadHeader& header, const wire::Rtu& rtu);
  void on_mra(TimeNs now, const Path& path, const wire::Mra& mra);
  void on_rej(TimeNs now, const Path& path, const wire::Rej& rej);
  void on_dreq(TimeNs now, const Path& path, const wire::MadHeader& header, const wire::Dreq& dreq);
  void on_drep(TimeNs now, const Path& path, const wire::MadHeader& header, const wire::Drep& drep);
  void on_sidr_req(TimeNs now, const Path& path, const wire::MadHeader& header, const wire::SidrReq& req);
  void on_sidr_rep(TimeNs now, const Path& path, const wire::MadHeader& header, const wire::SidrRep& rep);
  // False after having rejected the request.
  bool path_is_usable(const Path& path, const wire::MadHeader& header, const wire::Req& req);
  Listeners::Index listener_for(const Path& path, std::uint64_t service_id,
                                std::optional<wire::TransportService> transport,
                                const wire::IpCmHeader& addresses) const;
  void queue_request(TimeNs now, const Path& path, const wire::MadHeader& header, const wire::Req& req,
                     const RemoteHashes& hashes, const wire::IpCmHeader& addresses, Listeners::Index listener);
  Slot find_connection(const Path& path, std::uint32_t local_comm_id, std::uint32_t remote_comm_id);
  // Whether somebody here waits for the REP, or has had it, or nobody is to be told that nobody does.
  bool awaits_or_has(const Path& path, const wire::Rep& rep) const;
  // The QP that answers: of XRC it lies in another field.
  static std::uint32_t qpn_of(const Connection& connection, const wire::Rep& rep) {
    return connection.is_xrc() ? rep.local_eecn : rep.local_qpn;
  }
  bool role_is(Slot slot, Role role);

  // sidr.cpp: datagram service. Slots are those of sidr_.exchanges.
  struct SidrStimulus {
    TimeNs now = 0;
    SidrInput input{};
    const wire::SidrRep* rep = nullptr;
    SidrAcceptParams answer{};
  };
  Slot slot_of(SidrId id) const;  // SidrExchange::kNone when invalid
  SidrId sidr_handle(Slot slot) const;
  Slot create_sidr_exchange(const Path& path);
  Slot find_sidr_request(const Path& path, const wire::SidrReq& req) const;
  Slot find_sidr_exchange(std::uint32_t request_id) const;
  void take_sidr_request(Slot slot);
  // Sets the timer to the request's next repetition, or to the end of its budget.
  void arm_sidr(TimeNs now, Slot slot);
  Result<void> step(Slot slot, const SidrStimulus& stimulus);
  Result<void> command(SidrId id, const SidrStimulus& stimulus);
  void act(Slot slot, SidrAction action, const SidrStimulus& stimulus);
  void enter(TimeNs now, Slot slot, SidrState next);
  SidrEvent& push_event(Slot slot, SidrEventType type, std::int32_t status, Bytes private_data);
  void deliver_sidr_request(const Path& path, const wire::MadHeader& header, const wire::SidrReq& req,
                            const wire::IpCmHeader& addresses, Listeners::Index listener);
  void close_sidr_listener(TimeNs now, Listeners::Index listener);
  void on_sidr_deadline(TimeNs now);
  void add_sidr_to(StateHash& hash) const;

  // outgoing.cpp: the messages.
  Packet& new_packet(const Path& path);
  template <class Message>
  const Mad& send(const Path& path, std::uint64_t transaction_id, const Message& message,
                  std::uint32_t attribute_modifier = 0);
  Mad make_req(Slot slot, const ConnectParams& params);
  void send_req(TimeNs now, Slot slot);
  void send_rep(TimeNs now, Slot slot, const AcceptParams& params);
  const Mad& send_rtu(Slot slot);
  void send_mra(Slot slot);
  void send_rej(TimeNs now, Slot slot, const RejectParams& params);
  void send_rej_timeout(TimeNs now, Slot slot);
  // A REJ that takes back the message which the connection repeats; nobody answers it.
  void withdraw_again(TimeNs now, Slot slot, const Mad& mad);
  void reject_request(const Path& path, const wire::MadHeader& header, const wire::Req& req, wire::RejReason reason,
                      const wire::IpAddress* additional = nullptr);
  void reject_rep(const Path& path, const wire::MadHeader& header, const wire::Rep& rep, wire::RejReason reason);
  void send_dreq(TimeNs now, Slot slot);
  // `header` is that of the DREQ; null when it came earlier.
  const Mad& answer_dreq(Slot slot, const wire::MadHeader* header);
  const Mad& send_drep(const Path& path, std::uint64_t transaction_id, std::uint32_t local_comm_id,
                       std::uint32_t remote_comm_id);
  void send_again(Slot slot);
  void send_sidr_req(Slot slot, const SidrConnectParams& params);
  void send_sidr_rep(Slot slot, wire::SidrStatus status, const SidrAcceptParams& params);
  void send_sidr_again(Slot slot);
  void keep_sidr_message(Slot slot, const Mad& mad);
  void refuse_sidr(const Path& path, const wire::MadHeader& header, const wire::SidrReq& request,
                   wire::SidrStatus status);
  void answer_class_port_info(const Path& path, Bytes mad);

  Config config_;
  Random random_;
  Slab<Connection> connections_;
  Slab<Exchange> exchanges_;
  std::size_t orphans_ = 0;  // connections in State::kOrphaned
  Listeners listeners_;
  Requests requests_;
  SlotTable by_comm_id_;
  SlotTable by_remote_id_;  // peer and its comm ID: repeated REQ, REJ 4
  SlotTable by_remote_qp_;  // peer and its QP: stale connections
  Peers peers_;
  DeadlineHeap timers_;  // one per connection: the next repetition, or the end of timewait
  LastWords last_words_;
  RingQueue<Packet> packets_;
  RingQueue<Event> events_;
  SidrTables sidr_;
  Counters counters_;
  Cause cause_;  // of what is sent now
  Observer* observer_ = nullptr;
  std::vector<Slot> changed_;
  bool notes_changes_ = false;
};

}  // namespace ucm::cm
