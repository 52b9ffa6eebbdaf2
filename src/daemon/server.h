// Connects programs to the node: sessions, their links, QP numbers and sending sockets. Runs on the loop's thread, like
// the node itself. A program's fault ends its session and nothing else.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "daemon/cm_link.h"
#include "daemon/keeper.h"
#include "daemon/multicast_groups.h"
#include "daemon/node_access.h"
#include "daemon/qpn_allocator.h"
#include "daemon/source_check.h"
#include "ipc/control_messages.h"
#include "ipc/file_descriptor.h"
#include "net/event_loop.h"
#include "node/journal.h"
#include "node/node.h"
#include "node/quotas.h"

namespace ucm::daemon {

enum class LogLevel { kDebug, kInfo, kWarning };
using Log = std::function<void(LogLevel, const std::string&)>;

struct ServerOptions {
  std::string socket_name;  // told in the status; empty = none
  node::Limits limits{};
  TimeNs idle_exit_ns = kNever;                             // stop when no program was served for so long
  TimeNs observer_patience_ns = 5 * kNanosecondsPerSecond;  // with one that does not read what it has asked for
  std::uint64_t qpn_start = 0;                              // random
  std::uint64_t node_instance = 0;                          // random
  Log log;
  // What keeps the sessions beyond this process; both or neither. They outlive the server.
  Keeper* keeper = nullptr;
  node::Journal* journal = nullptr;
};

// What happened since the start; every drop has its own counter.
struct ServerCounters {
  std::uint64_t sessions_accepted = 0;
  std::uint64_t sessions_refused = 0;   // more than ucmd serves
  std::uint64_t sessions_violated = 0;  // ended because the program broke the rules
  std::uint64_t observers_dropped = 0;  // did not read what they had asked for
  std::uint64_t commands = 0;
  std::uint64_t events = 0;
  std::uint64_t events_waited = 0;  // the event ring had no room for them at first
  std::uint64_t events_without_link = 0;
  std::uint64_t packets = 0;
  std::uint64_t packets_no_owner = 0;  // QP number that is nobody's, or group that nobody has joined
  std::uint64_t packets_no_link = 0;   // its owner has not opened a data link
  std::uint64_t packets_ring_full = 0;
  std::uint64_t packets_too_long = 0;
  std::uint64_t packets_unknown_source_port = 0;
  std::uint64_t packets_foreign_peer = 0;
};

class TraceObservation;
struct Viewer;

class Server {
 public:
  // `loop` outlives the server and does not run after the server's end.
  Server(net::EventLoop& loop, ServerOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // What the node calls; then the node itself. Both before the first session.
  node::Node::Callbacks node_callbacks();
  void attach(NodeAccess& node);

  // Goes on with the sessions of a ucmd that has died, as keeper and journal have them. Before the node is restored.
  void restore();
  // For the node: the session, and this link of it, have been restored.
  bool has_link(node::SessionId session, node::LinkId link) const;

  // Serves whoever connects to `listener` (non-blocking).
  Result<void> serve(ipc::FileDescriptor listener);
  // Serves one connected socket, of the process that embeds the node.
  Result<void> adopt(ipc::FileDescriptor socket);

  // Ends every session (connections are disconnected), lets the node send what that takes, and stops the loop.
  void shut_down();

  // From now on; what is held already stays held.
  void set_limits(const node::Limits& limits);

  // JSON text for `ucm status`: what the viewer may see of programs, and the counters of the whole node.
  std::string status_json(const Viewer& viewer) const;
  // For prometheus_text() and `ucm stats`.
  nlohmann::json stats() const;
  const ServerCounters& counters() const { return counters_; }

 private:
  struct Session;
  struct LinkEntry;
  using Descriptors = std::vector<int>;

  // server_restore.cpp
  using KeptEvent = std::pair<node::Journal::Cell, node::EventRecord>;
  void restore_session(node::Journal::Cell cell, const node::SessionRecord& record);
  void restore_numbers();
  void restore_links();
  // False when it is not to be gone on with.
  bool restore_link(node::Journal::Cell cell, const node::LinkRecord& record, std::vector<KeptEvent> events);
  // Keeps copies of descriptors, or lets go of them; without a keeper nothing.
  void hold(Keeper::What what, std::uint32_t id, std::initializer_list<int> descriptors);
  void release(Keeper::What what, std::uint32_t id);
  // Stages a record that lives as long as the session does.
  void keep_session(Session& session);
  template <class Record>
  void keep_with(Session& session, const Record& record);
  void forget_session(Session& session);

  void accept_sessions();
  Result<void> add_session(ipc::FileDescriptor socket);
  bool within_limits(uid_t uid) const;
  // server_limits.cpp. False: the session or its user has its share.
  bool take(Session& session, node::Resource resource);
  void give_back(const Session& session, node::Resource resource, std::uint32_t times = 1);
  void tell_refused(Session& session, std::string_view what);
  void doom(Session& session, std::string_view why);
  void end_session(std::uint32_t id);
  void end_doomed();

  static Viewer viewer_of(const Session& session);

  void on_control(std::uint32_t session_id, std::uint32_t epoll_events);
  void on_request(Session& session, Bytes message);
  void answer(Session& session, const ipc::ControlRequest& request);
  void send_reply(Session& session, ipc::ControlReply& reply, const Descriptors& descriptors);
  void send_failure(Session& session, const ipc::ControlRequest& request, int code, std::string_view message);
  void say_version_mismatch(Session& session, const std::string& message);

  void hello(Session& session, const ipc::ControlRequest& request);
  void list_devices(Session& session, const ipc::ControlRequest& request);
  void open_cm_link(Session& session, const ipc::ControlRequest& request);
  void open_data_link(Session& session, const ipc::ControlRequest& request);
  void close_link(Session& session, const ipc::ControlRequest& request);
  void allocate_qpns(Session& session, const ipc::ControlRequest& request);
  void send_sockets(Session& session, const ipc::ControlRequest& request);
  void join_group(Session& session, const ipc::ControlRequest& request);
  void leave_group(Session& session, const ipc::ControlRequest& request);
  void watch_devices(Session& session, const ipc::ControlRequest& request);
  void status(Session& session, const ipc::ControlRequest& request);
  void stop(Session& session, const ipc::ControlRequest& request);
  void observe(Session& session, const ipc::ControlRequest& request);
  // server_observe.cpp: what goes on after observe().
  TimeNs serve_observers(TimeNs now);
  // Returns when it is to be called again.
  TimeNs serve_observer(TimeNs now, Session& session);
  bool observers_sleep() const;
  TraceObservation* trace_of(std::uint32_t session) const;  // nullptr: it does not trace
  void watch_trace();
  void send_sealed_copy(Session& session, const ipc::ControlRequest& request, const char* name, Bytes bytes);

  void activate(LinkEntry& link);
  void serve_link(LinkEntry& link);
  void remove_link(std::uint32_t link_id);
  bool prepare_sleep();
  TimeNs on_turn(TimeNs now);
  TimeNs idle_deadline() const;

  static ipc::TokenWriter::Reader reader_of(const Session& session);
  CmLink::Identity identity_of(const Session& session, std::uint32_t link) const;
  Result<void> watch_link(LinkEntry& link);

  void deliver_event(node::LinkId link, const ipc::CmEvent& event);
  // Into their rings, as far as these have room.
  void push_events();
  void tell_devices_changed();
  void deliver_data(std::uint32_t qpn, const wire::DatagramInfo& info, Bytes payload);
  void deliver_multicast(const wire::DatagramInfo& info, Bytes payload);
  // `peer_qpn`: what the packet's sender has to own where it is on this host; 0 = any QP.
  void hand_over(Session& session, std::uint32_t peer_qpn, const wire::DatagramInfo& info, Bytes payload);
  std::uint32_t peer_qpn_of(const Session& owner, std::uint32_t qpn) const;
  bool source_allowed(std::uint32_t peer_qpn, const wire::DatagramInfo& info);
  void log(LogLevel level, const std::string& text) const;
  // A line of the log; of too many in a second only how many they were.
  void log_failure(const node::Failure& failure);

  net::EventLoop& loop_;
  ServerOptions options_;
  NodeAccess* node_ = nullptr;
  ipc::FileDescriptor listener_;
  bool listening_ = false;  // false also while out of descriptors
  node::Quotas quotas_;     // of programs, event channels and QP numbers
  QpnAllocator qpns_;
  SourceCheck sources_;
  MulticastGroups groups_;
  std::unordered_map<std::uint32_t, std::unique_ptr<Session>> sessions_;
  std::unordered_map<std::uint32_t, std::unique_ptr<LinkEntry>> links_;
  std::vector<std::uint32_t> active_links_;
  std::vector<std::uint32_t> links_with_events_;  // not pushed yet
  std::vector<std::uint32_t> doomed_;
  std::vector<std::uint32_t> observers_;  // sessions
  std::uint32_t next_session_ = 1;
  std::uint32_t next_link_ = 1;
  std::size_t programs_ = 0;
  TimeNs started_;
  TimeNs idle_since_;
  int turns_to_stop_ = -1;  // counts down when shutting down
  struct FailureBudget {
    TimeNs since = 0;  // the second began
    std::uint32_t logged = 0;
    std::uint32_t left_out = 0;
  };
  std::array<FailureBudget, 2> failure_budgets_{};  // of events, and of calls
  ServerCounters counters_;
};

}  // namespace ucm::daemon
