// One running node: the CM engine with its packet port, the host's interfaces, routes and neighbours, the port spaces
// and the timers, and the rdma_cm state of every ID. It knows programs only as link and session numbers; the daemon
// (or an embedding process) connects those to rings. Single-threaded: everything happens on the thread that runs
// `loop()`.
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
#include "base/result.h"
#include "host/host.h"
#include "ipc/cm_api.h"
#include "net/event_loop.h"
#include "net/fault_port.h"
#include "net/udp_port.h"
#include "wire/datagram.h"

namespace ucm::node {

using SessionId = std::uint32_t;  // a process
using LinkId = std::uint32_t;     // an event channel of a process

class FlightRecorder;
class Journal;

// What programs hold of a node, as far as it is limited.
enum class Resource : std::uint8_t { kPrograms, kChannels, kQueuePairs, kIds, kListeners, kHalfOpen };
inline constexpr std::size_t kResourceCount = 6;
inline constexpr std::array<std::string_view, kResourceCount> kResourceNames = {
    "programs", "event_channels", "queue_pairs", "ids", "listeners", "half_open"};

// Of one program, or of all programs of one user.
struct Share {
  std::array<std::uint32_t, kResourceCount> most{};  // by Resource
  std::uint32_t connects_per_s = 0;
};

// Far more than any program is known to use, and no user takes all that the node has (ipc/limits.h, cm/limits.h).
// - ids: connections, listeners and requests; half_open: connections asked for and not answered yet.
// - connects_per_s: connections asked for. What comes from peers is bounded by the backlog of listeners.
struct Limits {
  Share program{.most = {1, 4096, 65536, 1u << 18, 16384, 65536}, .connects_per_s = 100'000};
  Share user{.most = {1024, 16384, 262144, 1u << 20, 32768, 262144}, .connects_per_s = 200'000};
};

struct Options {
  Limits limits{};
  std::optional<net::FaultSpec> faults;  // injected on everything received; tests
  std::size_t flight_records = 0;        // kept by the flight recorder, a power of two; 0: there is none
};

// A call that is refused, or an event that tells a program of a failure.
struct Failure {
  std::string_view what;  // "connect", "REJECTED"
  bool call = false;
  std::int32_t status = 0;  // errno of a call; of an event as the program sees it
  std::string_view why;
  // Whose; all 0 for a call without an ID.
  std::uint32_t id = 0;
  SessionId session = 0;
  std::string_view state{};
  ipc::SocketAddress local{}, remote{};
  std::uint32_t local_comm_id = 0, remote_comm_id = 0;
};

class Node {
 public:
  struct Callbacks {
    std::function<void(LinkId, const ipc::CmEvent&)> deliver_event;
    // A packet for a QP other than 1. The payload is valid during the call only and has not been checked beyond its
    // length (at least BTH + ICRC).
    std::function<void(std::uint32_t qpn, const wire::DatagramInfo&, Bytes payload)> deliver_data;
    // Node::host() has other devices, or their links or addresses are others.
    std::function<void()> devices_changed = nullptr;
    // May `session` use `qpn` in connect() and accept()?
    std::function<bool(SessionId, std::uint32_t qpn)> owns_qpn;
    // Who runs the process; may be left out.
    std::function<std::uint32_t(SessionId)> user_of{};
    // May be left out.
    std::function<void(const Failure&)> failed{};
    // The process, or its user, has used up a limit; `what` says which. May be left out.
    std::function<void(SessionId, std::string_view what)> refused{};
    // The events of this turn have been delivered and committed: they may be told. May be left out.
    std::function<void()> events_delivered{};
  };

  // Binds UDP 4791 on IPv4 and, where there is IPv6, on IPv6. EADDRINUSE's message says who holds the port.
  // `sockets`: those of another node's port that go on; invalid: new ones.
  static Result<std::unique_ptr<Node>> open(net::EventLoop& loop, const Options& options, Callbacks callbacks,
                                            net::UdpSockets sockets = {});
  ~Node();

  // Of its port, in the order of net::UdpSockets: IPv4, IPv6, and the two that are sent from; -1: there is none.
  std::array<int, 4> socket_descriptors() const;
  // Before the first call: keeps what IDs and connections are in `journal`, which outlives the node, whenever commit()
  // is called. A turn of the loop commits before anything of it leaves the node: packets, and events
  // (Callbacks::events_delivered).
  void keep_in(Journal& journal);
  // Goes on with what the journal has of another node. IDs for which `has_link` is false are destroyed. EPROTO: what it
  // has contradicts itself.
  Result<void> restore(const std::function<bool(SessionId, LinkId)>& has_link);
  void commit();

  // One rdma_cm call; the reply is complete when it returns. `link` belongs to `session`.
  ipc::CmReply execute(SessionId session, LinkId link, const ipc::CmCommand& command);
  void set_limits(const Limits& limits);
  // The process may bind service ports below the system's limit ; by default it may not.
  void allow_low_ports(SessionId session);
  // The channel or the process is gone: its IDs are destroyed (connections disconnected, listeners closed, ports
  // freed).
  void remove_link(LinkId link);
  void remove_session(SessionId session);
  // As PacketPort's: received packets of the group are delivered as data for wire::kMulticastQpn.
  Result<void> join_group(const wire::MulticastGroup& group);
  void leave_group(const wire::MulticastGroup& group);
  // Bytes-free view for `ucm status`.
  struct ListenerStatus {
    SessionId session;
    ipc::SocketAddress local;
    std::uint16_t port_space;
    std::uint32_t backlog;
    std::uint32_t pending;
  };
  struct ConnectionStatus {
    SessionId session;
    ipc::SocketAddress local, remote;
    std::uint32_t qpn, peer_qpn;
    std::string state;
  };
  std::vector<ListenerStatus> listeners() const;
  std::vector<ConnectionStatus> connections() const;
  // A listener or connection as `ucm list` shows it.
  struct Listing {
    enum class Kind : std::uint8_t { kListener, kConnection, kDatagram };
    Kind kind{};
    bool active = false;
    std::uint16_t port_space = 0;
    std::uint32_t id = 0;   // 0: no program has it yet, or any more
    SessionId session = 0;  // 0: as above
    std::uint32_t user = 0;
    std::string_view state{};
    ipc::SocketAddress local{}, remote{};
    std::uint32_t local_comm_id = 0, remote_comm_id = 0;
    std::uint32_t qpn = 0, peer_qpn = 0;
    std::uint32_t backlog = 0, pending = 0;     // of a listener
    std::optional<TimeNs> answer_time{};        // of the peer
    std::optional<std::uint32_t> track_slot{};  // in the flight recorder
  };
  // Where list() goes on.
  struct ListPosition {
    enum class Part : std::uint8_t { kListeners, kConnections, kDatagrams, kEnd };
    Part part{};
    std::uint32_t next = 0;
  };
  // The next ones, at most `entries_max`, with bounded work; maybe none although there are more. What comes and goes
  // between two calls may be there or not.
  std::vector<Listing> list(ListPosition& position, std::size_t entries_max) const;
  struct Count {
    std::string_view name;
    std::uint64_t value;
  };
  // What has been counted since the start: packets (`node_…`), and what the CM engine counts.
  std::vector<Count> counters() const;
  // What is held at the moment, also after its program has ended: all zero when nothing is left.
  std::vector<Count> held() const;
  // nullptr when there is none.
  FlightRecorder* recorder();
  // As Core's.
  Result<void> record_engine(std::function<bool(Bytes record)> sink);
  const host::Host& host() const;
  // What a person should know about this host; usually empty.
  const std::vector<std::string>& warnings() const;

 private:
  struct Impl;
  explicit Node(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ucm::node
