// Service ports of the rdma_cm port spaces: who holds which, and who may share. Pure: the random start of a search
// comes in as an argument.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "wire/address.h"

namespace ucm::node {

// What decides about sharing a port. Unspecified addresses are wildcards; a loopback address is not (Linux: it is).
struct PortClaim {
  wire::IpAddress source{};
  wire::IpAddress destination{};
  std::uint16_t destination_port = 0;
  bool reuse_address = false;
  bool family_only = false;
};

struct PortRange {
  std::uint16_t first;
  std::uint16_t last;
};

class PortSpaces {
 public:
  using Owner = std::uint32_t;
  using Space = std::uint16_t;

  // The owner holds no port yet.
  // EADDRINUSE: the same address; EADDRNOTAVAIL: a wildcard is in the way.  // Linux: the same distinction
  Result<void> bind(Space space, Owner owner, std::uint16_t port, const PortClaim& claim);
  // A free port of the range, else one whose holders go to other destinations; the search starts at a place that
  // `random` chooses. EADDRNOTAVAIL when there is none.
  Result<std::uint16_t> bind_ephemeral(Space space, Owner owner, PortRange range, std::uint64_t random,
                                       const PortClaim& claim);
  // Gives the owner a port that it has held before, whoever else holds it.
  void restore(Space space, Owner owner, std::uint16_t port, const PortClaim& claim) {
    hold({space, port}, owner, claim);
  }
  // A port shared by reuse_address cannot be listened on. Errors as bind().
  Result<void> check_listen(Owner owner) const;
  // Does nothing when the owner holds no port.
  void update(Owner owner, const PortClaim& claim);
  void release(Owner owner);

 private:
  using Key = std::pair<Space, std::uint16_t>;
  struct Binding {
    Key key;
    PortClaim claim;
  };

  Result<void> check(const Key& key, Owner self, const PortClaim& claim, bool reuse_address) const;
  bool is_unique(const Key& key, const PortClaim& claim) const;
  void hold(const Key& key, Owner owner, const PortClaim& claim);

  std::map<Key, std::vector<Owner>> owners_;
  std::unordered_map<Owner, Binding> bindings_;
  std::map<Space, std::uint16_t> last_ephemeral_;  // not handed out twice in a row
};

}  // namespace ucm::node
