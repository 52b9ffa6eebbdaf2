#include "daemon/server.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <system_error>

#include "base/check.h"
#include "daemon/server_types.h"
#include "ipc/peer_process.h"
#include "wire/headers.h"

namespace ucm::daemon {
namespace {

// Connections taken from the queue per turn.
constexpr int kAcceptsPerTurn = 16;
// Turns between the end of the sessions and the end of the loop: in the first the node sends its last messages.
constexpr int kTurnsToStop = 3;

std::string program_name_of(pid_t pid) {
  std::string name;
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::getline(file, name);
  return name.empty() ? "?" : name;
}

}  // namespace

Server::Server(net::EventLoop& loop, ServerOptions options)
    : loop_(loop),
      options_(std::move(options)),
      quotas_(options_.limits),
      qpns_(options_.qpn_start),
      started_(loop.now()),
      idle_since_(loop.now()) {
  loop_.add_hook([this](TimeNs now) { return on_turn(now); });
  loop_.add_before_sleep([this] { return prepare_sleep(); }, [] {});
}

Server::~Server() {
  for (const auto& [id, link] : links_) loop_.remove(link->link.doorbell());
  for (const auto& [id, session] : sessions_) loop_.remove(session->socket.get());
  if (listening_) loop_.remove(listener_.get());
}

node::Node::Callbacks Server::node_callbacks() {
  return {.deliver_event = [this](node::LinkId link, const ipc::CmEvent& event) { deliver_event(link, event); },
          .deliver_data = [this](std::uint32_t qpn, const wire::DatagramInfo& info,
                                 Bytes payload) { deliver_data(qpn, info, payload); },
          .devices_changed = [this] { tell_devices_changed(); },
          .owns_qpn = [this](node::SessionId session,
                             std::uint32_t qpn) { return session != 0 && qpns_.owner_of(qpn) == session; },
          .user_of =
              [this](node::SessionId session) {
                const auto it = sessions_.find(session);
                return it != sessions_.end() ? it->second->peer.uid : ipc::kTraceNoUser;
              },
          .failed = [this](const node::Failure& failure) { log_failure(failure); },
          .refused =
              [this](node::SessionId session, std::string_view what) {
                if (const auto it = sessions_.find(session); it != sessions_.end()) tell_refused(*it->second, what);
              },
          .events_delivered = [this] { push_events(); }};
}

void Server::attach(NodeAccess& node) { node_ = &node; }

void Server::log(LogLevel level, const std::string& text) const {
  if (options_.log) options_.log(level, text);
}

// --- Sessions
// ---------------------------------------------------------------------------------------------------------

Result<void> Server::serve(ipc::FileDescriptor listener) {
  UCM_CHECK(node_ != nullptr);
  listener_ = std::move(listener);
  if (auto added = loop_.add(listener_.get(), [this](std::uint32_t) { accept_sessions(); }); !added) return added;
  listening_ = true;
  return {};
}

Result<void> Server::adopt(ipc::FileDescriptor socket) {
  UCM_CHECK(node_ != nullptr);
  return add_session(std::move(socket));
}

void Server::accept_sessions() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    ipc::FileDescriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) {
      if (const auto added = add_session(std::move(socket)); !added) log(LogLevel::kWarning, added.error().message);
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      // The queue stays readable: look away until a session has ended.
      log(LogLevel::kWarning, "no new sessions for now: " + std::generic_category().message(errno));
      loop_.remove(listener_.get());
      listening_ = false;
    }
    return;
  }
}

bool Server::within_limits(uid_t uid) const {
  if (sessions_.size() >= ipc::kSessionsMax) return false;
  const auto of_user = std::count_if(sessions_.begin(), sessions_.end(),
                                     [uid](const auto& entry) { return entry.second->peer.uid == uid; });
  return static_cast<std::size_t>(of_user) < ipc::kSessionsPerUserMax;
}

Result<void> Server::add_session(ipc::FileDescriptor socket) {
  const auto peer = ipc::peer_credentials(socket.get());
  if (!peer) return tl::unexpected(peer.error());
  if (turns_to_stop_ >= 0 || !within_limits(peer->uid)) {
    ++counters_.sessions_refused;
    return fail(EAGAIN, "session of process " + std::to_string(peer->pid) + " of user " + std::to_string(peer->uid) +
                            " refused: " + (turns_to_stop_ >= 0 ? "shutting down" : "too many"));
  }
  while (next_session_ == 0 || sessions_.contains(next_session_)) ++next_session_;
  auto session = std::make_unique<Session>();
  session->id = next_session_++;
  session->socket = std::move(socket);
  session->peer = *peer;
  session->program_name = program_name_of(peer->pid);
  session->low_ports = ipc::may_bind_low_ports(*peer);
  const auto id = session->id;
  if (auto added = loop_.add(session->socket.get(), [this, id](std::uint32_t events) { on_control(id, events); });
      !added) {
    return added;
  }
  ++counters_.sessions_accepted;
  if (session->low_ports) node_->allow_low_ports(id);
  sessions_.emplace(id, std::move(session));
  return {};
}

