// Where a CM packet goes to or came from.
#pragma once

#include <cstdint>

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

}  // namespace ucm::cm
