// What a server keeps of its sessions beyond its own process, and how it goes on with those of another one.
#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "daemon/server.h"
#include "daemon/server_types.h"

namespace ucm::daemon {

using node::Journal;

// --- While it serves

void Server::hold(Keeper::What what, std::uint32_t id, std::initializer_list<int> descriptors) {
  if (options_.keeper != nullptr) options_.keeper->hold(what, id, {descriptors.begin(), descriptors.size()});
}

void Server::release(Keeper::What what, std::uint32_t id) {
  if (options_.keeper != nullptr) options_.keeper->release(what, id);
}

void Server::keep_session(Session& session) {
  if (options_.journal == nullptr || session.role != ipc::Role::kProgram || !session.greeted) return;
  node::SessionRecord record{.session = session.id,
                             .pid = session.peer.pid,
                             .uid = session.peer.uid,
                             .gid = session.peer.gid,
                             .last_request = session.last_request};
  ipc::set_text(record.program_name, session.program_name);
  record.low_ports = session.low_ports;
  session.cell = options_.journal->put(session.cell, record);
}

template <class Record>
void Server::keep_with(Session& session, const Record& record) {
  if (options_.journal != nullptr) session.other_cells.push_back(options_.journal->put(Journal::kNone, record));
}
template void Server::keep_with(Session& session, const node::QpnBlockRecord& record);
template void Server::keep_with(Session& session, const node::SendPortRecord& record);

void Server::forget_session(Session& session) {
  if (options_.journal == nullptr) return;
  options_.journal->drop(session.cell);
  for (Journal::Cell& cell : session.other_cells) options_.journal->drop(cell);
  for (auto& [group, cell] : session.group_cells) options_.journal->drop(cell);
  release(Keeper::What::kSession, session.id);
  if (session.data) release(Keeper::What::kDataLink, session.id);
  if (session.devices_changed) release(Keeper::What::kDevicesChanged, session.id);
}

// --- After another one has died
//
// Descriptors are held before the commit that tells of them, and released before the commit that forgets them. So what
// lacks its descriptors, or its session, was on its way out: it is dropped.

void Server::restore() {
  UCM_CHECK(node_ != nullptr && options_.keeper != nullptr && options_.journal != nullptr);
  options_.journal->for_each<node::SessionRecord>(
      [this](Journal::Cell cell, const node::SessionRecord& record) { restore_session(cell, record); });
  restore_numbers();
  restore_links();
  options_.keeper->release_rest();
}

bool Server::has_link(node::SessionId session, node::LinkId link) const {
  const auto it = links_.find(link);
  return it != links_.end() && it->second->session->id == session;
}

void Server::restore_session(Journal::Cell cell, const node::SessionRecord& record) {
  const std::uint32_t id = record.session;
  auto kept = options_.keeper->take(Keeper::What::kSession, id);
  auto table = ipc::SharedMemory::map(kept[1].get(), ipc::kPeerTableSize);
  if (id == 0 || sessions_.contains(id) || !kept[0] || !table) return options_.journal->drop(cell);
  auto session = std::make_unique<Session>();
  session->id = id;
  session->socket = std::move(kept[0]);
  session->peer_table = std::move(*table);
  session->peer = {.pid = record.pid, .uid = record.uid, .gid = record.gid};
  session->program_name = ipc::text_of(record.program_name);
  session->role = ipc::Role::kProgram;
  session->low_ports = record.low_ports != 0;
  session->greeted = true;
  session->cell = cell;
  session->last_request = record.last_request;
  session->asked_before = record.last_request;
  auto watching = options_.keeper->take(Keeper::What::kDevicesChanged, id);
  session->devices_changed = ipc::TokenWriter(reader_of(*session), std::move(watching[0]));
  auto data = options_.keeper->take(Keeper::What::kDataLink, id);
  if (auto link = DataLink::resume(std::move(data[0]), {reader_of(*session), std::move(data[1])}))
    session->data = std::move(*link);
  const auto added = loop_.add(session->socket.get(), [this, id](std::uint32_t events) { on_control(id, events); });
  if (!added) {
    log(LogLevel::kWarning, "process " + std::to_string(record.pid) + " is lost: " + added.error().message);
    return options_.journal->drop(cell);
  }
  next_session_ = std::max(next_session_, id + 1);
  ++programs_;
  quotas_.hold(id, record.uid, node::Resource::kPrograms);
  if (session->low_ports) node_->allow_low_ports(id);
  sessions_.emplace(id, std::move(session));
}

void Server::restore_numbers() {
  const auto session_of = [this](std::uint32_t id) -> Session* {
    const auto it = sessions_.find(id);
    return it != sessions_.end() ? it->second.get() : nullptr;
  };
  options_.journal->for_each<node::QpnBlockRecord>([&](Journal::Cell cell, const node::QpnBlockRecord& record) {
    Session* const session = session_of(record.session);
    if (session == nullptr || record.position >= ipc::kQpnBlocksPerSessionMax ||
        !qpns_.claim(record.session, record.first_qpn, record.position)) {
      return options_.journal->drop(cell);
    }
    quotas_.hold(session->id, session->peer.uid, node::Resource::kQueuePairs, ipc::kQpnBlockSize);
    ++session->qpn_blocks;
    session->other_cells.push_back(cell);
  });
  options_.journal->for_each<node::SendPortRecord>([&](Journal::Cell cell, const node::SendPortRecord& record) {
    Session* const session = session_of(record.session);
    if (session == nullptr) return options_.journal->drop(cell);
    ++session->send_ports;
    sources_.register_port(record.port, record.session);
    session->other_cells.push_back(cell);
  });
  options_.journal->for_each<node::GroupRecord>([&](Journal::Cell cell, const node::GroupRecord& record) {
    const wire::MulticastGroup group{.address = {record.address}, .ifindex = record.ifindex};
    Session* const session = session_of(record.session);
    if (session == nullptr) {
      // The node's socket is in the groups still.
      if (groups_.members_of(group).empty()) node_->leave_group(group);
      return options_.journal->drop(cell);
    }
    groups_.join(record.session, group);
    session->group_cells.emplace_back(group, cell);
  });
}

void Server::restore_links() {
  std::unordered_map<std::uint32_t, std::vector<KeptEvent>> events;
  options_.journal->for_each<node::EventRecord>([&](Journal::Cell cell, const node::EventRecord& record) {
    if (record.link != 0) events[record.link].emplace_back(cell, record);
  });
  options_.journal->for_each<node::LinkRecord>([&](Journal::Cell cell, const node::LinkRecord& record) {
    const auto own = events.find(record.link);
    if (!restore_link(cell, record, own != events.end() ? std::move(own->second) : std::vector<KeptEvent>{})) {
      return options_.journal->drop(cell);
    }
    if (own != events.end()) events.erase(own);
  });
  for (auto& [link, rest] : events) {
    for (auto& [cell, event] : rest) options_.journal->drop(cell);
  }
}

bool Server::restore_link(Journal::Cell cell, const node::LinkRecord& record, std::vector<KeptEvent> events) {
  const auto session = sessions_.find(record.session);
  if (session == sessions_.end() || record.link == 0 || links_.contains(record.link)) return false;
  std::ranges::sort(events, {}, [](const KeptEvent& event) { return event.second.number; });
  auto link = CmLink::resume(identity_of(*session->second, record.link),
                             options_.keeper->take(Keeper::What::kCmLink, record.link), cell, record, events);
  if (!link) return false;
  link->close_memory_descriptor();
  auto entry = std::make_unique<LinkEntry>(
      LinkEntry{.id = record.link, .session = session->second.get(), .link = std::move(*link)});
  if (!watch_link(*entry)) return false;
  quotas_.hold(session->first, session->second->peer.uid, node::Resource::kChannels);
  next_link_ = std::max(next_link_, record.link + 1);
  entry->session->links.push_back(record.link);
  entry->session->events_waiting += entry->link.waiting();
  links_with_events_.push_back(record.link);
  activate(*links_.emplace(record.link, std::move(entry)).first->second);
  return true;
}

}  // namespace ucm::daemon
