// A node without operating system: the engine, the IDs, the port spaces and the timers, with packet port, host and
// clock as arguments. Node puts it on real sockets and an event loop; tests put it on a network in memory and simulated
// time.
//
// After execute(), remove_*() and receive() call turn(): packets leave and events are delivered only there.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/random.h"
#include "cm/engine.h"
#include "host/host.h"
#include "net/packet_port.h"
#include "node/flight_recorder.h"
#include "node/journal.h"
#include "node/node.h"
#include "node/port_space.h"
#include "node/quotas.h"
#include "node/rdma_id.h"
#include "recording/recorded_engine.h"

namespace ucm::node {

// Every datagram that goes no further has one reason here.
struct PacketCounters {
  std::uint64_t received = 0;
  std::uint64_t data = 0;  // for QPs other than 1
  std::uint64_t short_packet = 0;
  std::uint64_t bad_icrc = 0;      // to QP 1
  std::uint64_t solved_icrc = 0;   // right for some IPv4 identification; taken
  std::uint64_t bad_gsi = 0;       // to QP 1, but no MAD of 256 bytes with its keys
  std::uint64_t not_ours = 0;      // to QP 1 at an address that no device has: multicast, for instance
  std::uint64_t not_the_node = 0;  // to QP 1, from this host but not from this node: a program that speaks for it
};

class Core {
 public:
  // `port` and `host` outlive the core; the host's observer becomes the core's.
  Core(net::PacketPort& port, host::Host& host, Node::Callbacks callbacks, const RandomKey& key);
  // Tells `recorder` of everything from now on; it outlives the core.
  void record(FlightRecorder& recorder);
  // Gives `sink` what the engine gets and makes of it, from now on, until it takes no more. EBUSY while there are
  // connections, or exchanges of datagrams: a recording begins with a new engine. What was learnt of peers is
  // forgotten.
  Result<void> record_engine(TimeNs now, recording::RecordedEngine::Sink sink);

  // As Node's.
  void keep_in(Journal& journal);
  Result<void> restore(TimeNs now, const std::function<bool(SessionId, LinkId)>& has_link);
  void commit();

  ipc::CmReply execute(TimeNs now, SessionId session, LinkId link, const ipc::CmCommand& command);
  void remove_link(TimeNs now, LinkId link);
  void remove_session(TimeNs now, SessionId session);
  void set_limits(const Limits& limits) { quotas_.set_limits(limits); }
  void allow_low_ports(SessionId session) { low_port_sessions_.insert(session); }

  // Takes what waits in the port, a bounded number.
  void receive(TimeNs now);
  // Does what is due, sends, delivers; returns when it wants to be called again, kNever: not by itself.
  TimeNs turn(TimeNs now);
  // turn() has something to do now.
  bool has_work() const { return work_; }

  std::vector<Node::ListenerStatus> listeners() const;
  std::vector<Node::ConnectionStatus> connections() const;
  std::vector<Node::Count> counters() const;
  std::vector<Node::Count> held() const;
  std::vector<Node::Listing> list(Node::ListPosition& position, std::size_t entries_max) const;
  const PacketCounters& packet_counters() const { return counters_; }

 private:
  using Call = Result<void> (Core::*)(TimeNs now, RdmaId& id, const ipc::CmCommand& command);
  struct CallEntry;
  static const CallEntry* find_call(ipc::CmCall call);
  // Numbers that a link may give to IDs without asking, in order.
  struct Grant {
    SessionId session = 0;
    std::uint32_t next = 0;
    std::uint32_t left = 0;
    Journal::Cell cell = Journal::kNone;
  };
  using NeighborKey = std::pair<std::uint32_t, wire::IpAddress>;

  // core.cpp
  RdmaId* find(std::uint32_t id);
  const RdmaId* find(std::uint32_t id) const;
  RdmaId* find_own(SessionId session, std::uint32_t id);
  RdmaId* create(SessionId session, LinkId link);
  RdmaId& make(std::uint32_t number, SessionId session, LinkId link);
  std::uint32_t grant_numbers(SessionId session, LinkId link, std::uint32_t count);
  RdmaId* create_granted(SessionId session, LinkId link, std::uint32_t number);
  void forget_grant(LinkId link);
  void destroy(TimeNs now, std::uint32_t id);
  std::uint32_t user_of(SessionId session) const;
  bool take(SessionId session, std::uint32_t user, Resource resource);
  Result<void> begin_asking(TimeNs now, RdmaId& id);
  void end_asking(RdmaId& id);
  void forget_resolution(RdmaId& id);
  template <class Predicate>
  void destroy_where(TimeNs now, Predicate predicate);
  void at(TimeNs now) {
    if (recorder_ != nullptr) recorder_->at(now);
  }
  void on_datagram(TimeNs now, const net::Datagram& datagram);
  void on_gsi_packet(TimeNs now, const net::Datagram& datagram);
  void send_packets();
  void on_devices_changed();

  // core_restore.cpp: what is kept in the journal.
  void note(RdmaId& id);
  void keep_changes();
  void keep(LinkId link, Grant& grant);
  void restore_grants(const std::function<bool(SessionId, LinkId)>& has_link);
  Result<void> restore_ids(const std::function<bool(SessionId, LinkId)>& has_link);
  Result<void> restore_connections(TimeNs now);
  Result<void> go_on(TimeNs now, RdmaId& id);
  void restore_events();

