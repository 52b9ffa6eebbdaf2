#include "cm/listeners.h"

#include <algorithm>
#include <cerrno>

#include "cm/limits.h"

namespace ucm::cm {
namespace {

// How well a listener fits a request; the best one gets it.
enum class Fit : std::uint8_t { kNone, kAnyFamily, kWildcard, kAddress };

Fit fit(const ListenParams& listener, const wire::IpCmHeader& header, const Path& path) {
  if (listener.ifindex != 0 && path.ifindex != 0 && listener.ifindex != path.ifindex) return Fit::kNone;
  // Linux takes a loopback address for a wildcard, and strangers come in. A loopback listener of UCM is for this host.
  if (listener.address.is_loopback() && !path.remote.is_loopback()) return Fit::kNone;
  if (!listener.address.is_unspecified()) {
    return listener.address == header.destination ? Fit::kAddress : Fit::kNone;
  }
  if (listener.address.is_ipv4() == header.destination.is_ipv4()) return Fit::kWildcard;
  return listener.address_family_only ? Fit::kNone : Fit::kAnyFamily;
}

}  // namespace

std::vector<Listeners::Entry>::const_iterator Listeners::first_of(std::uint64_t service_id) const {
  return std::lower_bound(by_service_.begin(), by_service_.end(), Entry{service_id, 0});
}

Result<Listeners::Index> Listeners::add(const ListenParams& params) {
  if (slots_.in_use() >= kListenersMax) return fail(ENOMEM, "too many listeners");
  for (auto it = first_of(params.service_id); it != by_service_.end() && it->service_id == params.service_id; ++it) {
    const ListenParams& other = slots_[it->index].params;
    if (other.address == params.address && other.ifindex == params.ifindex) {
      return fail(EADDRINUSE, "another listener has this service ID and address");
    }
  }
  const Index index = slots_.take();
  Listener& listener = slots_[index];
  listener.params = params;
  listener.params.backlog = std::clamp(params.backlog, 1u, kBacklogMax);
  listener.open = true;
  const Entry entry{params.service_id, index};
  by_service_.insert(std::lower_bound(by_service_.begin(), by_service_.end(), entry), entry);
  return index;
}

void Listeners::remove(Index index) {
  Listener& listener = slots_[index];
  const Entry entry{listener.params.service_id, index};
  by_service_.erase(std::lower_bound(by_service_.begin(), by_service_.end(), entry));
  listener.open = false;
  ++listener.generation;
  slots_.give_back(index);
}

bool Listeners::valid(Index index, std::uint32_t generation) const {
  return index < slots_.capacity() && slots_[index].open && slots_[index].generation == generation;
}

bool Listeners::has_service(std::uint64_t service_id) const {
  const auto it = first_of(service_id);
  return it != by_service_.end() && it->service_id == service_id;
}

Listeners::Index Listeners::match(std::uint64_t service_id, const wire::IpCmHeader& header, const Path& path) const {
  Index best = kNone;
  Fit best_fit = Fit::kNone;
  for (auto it = first_of(service_id); it != by_service_.end() && it->service_id == service_id; ++it) {
    const Fit candidate = fit(slots_[it->index].params, header, path);
    if (candidate > best_fit) {
      best = it->index;
      best_fit = candidate;
    }
  }
  return best;
}

void Listeners::add_to(StateHash& hash) const {
  hash.add(by_service_.size());
  for (const Entry& entry : by_service_) {
    const Listener& listener = slots_[entry.index];
    hash.add(entry.service_id);
    hash.add(entry.index);
    hash.add(listener.generation);
    hash.add(Bytes(listener.params.address.bytes));
    hash.add(listener.params.ifindex);
    hash.add(listener.params.backlog);
    hash.add(listener.requests.size());
    hash.add(listener.untaken_sidr);
  }
}

}  // namespace ucm::cm
