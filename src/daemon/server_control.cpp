// The server's side of the control socket: one function per call.
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "daemon/server.h"
#include "daemon/server_types.h"
#include "ipc/device_list.h"
#include "net/udp_sender.h"

namespace ucm::daemon {

using ipc::ControlCall;
using ipc::ControlReply;
using ipc::ControlRequest;

namespace {

wire::MulticastGroup group_of(const ControlRequest& request) {
  return {.address = {.bytes = request.group}, .ifindex = request.ifindex};
}

}  // namespace

void Server::on_control(std::uint32_t session_id, std::uint32_t epoll_events) {
  const auto it = sessions_.find(session_id);
  if (it == sessions_.end() || it->second->doomed) return;
  Session& session = *it->second;
  // One byte more than a request, so that a longer one is told apart.
  std::array<std::uint8_t, sizeof(ControlRequest) + 1> buffer{};
  const auto received = ipc::receive_message(session.socket.get(), buffer, ipc::ReceiveMode::kPeek);
  if (!received) {
    if (received.error().code == EAGAIN && (epoll_events & (EPOLLHUP | EPOLLRDHUP | EPOLLERR)) == 0) return;
    if (received.error().code == EMSGSIZE) ++counters_.sessions_violated;
    doom(session, received.error().message);
    return;
  }
  if (received->size == 0) {
    doom(session, "process gone or session closed");
    return;
  }
  if (received->descriptor_count != 0 || received->none_left) {
    ++counters_.sessions_violated;
    doom(session, "a program passes no descriptors");
    return;
  }
  // Only an answered request is taken: a successor finds the one at which this ucmd dies, and answers it.
  on_request(session, Bytes(buffer).first(received->size));
  ipc::discard_message(session.socket.get());
}

void Server::on_request(Session& session, Bytes message) {
  const auto request = ipc::parse_request(message);
  if (!request) {
    if (request.error().code == EPROTONOSUPPORT) say_version_mismatch(session, request.error().message);
    ++counters_.sessions_violated;
    doom(session, request.error().message);
    return;
  }
  const bool again = session.asked_before == request->header.sequence;
  if (!again && session.greeted != (request->header.call != ControlCall::kHello)) {
    ++counters_.sessions_violated;
    doom(session, "hello is the first call, once");
    return;
  }
  session.last_request = request->header.sequence;
  answer(session, *request);
  session.asked_before.reset();
}

void Server::answer(Session& session, const ControlRequest& request) {
  const ControlCall call = request.header.call;
  const bool for_programs = call == ControlCall::kOpenCmLink || call == ControlCall::kOpenDataLink ||
                            call == ControlCall::kCloseLink || call == ControlCall::kAllocateQpns ||
                            call == ControlCall::kSendSockets || call == ControlCall::kJoinGroup ||
                            call == ControlCall::kLeaveGroup || call == ControlCall::kWatchDevices;
  if (for_programs && session.role != ipc::Role::kProgram) {
    return send_failure(session, request, EPERM, "a tool has no links and QP numbers");
  }
  switch (call) {
    case ControlCall::kHello:
      return hello(session, request);
    case ControlCall::kListDevices:
      return list_devices(session, request);
    case ControlCall::kOpenCmLink:
      return open_cm_link(session, request);
    case ControlCall::kOpenDataLink:
      return open_data_link(session, request);
    case ControlCall::kCloseLink:
      return close_link(session, request);
    case ControlCall::kAllocateQpns:
      return allocate_qpns(session, request);
    case ControlCall::kSendSockets:
      return send_sockets(session, request);
    case ControlCall::kStatus:
      return status(session, request);
    case ControlCall::kStop:
      return stop(session, request);
    case ControlCall::kJoinGroup:
      return join_group(session, request);
    case ControlCall::kLeaveGroup:
      return leave_group(session, request);
    case ControlCall::kObserve:
      return observe(session, request);
    case ControlCall::kWatchDevices:
      return watch_devices(session, request);
  }
}

void Server::send_reply(Session& session, ControlReply& reply, const Descriptors& descriptors) {
  reply.descriptor_count = static_cast<std::uint32_t>(descriptors.size());
  keep_session(session);
  node_->commit();
  const auto sent =
      ipc::send_message(session.socket.get(), ipc::bytes_of(reply), descriptors, ipc::SendMode::kDontWait);
  if (!sent) doom(session, sent.error().message);
}

void Server::send_failure(Session& session, const ControlRequest& request, int code, std::string_view message) {
  ControlReply reply = ipc::make_reply(request);
  ipc::set_error(reply, code, message);
  send_reply(session, reply, {});
}

// In this side's version: the header and the error are where every version expects them.
void Server::say_version_mismatch(Session& session, const std::string& message) {
  ControlReply reply = ipc::make_reply(ipc::make_request(ControlCall::kHello, 0));
  ipc::set_text(reply.daemon_version, UCM_VERSION);
  ipc::set_error(reply, EPROTONOSUPPORT, message);
  send_reply(session, reply, {});
}

void Server::hello(Session& session, const ControlRequest& request) {
  ControlReply reply = ipc::make_reply(request);
  reply.daemon_uid = geteuid();
  reply.daemon_pid = getpid();
  reply.node_instance = options_.node_instance;
  ipc::set_text(reply.daemon_version, UCM_VERSION);
  Descriptors descriptors;
  if (request.role == ipc::Role::kProgram) {
    if (!session.greeted && !take(session, node::Resource::kPrograms)) {
      return send_failure(session, request, EAGAIN,
                          "user " + std::to_string(session.peer.uid) + " runs as many programs as it may");
    }
    const auto refuse = [&](const Error& error) {
      give_back(session, node::Resource::kPrograms);
      send_failure(session, request, error.code, error.message);
    };
    auto memfd = ipc::create_memfd("ucm-peer-qpns", ipc::kPeerTableSize);
    if (!memfd) return refuse(memfd.error());
    auto table = ipc::SharedMemory::map(memfd->get(), ipc::kPeerTableSize);
    if (!table) return refuse(table.error());
    session.peer_table_memfd = std::move(*memfd);
    session.peer_table = std::move(*table);
    descriptors.push_back(session.peer_table_memfd.get());
    hold(Keeper::What::kSession, session.id, {session.socket.get(), session.peer_table_memfd.get()});
    if (!session.greeted) ++programs_;
  }
  session.role = request.role;
  session.greeted = true;
  send_reply(session, reply, descriptors);
  session.peer_table_memfd.reset();
  log(LogLevel::kDebug, "session " + std::to_string(session.id) + ": process " + std::to_string(session.peer.pid) +
                            " (" + session.program_name + ") of user " + std::to_string(session.peer.uid));
}

void Server::send_sealed_copy(Session& session, const ControlRequest& request, const char* name, Bytes bytes) {
  const auto memfd = ipc::create_sealed_copy(name, bytes);
  if (!memfd) return send_failure(session, request, memfd.error().code, memfd.error().message);
  ControlReply reply = ipc::make_reply(request);
  send_reply(session, reply, {memfd->get()});
}

void Server::list_devices(Session& session, const ControlRequest& request) {
  send_sealed_copy(session, request, "ucm-devices", ipc::emit_devices(node_->devices()));
}

// Programs of ucmd's own user could end it anyway.
ipc::TokenWriter::Reader Server::reader_of(const Session& session) {
  return session.peer.uid == geteuid() ? ipc::TokenWriter::Reader::kTrusted : ipc::TokenWriter::Reader::kUntrusted;
}

CmLink::Identity Server::identity_of(const Session& session, std::uint32_t link) const {
  return {.link = link, .session = session.id, .reader = reader_of(session), .journal = options_.journal};
}

Result<void> Server::watch_link(LinkEntry& link) {
  const auto ring = [this, id = link.id](std::uint32_t) {
    if (const auto it = links_.find(id); it != links_.end()) activate(*it->second);
  };
  return loop_.add(link.link.doorbell(), ring, net::EventLoop::Trigger::kEdge);
}

void Server::open_cm_link(Session& session, const ControlRequest& request) {
  if (links_.size() >= ipc::kLinksMax || !take(session, node::Resource::kChannels)) {
    return send_failure(session, request, ENOMEM, "too many event channels");
  }
  const auto refuse = [&](const Error& error) {
    give_back(session, node::Resource::kChannels);
    send_failure(session, request, error.code, error.message);
  };
  while (next_link_ == 0 || links_.contains(next_link_)) ++next_link_;
  auto link = CmLink::create(identity_of(session, next_link_));
  if (!link) return refuse(link.error());
  const std::uint32_t id = next_link_++;
  auto entry = std::make_unique<LinkEntry>(LinkEntry{.id = id, .session = &session, .link = std::move(*link)});
  if (const auto added = watch_link(*entry); !added) {
    entry->link.forget();
    return refuse(added.error());
  }

  ControlReply reply = ipc::make_reply(request);
  reply.link = id;
  const auto descriptors = entry->link.descriptors();
  hold(Keeper::What::kCmLink, id, {descriptors[0], descriptors[1], descriptors[2], descriptors[3]});
  send_reply(session, reply, {descriptors.begin(), descriptors.end()});
  entry->link.close_memory_descriptor();
  session.links.push_back(id);
  activate(*links_.emplace(id, std::move(entry)).first->second);
}

void Server::open_data_link(Session& session, const ControlRequest& request) {
  // A second time from one that had no descriptor left to take the first.
  auto link = DataLink::create(reader_of(session));
  if (!link) return send_failure(session, request, link.error().code, link.error().message);
  session.data = std::move(*link);
  ControlReply reply = ipc::make_reply(request);
  const auto descriptors = session.data->descriptors();
  hold(Keeper::What::kDataLink, session.id, {descriptors[0], descriptors[1]});
  send_reply(session, reply, {descriptors.begin(), descriptors.end()});
  session.data->close_memory_descriptor();
}

// A link that is not the session's is closed already: nothing to do.
void Server::close_link(Session& session, const ControlRequest& request) {
  const auto it = links_.find(request.link);
  if (it != links_.end() && it->second->session == &session) remove_link(request.link);
  ControlReply reply = ipc::make_reply(request);
  send_reply(session, reply, {});
}

void Server::allocate_qpns(Session& session, const ControlRequest& request) {
  if (session.qpn_blocks >= ipc::kQpnBlocksPerSessionMax || !take(session, node::Resource::kQueuePairs)) {
    return send_failure(session, request, ENOMEM, "too many queue pairs");
  }
  const auto first = qpns_.allocate(session.id, session.qpn_blocks);
  if (!first) {
    give_back(session, node::Resource::kQueuePairs);
    return send_failure(session, request, ENOMEM, "all QP numbers of this node are taken");
  }
  ControlReply reply = ipc::make_reply(request);
  reply.first_qpn = *first;
  reply.qpn_count = ipc::kQpnBlockSize;
  reply.table_index = session.qpn_blocks * ipc::kQpnBlockSize;
  keep_with(session, node::QpnBlockRecord{.session = session.id, .first_qpn = *first, .position = session.qpn_blocks});
  ++session.qpn_blocks;
  send_reply(session, reply, {});
}

void Server::send_sockets(Session& session, const ControlRequest& request) {
  if (session.send_ports >= ipc::kSendPortsPerSessionMax) {
    return send_failure(session, request, ENOSPC, "too many sending sockets in one process");
  }
  const auto sockets = net::make_send_sockets();
  if (!sockets) return send_failure(session, request, sockets.error().code, sockets.error().message);
  ++session.send_ports;
  sources_.register_port(sockets->port, session.id);
  keep_with(session, node::SendPortRecord{.session = session.id, .port = sockets->port});
  ControlReply reply = ipc::make_reply(request);
  reply.source_port = sockets->port;
  reply.has_ipv4 = sockets->ipv4.valid();
  reply.has_ipv6 = sockets->ipv6.valid();
  Descriptors descriptors;
  if (sockets->ipv4.valid()) descriptors.push_back(sockets->ipv4.get());
  if (sockets->ipv6.valid()) descriptors.push_back(sockets->ipv6.get());
  send_reply(session, reply, descriptors);
}

void Server::join_group(Session& session, const ControlRequest& request) {
  const wire::MulticastGroup group = group_of(request);
  if (!group.address.is_multicast()) return send_failure(session, request, EINVAL, "not a multicast address");
  if (groups_.joins_of(session.id) >= ipc::kGroupJoinsPerSessionMax) {
    return send_failure(session, request, ENOMEM, "too many multicast groups in one process");
  }
  if (groups_.join(session.id, group)) {
    if (const auto joined = node_->join_group(group); !joined) {
      groups_.leave(session.id, group);
      return send_failure(session, request, joined.error().code, joined.error().message);
    }
  }
  if (options_.journal != nullptr) {
    const node::GroupRecord record{.session = session.id, .ifindex = group.ifindex, .address = group.address.bytes};
    session.group_cells.emplace_back(group, options_.journal->put(node::Journal::kNone, record));
  }
  ControlReply reply = ipc::make_reply(request);
  send_reply(session, reply, {});
}

// A group that the session is not in: nothing to do.
void Server::leave_group(Session& session, const ControlRequest& request) {
  const wire::MulticastGroup group = group_of(request);
  if (groups_.leave(session.id, group)) node_->leave_group(group);
  const auto kept = std::ranges::find(session.group_cells, group, [](const auto& entry) { return entry.first; });
  if (kept != session.group_cells.end()) {
    options_.journal->drop(kept->second);
    session.group_cells.erase(kept);
  }
  ControlReply reply = ipc::make_reply(request);
  send_reply(session, reply, {});
}

void Server::watch_devices(Session& session, const ControlRequest& request) {
  if (session.devices_changed && !session.asked_before) {
    return send_failure(session, request, EBUSY, "the devices are watched already");
  }
  auto tokens = ipc::TokenWriter::create(reader_of(session), ipc::TokenWriter::Reading::kReturns);
  if (!tokens) return send_failure(session, request, tokens.error().code, tokens.error().message);
  session.devices_changed = std::move(*tokens);
  hold(Keeper::What::kDevicesChanged, session.id, {session.devices_changed.get()});
  ControlReply reply = ipc::make_reply(request);
  send_reply(session, reply, {session.devices_changed.get()});
}

void Server::status(Session& session, const ControlRequest& request) {
  const std::string text = status_json(viewer_of(session));
  send_sealed_copy(session, request, "ucm-status", {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

void Server::stop(Session& session, const ControlRequest& request) {
  if (!viewer_of(session).sees_all) {
    return send_failure(session, request, EPERM,
                        "only root and user " + std::to_string(geteuid()) + " may stop this ucmd");
  }
  log(LogLevel::kInfo, "asked to stop by process " + std::to_string(session.peer.pid));
  ControlReply reply = ipc::make_reply(request);
  send_reply(session, reply, {});
  shut_down();
}

}  // namespace ucm::daemon