// The session ends at the end of the turn: its objects may be in use further up the stack.
void Server::doom(Session& session, std::string_view why) {
  if (session.doomed) return;
  session.doomed = true;
  doomed_.push_back(session.id);
  log(LogLevel::kDebug, "session " + std::to_string(session.id) + " (process " + std::to_string(session.peer.pid) +
                            ", " + session.program_name + ") ends: " + std::string(why));
}

void Server::end_doomed() {
  // By index: the node's events for other sessions may doom one of them meanwhile.
  for (std::size_t i = 0; i < doomed_.size(); ++i) end_session(doomed_[i]);
  doomed_.clear();
}

void Server::end_session(std::uint32_t id) {
  const auto it = sessions_.find(id);
  if (it == sessions_.end()) return;
  Session& session = *it->second;
  loop_.remove(session.socket.get());
  while (!session.links.empty()) remove_link(session.links.back());
  if (session.greeted && session.role == ipc::Role::kProgram) {
    forget_session(session);
    node_->remove_session(id);
    qpns_.release_all(id);
    sources_.release_all(id);
    for (const wire::MulticastGroup& group : groups_.leave_all(id)) node_->leave_group(group);
    give_back(session, node::Resource::kQueuePairs, session.qpn_blocks);
    give_back(session, node::Resource::kPrograms);
    quotas_.forget(loop_.now(), id, session.peer.uid);
    if (--programs_ == 0) idle_since_ = loop_.now();
  }
  std::erase(observers_, id);
  sessions_.erase(it);
  watch_trace();
  if (!listening_ && listener_ && turns_to_stop_ < 0) {
    listening_ = loop_.add(listener_.get(), [this](std::uint32_t) { accept_sessions(); }).has_value();
  }
}

void Server::shut_down() {
  if (turns_to_stop_ >= 0) return;
  turns_to_stop_ = kTurnsToStop;
  // The name stays taken until the node has let go of its port: the next ucmd waits for that.
  if (listening_) loop_.remove(listener_.get());
  listening_ = false;
  for (const auto& [id, session] : sessions_) doom(*session, "shutting down");
}

// --- Turns of the loop
// ------------------------------------------------------------------------------------------------

TimeNs Server::on_turn(TimeNs now) {
  push_events();
  for (std::size_t i = 0; i < active_links_.size(); ++i) {
    const auto it = links_.find(active_links_[i]);
    if (it != links_.end()) serve_link(*it->second);
  }
  const TimeNs observed = serve_observers(now);
  end_doomed();
  if (turns_to_stop_ >= 0) {
    if (turns_to_stop_-- == 0) loop_.stop();
    return now;
  }
  if (idle_deadline() <= now) {
    log(LogLevel::kInfo, "no program has been served for a while: leaving");
    shut_down();
    return now;
  }
  return std::min(idle_deadline(), observed);
}

TimeNs Server::idle_deadline() const {
  if (options_.idle_exit_ns == kNever || programs_ != 0) return kNever;
  return idle_since_ + options_.idle_exit_ns;
}

void Server::activate(LinkEntry& link) {
  if (link.active) return;
  link.active = true;
  active_links_.push_back(link.id);
}

void Server::serve_link(LinkEntry& entry) {
  Session& session = *entry.session;
  if (session.doomed) return;
  session.events_waiting -= entry.link.flush();
  for (int i = 0; i < ipc::kCommandsPerTurnMax; ++i) {
    const auto command = entry.link.poll_command();
    if (!command) break;
    ++counters_.commands;
    loop_.stay_awake();
    ipc::CmReply reply = node_->execute(session.id, entry.id, *command);
    reply.sequence = command->sequence;
    if (command->call == ipc::CmCall::kDestroyId && reply.error == 0) {
      session.events_waiting -= entry.link.drop_events_of(command->id);
    }
    entry.link.remember(*command, reply);
    if (command->posted != 0) continue;
    node_->commit();
    entry.link.reply();
  }
  if (entry.link.has_posted()) {
    node_->commit();
    entry.link.take_commands();
  }
  if (entry.link.broken()) {
    ++counters_.sessions_violated;
    doom(session, "broken ring");
  }
}

