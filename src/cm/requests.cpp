#include "cm/requests.h"

#include <algorithm>

#include "base/bytes.h"
#include "cm/limits.h"
#include "cm/peers.h"

namespace ucm::cm {

Slab<Requests::Source>::Index Requests::find_source(std::uint32_t listener, const Host& host) const {
  return by_source_.find(hash_of(key_, host, listener), [&](std::uint32_t index) {
    return sources_[index].listener == listener && sources_[index].host == host;
  });
}

bool Requests::has_room(const Queue& queue, std::uint32_t listener, std::uint32_t backlog, const Path& path,
                        const wire::MadHeader& header) const {
  if (queue.size() >= backlog) return false;
  if (queue.waiting == 0) return true;
  const auto source = find_source(listener, peer_host(path));
  const bool crowded = queue.sources.size() >= kSourcesMax && queue.size() >= backlog / 2;
  if (crowded && source == SlotTable::kNone && from_ucm(header)) return false;
  const std::size_t own = source == SlotTable::kNone ? 0 : sources_[source].waiting.size();
  return own < kRequestsPerSource || own < backlog - queue.size();
}

Requests::Index Requests::add(Queue& queue, std::uint32_t listener, std::uint32_t slot, const Path& path) {
  const Index index = requests_.take();
  Request& request = requests_[index];
  request.slot = slot;
  request.listener = listener;
  request.delivered = queue.delivered.size() < delivered_max_;
  if (request.delivered) {
    queue.delivered.push_back(requests_, index);
    return index;
  }
  const Host host = peer_host(path);
  auto source = find_source(listener, host);
  if (source == SlotTable::kNone) {
    source = sources_.take();
    sources_[source] = {.host = host, .listener = listener};
    by_source_.insert(hash_of(key_, host, listener), source);
    queue.sources.push_back(sources_, source);
  }
  request.source = source;
  sources_[source].waiting.push_back(requests_, index);
  ++queue.waiting;
  return index;
}

Requests::Index Requests::deliver_next(Queue& queue) {
  if (queue.sources.empty() || queue.delivered.size() >= delivered_max_) return kNone;
  const auto turn = queue.sources.front();
  Source& source = sources_[turn];
  const Index index = source.waiting.front();
  if (++source.served == kRequestsPerTurn) {
    source.served = 0;
    queue.sources.remove(sources_, turn);
    queue.sources.push_back(sources_, turn);
  }
  take_out(queue, index);
  requests_[index].delivered = true;
  queue.delivered.push_back(requests_, index);
  return index;
}

// Of those that wait.
void Requests::take_out(Queue& queue, Index index) {
  const auto at = requests_[index].source;
  Source& source = sources_[at];
  source.waiting.remove(requests_, index);
  --queue.waiting;
  if (!source.waiting.empty()) return;
  queue.sources.remove(sources_, at);
  by_source_.erase(hash_of(key_, source.host, source.listener), at);
  sources_.give_back(at);
}

void Requests::remove(Queue& queue, Index index) {
  if (requests_[index].delivered) {
    queue.delivered.remove(requests_, index);
  } else {
    take_out(queue, index);
  }
  requests_.give_back(index);
}

void Requests::add_to(StateHash& hash, const Queue& queue) const {
  const auto add_all = [&](const SlabList<Request>& list) {
    hash.add(list.size());
    for (auto i = list.front(); i != list.kNone; i = requests_[i].link.next) hash.add(requests_[i].slot);
  };
  add_all(queue.delivered);
  for (auto i = queue.sources.front(); i != queue.sources.kNone; i = sources_[i].link.next) {
    hash.add(sources_[i].served);
    add_all(sources_[i].waiting);
  }
}

Requests::Index Requests::any(const Queue& queue) const {
  return queue.sources.empty() ? queue.delivered.front() : sources_[queue.sources.front()].waiting.front();
}

}  // namespace ucm::cm
