#include "cm/peers.h"

#include <algorithm>

#include "base/bytes.h"
#include "cm/limits.h"

namespace ucm::cm {
namespace {

std::uint32_t scope_of(const Path& path) { return path.remote.is_link_local() ? path.ifindex : 0; }

}  // namespace

std::uint32_t Peers::hash_of(const wire::IpAddress& address, std::uint32_t ifindex) const {
  const std::uint64_t upper = siphash24(key_, load_be64(&address.bytes[0]) ^ ifindex);
  return static_cast<std::uint32_t>(siphash24(key_, upper ^ load_be64(&address.bytes[8])));
}

Peers::Index Peers::find(const Path& path) const {
  return by_address_.find(hash_of(path.remote, scope_of(path)), [&](Index index) {
    return peers_[index].address == path.remote && peers_[index].ifindex == scope_of(path);
  });
}

Peers::Index Peers::find_or_add(const Path& path) {
  if (const Index known = find(path); known != kNone) return known;
  Index index = kNone;
  if (peers_.in_use() < kPeersMax) {
    index = peers_.take();
  } else {
    index = next_forgotten_;
    next_forgotten_ = (next_forgotten_ + 1) % kPeersMax;
    by_address_.erase(hash_of(peers_[index].address, peers_[index].ifindex), index);
  }
  peers_[index] = Peer{.address = path.remote, .ifindex = scope_of(path)};
  by_address_.insert(hash_of(path.remote, scope_of(path)), index);
  return index;
}

TimeNs Peers::first_wait(Index index) const {
  if (index == kNone || !peers_[index].measured) return recovery_.first_contact;
  const Peer& peer = peers_[index];
  const TimeNs estimate = (TimeNs{peer.answer_us} + 4 * TimeNs{peer.deviation_us}) * kNanosecondsPerMicrosecond;
  return std::clamp(estimate, peer.is_ucm ? recovery_.shortest : recovery_.shortest_foreign, recovery_.longest);
}

void Peers::answered(Index index, TimeNs elapsed, bool is_ucm) {
  Peer& peer = peers_[index];
  peer.is_ucm = is_ucm;
  const auto sample = static_cast<std::uint32_t>(std::min(elapsed, recovery_.longest) / kNanosecondsPerMicrosecond);
  if (!peer.measured) {
    peer.measured = true;
    peer.answer_us = sample;
    peer.deviation_us = sample / 2;
    return;
  }
  const std::uint32_t error = sample > peer.answer_us ? sample - peer.answer_us : peer.answer_us - sample;
  peer.deviation_us = (3 * peer.deviation_us + error) / 4;
  peer.answer_us = (7 * peer.answer_us + sample) / 8;
}

}  // namespace ucm::cm