// Links without a command announce sleep and leave the list of those looked at.
bool Server::prepare_sleep() {
  bool all_sleep = doomed_.empty() && links_with_events_.empty() && turns_to_stop_ < 0 && observers_sleep();
  std::erase_if(active_links_, [&](std::uint32_t id) {
    const auto it = links_.find(id);
    if (it == links_.end()) return true;
    LinkEntry& entry = *it->second;
    if (!entry.session->doomed && !entry.link.sleep_prepare()) {
      all_sleep = false;
      return false;
    }
    entry.active = false;
    return true;
  });
  return all_sleep;
}

void Server::remove_link(std::uint32_t link_id) {
  const auto it = links_.find(link_id);
  if (it == links_.end()) return;
  Session& session = *it->second->session;
  loop_.remove(it->second->link.doorbell());
  node_->remove_link(link_id);
  session.events_waiting -= it->second->link.waiting();
  it->second->link.forget();
  release(Keeper::What::kCmLink, link_id);
  std::erase(session.links, link_id);
  give_back(session, node::Resource::kChannels);
  links_.erase(it);
}

// --- What the node has to tell
// ----------------------------------------------------------------------------------------

void Server::tell_devices_changed() {
  for (const auto& [id, session] : sessions_) {
    if (session->devices_changed) session->devices_changed.put();
  }
}

void Server::deliver_event(node::LinkId link_id, const ipc::CmEvent& event) {
  const auto it = links_.find(link_id);
  if (it == links_.end() || it->second->session->doomed) {
    ++counters_.events_without_link;
    return;
  }
  LinkEntry& entry = *it->second;
  ++counters_.events;
  ++entry.session->events_waiting;
  entry.link.queue(event);
  if (entry.new_events++ == 0) links_with_events_.push_back(link_id);
}

void Server::push_events() {
  for (const std::uint32_t id : links_with_events_) {
    const auto it = links_.find(id);
    if (it == links_.end()) continue;
    LinkEntry& entry = *it->second;
    Session& session = *entry.session;
    session.events_waiting -= entry.link.flush();
    counters_.events_waited += std::min(entry.link.waiting(), std::exchange(entry.new_events, 0));
    if (entry.link.broken() || session.events_waiting > ipc::kEventsWaitingMax) {
      if (!session.doomed) ++counters_.sessions_violated;
      doom(session, entry.link.broken() ? "broken event ring" : "too many events that nobody reads");
    }
  }
  links_with_events_.clear();
}

void Server::deliver_data(std::uint32_t qpn, const wire::DatagramInfo& info, Bytes payload) {
  if (qpn == wire::kMulticastQpn) return deliver_multicast(info, payload);
  const auto owner = sessions_.find(qpns_.owner_of(qpn));
  if (owner == sessions_.end() || owner->second->doomed) {
    ++counters_.packets_no_owner;
    return;
  }
  hand_over(*owner->second, peer_qpn_of(*owner->second, qpn), info, payload);
}

void Server::deliver_multicast(const wire::DatagramInfo& info, Bytes payload) {
  const auto members = groups_.members_of({info.destination, info.ifindex});
  if (members.empty()) ++counters_.packets_no_owner;
  for (const MulticastGroups::Member member : members) {
    Session& session = *sessions_.at(member);
    if (!session.doomed) hand_over(session, 0, info, payload);
  }
}

void Server::hand_over(Session& session, std::uint32_t peer_qpn, const wire::DatagramInfo& info, Bytes payload) {
  if (!session.data) {
    ++counters_.packets_no_link;
    return;
  }
  if (!source_allowed(peer_qpn, info)) return;
  switch (session.data->deliver(info, payload)) {
    case DataLink::Delivery::kDelivered:
      ++counters_.packets;
      return;
    case DataLink::Delivery::kFull:
      ++counters_.packets_ring_full;
      return;
    case DataLink::Delivery::kTooLong:
      ++counters_.packets_too_long;
      return;
    case DataLink::Delivery::kBroken:
      ++counters_.sessions_violated;
      doom(session, "broken data ring");
      return;
  }
}

// What the program has written; 0 = any peer.
std::uint32_t Server::peer_qpn_of(const Session& owner, std::uint32_t qpn) const {
  auto* table = static_cast<std::uint32_t*>(owner.peer_table.data());
  return std::atomic_ref(table[qpns_.index_of(qpn)]).load(std::memory_order_acquire);
}

bool Server::source_allowed(std::uint32_t peer_qpn, const wire::DatagramInfo& info) {
  if (!node_->is_local(info.source)) return true;
  switch (sources_.check(info.source_port, peer_qpn, qpns_)) {
    case SourceCheck::Verdict::kAccept:
      return true;
    case SourceCheck::Verdict::kUnknownPort:
      ++counters_.packets_unknown_source_port;
      return false;
    case SourceCheck::Verdict::kForeignPeer:
      ++counters_.packets_foreign_peer;
      return false;
  }
  return false;
}

}  // namespace ucm::daemon
