// Address resolution: from a destination to a device, a source address and a neighbour that answers.
#include <algorithm>
#include <cerrno>

#include "net/socket_address.h"
#include "node/core.h"
#include "node/limits.h"

namespace ucm::node {
namespace {

// Like connect() of a socket: nowhere in particular is here.
wire::IpAddress loopback_for_unspecified(const wire::IpAddress& address) {
  if (address == wire::IpAddress::ipv4_any()) return wire::IpAddress::ipv4(0x7F000001);
  if (address != wire::IpAddress{}) return address;
  wire::IpAddress one;
  one.bytes[15] = 1;
  return one;
}

std::string why_unresolved(const host::Route& route, const wire::IpAddress& destination, std::int32_t status) {
  const std::string to = "on the way to " + net::to_string(destination);
  const std::string interface = "interface " + std::to_string(route.ifindex);
  if (status == -ENODEV) return interface + " " + to + " has no device";
  return "neighbour " + net::to_string(route.next_hop) + " on " + interface + ", " + to + ", does not answer";
}

std::uint32_t scope_of(const Endpoint& destination, const Endpoint& local) {
  if (!destination.address.is_link_local() && !local.address.is_link_local()) return 0;
  return destination.scope != 0 ? destination.scope : local.scope;
}

}  // namespace

Result<void> Core::resolve_addr(TimeNs now, RdmaId& id, const ipc::CmCommand& command) {
  auto destination = endpoint_of(command.destination);
  if (!destination) return fail(EINVAL, "the destination is no IPv4 or IPv6 address");
  destination->address = loopback_for_unspecified(destination->address);
  const bool ipv4 = destination->address.is_ipv4();
  if (id.state == IdState::kIdle) {
    const auto any = Endpoint{.address = ipv4 ? wire::IpAddress::ipv4_any() : wire::IpAddress{}, .known = true};
    Endpoint local = endpoint_of(command.source).value_or(any);
    // One that listens for both families is bound to neither.
    if (local.address.is_ipv4() != ipv4) return fail(EINVAL, "source and destination are of different families");
    // The port may be shared with IDs that go elsewhere.
    id.remote = *destination;
    if (auto bound = bind(id, local); !bound) {
      id.remote = {};
      return bound;
    }
    id.state = IdState::kAddrBound;
  }
  if (id.local.address.is_ipv4() != ipv4) return fail(EINVAL, "source and destination are of different families");
  return start_resolution(now, id, *destination, command.timeout_ms);
}

Result<void> Core::start_resolution(TimeNs now, RdmaId& id, const Endpoint& destination, std::uint32_t timeout_ms) {
  const std::uint32_t scope = scope_of(destination, id.local);
  if (destination.address.is_link_local() && scope == 0)
    return fail(EINVAL, "a link-local address needs its interface");
  host::RouteQuery query{.destination = destination.address, .ifindex = scope};
  if (!id.local.address.is_unspecified()) query.source = id.local.address;
  auto route = host_.find_route(query);
  if (!route) return tl::unexpected(route.error());

  id.bound = id.local;
  id.bound_ifindex = id.ifindex;
  id.route = *route;
  id.remote = destination;
  id.remote.scope = scope;
  id.state = IdState::kAddrQuery;
  const host::Device* device = host_.find_device_of(route->source, route->ifindex);
  if (device == nullptr) device = host_.find_device(route->ifindex);
  if (device == nullptr) {
    finish_resolution(id, -ENODEV);
    return {};
  }
  id.local.address = route->source;
  id.local.scope = device->ifindex;
  id.ifindex = device->ifindex;
  ports_.update(id.id, claim_of(id));

  const NeighborKey key{route->ifindex, route->next_hop};
  if (!route->needs_neighbor || host_.neighbor_state(key.first, key.second) == host::NeighborState::kUsable) {
    finish_resolution(id, 0);
    return {};
  }
  host_.resolve_neighbor(key.first, key.second);
  waiting_[key].insert(id.id);
  id.resolve_deadline = now + TimeNs{timeout_ms} * kNanosecondsPerMillisecond;
  resolve_deadlines_.emplace(id.resolve_deadline, id.id);
  next_neighbor_check_ = std::min(next_neighbor_check_, now + kNeighborCheckNs);
  return {};
}

void Core::finish_resolution(RdmaId& id, std::int32_t status) {
  const std::string why = status == 0 ? "" : why_unresolved(id.route, id.remote.address, status);
  forget_resolution(id);
  id.state = *next_state(id.state, status == 0 ? IdInput::kAddrFound : IdInput::kAddrFailed);
  if (status != 0) {
    id.local = id.bound;
    id.ifindex = id.bound_ifindex;
    id.remote = {};
    ports_.update(id.id, claim_of(id));
  }
  push_event(id.id,
             {.type = status == 0 ? ipc::CmEventType::kAddrResolved : ipc::CmEventType::kAddrError,
              .status = status,
              .id = id.id,
              .path = path_of(id)},
             why);
}

void Core::check_neighbor(const NeighborKey& key) {
  const auto waiting = waiting_.find(key);
  if (waiting == waiting_.end()) return;
  switch (host_.neighbor_state(key.first, key.second)) {
    case host::NeighborState::kUsable: {
      // A copy: every finished one leaves the set, the last one ends it.
      const std::set<std::uint32_t> numbers = waiting->second;
      for (const std::uint32_t number : numbers) finish_resolution(*find(number), 0);
      break;
    }
    case host::NeighborState::kUnresolved:
      host_.resolve_neighbor(key.first, key.second);
      break;
    case host::NeighborState::kPending:
      break;
  }
}

void Core::expire_resolutions(TimeNs now) {
  while (!resolve_deadlines_.empty() && resolve_deadlines_.begin()->first <= now) {
    finish_resolution(*find(resolve_deadlines_.begin()->second), -ETIMEDOUT);
  }
}

void Core::check_neighbors(TimeNs now) {
  if (next_neighbor_check_ > now) return;
  std::vector<NeighborKey> keys;
  for (const auto& [key, numbers] : waiting_) keys.push_back(key);
  for (const NeighborKey& key : keys) check_neighbor(key);
  next_neighbor_check_ = waiting_.empty() ? kNever : now + kNeighborCheckNs;
}

}  // namespace ucm::node