  // core_list.cpp
  Node::Listing listing_of(const RdmaId& listener) const;
  Node::Listing listing_of(std::uint32_t slot, const cm::Connection& connection) const;
  Node::Listing listing_of(std::uint32_t slot, const cm::SidrExchange& exchange) const;

  // core_calls.cpp
  Result<void> perform(TimeNs now, RdmaId& id, LinkId link, const ipc::CmCommand& command);
  // One function per rdma_cm call; the state has been checked.
  Result<void> create_id(SessionId session, LinkId link, const ipc::CmCommand& command, ipc::CmReply& reply);
  void tell_failure(RdmaId& id, const ipc::CmCommand& command, const Error& error);
  void migrate(RdmaId& id, LinkId link);
  Result<void> set_option(RdmaId& id, const ipc::CmCommand& command);
  Result<void> bind_addr(TimeNs now, RdmaId& id, const ipc::CmCommand& command);
  Result<void> resolve_route(TimeNs now, RdmaId& id, const ipc::CmCommand& command);
  Result<void> listen(TimeNs now, RdmaId& id, const ipc::CmCommand& command);
  Result<void> request_taken(TimeNs now, RdmaId& id);
  Result<void> connect(TimeNs now, RdmaId& id, const ipc::CmCommand& command);
  Result<void> connect_datagram(TimeNs now, RdmaId& id, const ipc::CmCommand& command);
  Result<void> accept(TimeNs now, RdmaId& id, const ipc::CmCommand& command);
  Result<void> reject(TimeNs now, RdmaId& id, const ipc::CmCommand& command);
  Result<void> establish(TimeNs now, RdmaId& id, const ipc::CmCommand& command);
  Result<void> notify(TimeNs now, RdmaId& id, const ipc::CmCommand& command);
  Result<void> disconnect(TimeNs now, RdmaId& id, const ipc::CmCommand& command);
  Result<void> join_multicast(TimeNs now, RdmaId& id, const ipc::CmCommand& command);
  Result<void> bind(RdmaId& id, const Endpoint& local);
  // The engine's part of listening.
  Result<void> start_listening(RdmaId& id);
  PortClaim claim_of(const RdmaId& id) const;
  std::uint64_t device_guid(const RdmaId& id) const;

  // core_resolve.cpp: from a destination to a device, a source address and a neighbour.
  Result<void> resolve_addr(TimeNs now, RdmaId& id, const ipc::CmCommand& command);
  Result<void> start_resolution(TimeNs now, RdmaId& id, const Endpoint& destination, std::uint32_t timeout_ms);
  void finish_resolution(RdmaId& id, std::int32_t status);
  void check_neighbor(const NeighborKey& key);
  void expire_resolutions(TimeNs now);
  void check_neighbors(TimeNs now);

  // core_events.cpp: from the engine's events to the program's.
  void take_events(TimeNs now);
  void on_event(TimeNs now, const cm::Event& event);
  void on_request(TimeNs now, const cm::Event& event);
  void on_connection_event(RdmaId& id, const cm::Event& event);
  void on_event(TimeNs now, const cm::SidrEvent& event);
  void on_request(TimeNs now, const cm::SidrEvent& event);
  void on_answer(RdmaId& id, const cm::SidrEvent& event);
  // The new ID of a request to the listening ID `listener`; nullptr when it is not for us or the process has its share.
  RdmaId* create_for_request(std::uint64_t listener, const wire::IpCmHeader& addresses, const cm::Path& path);
  bool request_is_for_us(const wire::IpCmHeader& addresses, const cm::Path& path) const;
  // `why`, where the event does not tell it all, of one that is a failure.
  void push_event(std::uint32_t id, const ipc::CmEvent& event, std::string_view why = {});
  // To the flight recorder, as the reason of what is recorded next, and to the log. `id` may be null.
  void explain_failure(const RdmaId* id, Failure failure);
  void deliver_events();
  ipc::CmPath path_of(const RdmaId& id) const;
  ipc::CmQpParams qp_params_of(const RdmaId& id) const;

  net::PacketPort& port_;
  host::Host& host_;
  Node::Callbacks callbacks_;
  FlightRecorder* recorder_ = nullptr;
  recording::RecordedEngine engine_;
  cm::Counters counted_before_;  // by engines before this one
  Random random_;
  PortSpaces ports_;

  std::unordered_map<std::uint32_t, RdmaId> ids_;
  Quotas quotas_;  // of IDs, with the numbers granted
  std::unordered_map<LinkId, Grant> grants_;
  std::set<std::uint32_t> listening_;  // IDs
  std::set<SessionId> low_port_sessions_;
  std::uint32_t last_id_ = 0;

  std::map<NeighborKey, std::set<std::uint32_t>> waiting_;  // IDs per neighbour
  std::set<std::pair<TimeNs, std::uint32_t>> resolve_deadlines_;
  TimeNs next_neighbor_check_ = kNever;
  TimeNs next_held_receive_ = kNever;

  // Events wait here for the reply of the call that caused them.
  struct Told {
    std::uint32_t id = 0;  // on whose link it goes
    ipc::CmEvent event{};
    Journal::Cell cell = Journal::kNone;
  };
  std::deque<Told> events_;
  Journal* journal_ = nullptr;
  std::vector<std::uint32_t> changed_ids_;       // since the last commit
  std::vector<Journal::Cell> connection_cells_;  // by slot
  std::uint64_t events_kept_ = 0;
  PacketCounters counters_;
  std::uint32_t psn_ = 0;  // of QP 1
  bool work_ = false;
};

}  // namespace ucm::node
