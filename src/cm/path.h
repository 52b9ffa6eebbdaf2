// Where a CM packet goes to or came from.
#pragma once

#include <cstdint>

#include "base/random.h"
#include "wire/address.h"

namespace ucm::cm {

struct Path {
  wire::IpAddress local{};
  wire::IpAddress remote{};
  std::uint32_t ifindex = 0;  // interface of a link-local address or of the receiving port; 0 = any
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
};

// The same host at the other end; a link-local address is one host's only on one interface.
inline bool same_peer(const Path& a, const Path& b) {
  if (a.remote != b.remote) return false;
  return !a.remote.is_link_local() || a.ifindex == 0 || b.ifindex == 0 || a.ifindex == b.ifindex;
}

// The host at the other end.
struct Host {
  wire::IpAddress address{};
  std::uint32_t ifindex = 0;  // of a link-local address; else 0
  bool operator==(const Host&) const = default;
};

inline Host peer_host(const Path& path) {
  return {.address = path.remote, .ifindex = path.remote.is_link_local() ? path.ifindex : 0};
}

// A peer chooses its address, and `number`, to its liking: the hash is keyed, so that nobody can aim at one bucket.
inline std::uint32_t hash_of(const RandomKey& key, const Host& host, std::uint32_t number) {
  const auto [upper, lower] = host.address.words();
  return static_cast<std::uint32_t>(table_hash(key, {upper, lower, std::uint64_t{host.ifindex} << 32 | number}));
}

}  // namespace ucm::cm
