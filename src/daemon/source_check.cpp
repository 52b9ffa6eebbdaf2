#include "daemon/source_check.h"

#include <algorithm>

namespace ucm::daemon {

SourceCheck::SourceCheck() : owners_(std::size_t{UINT16_MAX} + 1) {}

void SourceCheck::register_port(std::uint16_t source_port, Owner owner) { owners_[source_port] = owner; }

void SourceCheck::release_all(Owner owner) { std::replace(owners_.begin(), owners_.end(), owner, Owner{0}); }

SourceCheck::Verdict SourceCheck::check(std::uint16_t source_port, std::uint32_t peer_qpn,
                                        const QpnAllocator& qpns) const {
  const Owner sender = owners_[source_port];
  if (sender == 0) return Verdict::kUnknownPort;
  if (peer_qpn != 0 && qpns.owner_of(peer_qpn) != sender) return Verdict::kForeignPeer;
  return Verdict::kAccept;
}

}  // namespace ucm::daemon
