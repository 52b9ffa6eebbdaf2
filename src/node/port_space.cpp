#include "node/port_space.h"

#include <algorithm>
#include <cerrno>
#include <string>

#include "base/check.h"

namespace ucm::node {
namespace {

// Both are told apart by this pair of addresses: neither is a wildcard and they differ.
bool differ(const wire::IpAddress& a, const wire::IpAddress& b) {
  return !a.is_unspecified() && !b.is_unspecified() && a != b;
}

}  // namespace

Result<void> PortSpaces::check(const Key& key, Owner self, const PortClaim& claim, bool reuse_address) const {
  const auto holders = owners_.find(key);
  if (holders == owners_.end()) return {};
  for (const Owner owner : holders->second) {
    if (owner == self) continue;
    const PortClaim& other = bindings_.at(owner).claim;
    if (reuse_address && other.reuse_address) continue;
    if (claim.family_only && other.family_only && claim.source.is_ipv4() != other.source.is_ipv4()) continue;
    const std::string port = "port " + std::to_string(key.second);
    if (claim.source.is_unspecified() || other.source.is_unspecified()) {
      return fail(EADDRNOTAVAIL, port + " is bound on a wildcard address, or to be");
    }
    if (claim.source == other.source) return fail(EADDRINUSE, port + " is bound on this address");
  }
  return {};
}

bool PortSpaces::is_unique(const Key& key, const PortClaim& claim) const {
  const auto holders = owners_.find(key);
  if (holders == owners_.end()) return true;
  return std::ranges::all_of(holders->second, [&](Owner owner) {
    const PortClaim& other = bindings_.at(owner).claim;
    return claim.destination_port != other.destination_port || differ(claim.source, other.source) ||
           differ(claim.destination, other.destination);
  });
}

void PortSpaces::hold(const Key& key, Owner owner, const PortClaim& claim) {
  const bool fresh = bindings_.emplace(owner, Binding{key, claim}).second;
  UCM_CHECK(fresh);
  owners_[key].push_back(owner);
}

Result<void> PortSpaces::bind(Space space, Owner owner, std::uint16_t port, const PortClaim& claim) {
  const Key key{space, port};
  if (auto checked = check(key, owner, claim, claim.reuse_address); !checked) return checked;
  hold(key, owner, claim);
  return {};
}

Result<std::uint16_t> PortSpaces::bind_ephemeral(Space space, Owner owner, PortRange range, std::uint64_t random,
                                                 const PortClaim& claim) {
  const std::uint32_t count = std::uint32_t{range.last} - range.first + 1;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto port = static_cast<std::uint16_t>(range.first + (random + i) % count);
    if (port == last_ephemeral_[space] || !is_unique({space, port}, claim)) continue;
    hold({space, port}, owner, claim);
    last_ephemeral_[space] = port;
    return port;
  }
  return fail(EADDRNOTAVAIL,
              "no free port between " + std::to_string(range.first) + " and " + std::to_string(range.last));
}

Result<void> PortSpaces::check_listen(Owner owner) const {
  const Binding& binding = bindings_.at(owner);
  return check(binding.key, owner, binding.claim, false);
}

void PortSpaces::update(Owner owner, const PortClaim& claim) {
  if (const auto binding = bindings_.find(owner); binding != bindings_.end()) binding->second.claim = claim;
}

void PortSpaces::release(Owner owner) {
  const auto binding = bindings_.find(owner);
  if (binding == bindings_.end()) return;
  const auto holders = owners_.find(binding->second.key);
  std::erase(holders->second, owner);
  if (holders->second.empty()) owners_.erase(holders);
  bindings_.erase(binding);
}

}  // namespace ucm::node
