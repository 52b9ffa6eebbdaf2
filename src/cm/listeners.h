// The listeners of a node, and which of them a REQ is for.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "cm/path.h"
#include "cm/requests.h"
#include "cm/slab.h"
#include "wire/cm_messages.h"
#include "wire/ip_cm.h"

namespace ucm::cm {

enum class ListenerId : std::uint64_t {};

struct ListenParams {
  std::uint64_t service_id = 0;
  // The address bound, or unspecified for a wildcard. IPv4 (mapped) and IPv6 alike.
  wire::IpAddress address{};
  bool address_family_only = true;
  std::uint32_t ifindex = 0;  // for a link-local address
  // The only transport accepted; another one is answered with REJ 28. nullopt: datagrams, asked for with SIDR_REQ.
  std::optional<wire::TransportService> transport = wire::TransportService::kRc;
  std::uint32_t backlog = 1024;  // requests delivered or queued, and not yet taken with request_taken()
  std::uint64_t user = 0;        // returned in events
};

struct Listener {
  ListenParams params{};
  std::uint32_t generation = 1;
  bool open = false;
  Requests::Queue requests{};
  std::uint32_t untaken_sidr = 0;
};

class Listeners {
 public:
  using Index = Slab<Listener>::Index;
  static constexpr Index kNone = Slab<Listener>::kNone;

  Result<Index> add(const ListenParams& params);
  void remove(Index index);

  Listener& operator[](Index index) { return slots_[index]; }
  const Listener& operator[](Index index) const { return slots_[index]; }
  bool valid(Index index, std::uint32_t generation) const;
  std::size_t size() const { return slots_.in_use(); }
  template <class Visit>
  void for_each(Visit visit) const {
    for (const Entry& entry : by_service_) visit(slots_[entry.index]);
  }

  // Somebody listens for `service_id`, on whatever address.
  bool has_service(std::uint64_t service_id) const;
  // The most specific listener for a request to `header.destination` that arrived over `path`; kNone when no listener
  // of the service takes it.
  Index match(std::uint64_t service_id, const wire::IpCmHeader& header, const Path& path) const;

  void add_to(StateHash& hash) const;

 private:
  struct Entry {
    std::uint64_t service_id;
    Index index;
    auto operator<=>(const Entry&) const = default;
  };
  // Where the entries of `service_id` begin in by_service_.
  std::vector<Entry>::const_iterator first_of(std::uint64_t service_id) const;

  Slab<Listener> slots_;
  std::vector<Entry> by_service_;  // sorted
};

}  // namespace ucm::cm
