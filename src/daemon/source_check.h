// Keeps one user of a host from injecting packets into another user's connection. A packet from another host is as
// trustworthy as the network; one from this host can be checked: ucmd handed out the socket that it left through, and
// knows which process owns which QP number. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/qpn_allocator.h"

namespace ucm::daemon {

class SourceCheck {
 public:
  using Owner = QpnAllocator::Owner;

  SourceCheck();

  void register_port(std::uint16_t source_port, Owner owner);
  void release_all(Owner owner);

  enum class Verdict {
    kAccept,
    kUnknownPort,  // not a port that was handed out
    kForeignPeer,  // the port's owner does not own the QP that the destination is connected to
  };
  // For a packet whose source address is one of this host. `peer_qpn`: what the destination QP accepts; 0 = any.
  Verdict check(std::uint16_t source_port, std::uint32_t peer_qpn, const QpnAllocator& qpns) const;

 private:
  std::vector<Owner> owners_;  // by port
};

}  // namespace ucm::daemon
