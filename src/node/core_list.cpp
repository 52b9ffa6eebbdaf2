// What `ucm list` shows.
#include <algorithm>

#include "node/core.h"
#include "node/limits.h"

namespace ucm::node {
namespace {

ipc::SocketAddress without_port(const wire::IpAddress& address, std::uint32_t scope) {
  return to_socket_address({.address = address, .scope = address.is_link_local() ? scope : 0, .known = true});
}

// Of connections and exchanges alike.
Node::Listing common_listing(const RdmaId* id, const cm::Path& path) {
  Node::Listing listing{.user = ipc::kTraceNoUser,
                        .local = without_port(path.local, path.ifindex),
                        .remote = without_port(path.remote, path.ifindex)};
  if (id == nullptr) return listing;
  listing.port_space = static_cast<std::uint16_t>(id->port_space);
  listing.id = id->id;
  listing.session = id->session;
  listing.user = id->user;
  listing.local = to_socket_address(id->local);
  listing.remote = to_socket_address(id->remote);
  return listing;
}

}  // namespace

Node::Listing Core::listing_of(const RdmaId& listener) const {
  return {.kind = Node::Listing::Kind::kListener,
          .port_space = static_cast<std::uint16_t>(listener.port_space),
          .id = listener.id,
          .session = listener.session,
          .user = listener.user,
          .state = "listening",
          .local = to_socket_address(listener.local),
          .backlog = listener.backlog,
          .pending = static_cast<std::uint32_t>(listener.untaken.size())};
}

Node::Listing Core::listing_of(std::uint32_t slot, const cm::Connection& connection) const {
  const RdmaId* id = cm::has_handle(connection.state) ? find(static_cast<std::uint32_t>(connection.user)) : nullptr;
  if (id != nullptr && engine_.connection(id->connection) != &connection) id = nullptr;
  Node::Listing listing = common_listing(id, connection.path);
  listing.kind = Node::Listing::Kind::kConnection;
  listing.active = connection.active;
  listing.state = cm::name(connection.state);
  listing.local_comm_id = connection.local_comm_id;
  listing.remote_comm_id = connection.remote_comm_id;
  listing.qpn = connection.local_qpn;
  listing.peer_qpn = connection.remote_qpn;
  listing.answer_time = engine_.answer_time(connection);
  listing.track_slot = slot;
  return listing;
}

Node::Listing Core::listing_of(std::uint32_t slot, const cm::SidrExchange& exchange) const {
  const RdmaId* id = find(static_cast<std::uint32_t>(exchange.user));
  if (id != nullptr && cm::slot_in(id->exchange) != slot) id = nullptr;
  Node::Listing listing = common_listing(id, exchange.path);
  listing.kind = Node::Listing::Kind::kDatagram;
  listing.active = exchange.active;
  listing.state = cm::name(exchange.state);
  (exchange.active ? listing.local_comm_id : listing.remote_comm_id) = exchange.request_id;
  listing.track_slot = slot;
  return listing;
}

std::vector<Node::Listing> Core::list(Node::ListPosition& position, std::size_t entries_max) const {
  using Part = Node::ListPosition::Part;
  std::vector<Node::Listing> all;
  if (position.part == Part::kListeners) {
    auto next = listening_.lower_bound(position.next);
    for (; next != listening_.end() && all.size() < entries_max; ++next) {
      position.next = *next + 1;
      all.push_back(listing_of(*find(*next)));
    }
    if (next == listening_.end()) position = {.part = Part::kConnections};
    return all;
  }
  const bool connections = position.part == Part::kConnections;
  const std::uint32_t slots = connections ? engine_.connection_slots() : engine_.exchange_slots();
  const std::uint32_t end =
      slots - std::min(slots, position.next) < kListSlotsMax ? slots : position.next + kListSlotsMax;
  for (; position.next < end && all.size() < entries_max; ++position.next) {
    const std::uint32_t slot = position.next;
    if (connections) {
      if (const auto* const connection = engine_.connection_in(slot)) all.push_back(listing_of(slot, *connection));
    } else if (const auto* const exchange = engine_.exchange_in(slot)) {
      all.push_back(listing_of(slot, *exchange));
    }
  }
  if (position.next >= slots) position = {.part = connections ? Part::kDatagrams : Part::kEnd};
  return all;
}

}  // namespace ucm::node
