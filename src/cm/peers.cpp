#include "cm/peers.h"

#include <algorithm>

#include "cm/limits.h"

namespace ucm::cm {

Peers::Index Peers::find(const Path& path, Index hint) {
  const Host host = peer_host(path);
  for (const Index candidate : {hint, found_last_}) {
    if (candidate != kNone && peers_[candidate].host == host) return candidate;
  }
  found_last_ = by_host_.find(hash_of(key_, host, 0), [&](Index index) { return peers_[index].host == host; });
  return found_last_;
}

Peers::Index Peers::find_or_add(const Path& path) {
  if (const Index known = find(path); known != kNone) return known;
  Index index = kNone;
  if (peers_.in_use() < kPeersMax) {
    index = peers_.take();
  } else {
    index = next_forgotten_;
    next_forgotten_ = (next_forgotten_ + 1) % kPeersMax;
    if (peers_[index].in_flight > 0 || !peers_[index].held.empty()) return kNone;
    by_host_.erase(hash_of(key_, peers_[index].host, 0), index);
  }
  const Host host = peer_host(path);
  peers_[index] = Peer{.host = host};
  by_host_.insert(hash_of(key_, host, 0), index);
  return index;
}

TimeNs Peers::first_wait(Index index) const {
  if (index == kNone || !peers_[index].measured) return recovery_.first_contact;
  const Peer& peer = peers_[index];
  const TimeNs estimate = (TimeNs{peer.answer_us} + 4 * TimeNs{peer.deviation_us}) * kNanosecondsPerMicrosecond;
  return peer.is_ucm ? std::clamp(estimate, recovery_.shortest, recovery_.longest)
                     : std::clamp(estimate, recovery_.shortest_foreign, recovery_.longest_foreign);
}

TimeNs Peers::first_sidr_wait(Index index, TimeNs foreign) const {
  if (index == kNone || !peers_[index].heard) return recovery_.first_sidr_contact;
  return peers_[index].is_ucm ? first_wait(index) : foreign;
}

void Peers::answered(Index index, const Answer& answer) {
  if (index == kNone) return;
  Peer& peer = peers_[index];
  peer.heard = true;
  peer.is_ucm = answer.is_ucm;
  if (answer.ambiguous && !answer.is_ucm) return;
  const TimeNs longest = answer.is_ucm ? recovery_.longest : recovery_.longest_foreign;
  const auto sample = static_cast<std::uint32_t>(std::min(answer.elapsed, longest) / kNanosecondsPerMicrosecond);
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

std::optional<TimeNs> Peers::answer_time(const Path& path, Index hint) const {
  if (hint == kNone || !(peers_[hint].host == peer_host(path)) || !peers_[hint].measured) return std::nullopt;
  return TimeNs{peers_[hint].answer_us} * kNanosecondsPerMicrosecond;
}

void Peers::take_turns(Index index) {
  Peer& peer = peers_[index];
  if (peer.in_turn || peer.held.empty() || peer.in_flight >= peer.window) return;
  peer.in_turn = true;
  turns_.push_back(peers_, index);
}

void Peers::hold(Exchanges& exchanges, Exchanges::Index request) {
  const Index index = exchanges[request].peer;
  peers_[index].held.push_back(exchanges, request);
  take_turns(index);
}

Peers::Exchanges::Index Peers::next_request(Exchanges& exchanges) {
  const Index index = turns_.front();
  Peer& peer = peers_[index];
  turns_.remove(peers_, index);
  peer.in_turn = false;
  const auto request = peer.held.front();
  peer.held.remove(exchanges, request);
  exchanges[request].in_flight = true;
  ++peer.in_flight;
  ++in_flight_;
  take_turns(index);
  return request;
}

void Peers::leave_flight(Exchange& request) {
  request.in_flight = false;
  --peers_[request.peer].in_flight;
  --in_flight_;
}

void Peers::request_answered(Exchange& request) {
  if (!request.in_flight) return;
  leave_flight(request);
  Peer& peer = peers_[request.peer];
  if (peer.slow_start || ++peer.window_credit >= peer.window) {
    peer.window = std::min(peer.window + 1, kWindowMax);
    peer.window_credit = 0;
  }
  take_turns(request.peer);
}

void Peers::request_lost(TimeNs now, Exchange& request) {
  if (!request.in_flight) return;
  leave_flight(request);
  Peer& peer = peers_[request.peer];
  // Once for what was lost together.
  if (now - first_wait(request.peer) >= peer.shrunk_at) {
    peer.window_before = peer.window;
    peer.window = std::max(peer.window / 2, kWindowMin);
    peer.slow_start = false;
    peer.shrunk_at = now;
  }
  take_turns(request.peer);
}

void Peers::request_found(const Exchange& request) {
  if (request.peer == kNone || request.repetitions == 0) return;
  Peer& peer = peers_[request.peer];
  peer.window = std::min(std::max(peer.window, peer.window_before) + 1, kWindowMax);
  take_turns(request.peer);
}

void Peers::forget_request(Exchanges& exchanges, Exchanges::Index request, bool held) {
  Exchange& exchange = exchanges[request];
  if (exchange.in_flight) {
    leave_flight(exchange);
    return take_turns(exchange.peer);
  }
  if (!held) return;
  Peer& peer = peers_[exchange.peer];
  peer.held.remove(exchanges, request);
  if (!peer.held.empty() || !peer.in_turn) return;
  peer.in_turn = false;
  turns_.remove(peers_, exchange.peer);
}

void Peers::add_to(StateHash& hash, const Exchanges& exchanges) const {
  hash.add(in_flight_);
  hash.add(next_forgotten_);
  for (auto index = turns_.front(); index != kNone; index = peers_[index].link.next) hash.add(index);
  for (Index index = 0; index < peers_.capacity(); ++index) {
    const Peer& peer = peers_[index];
    hash.add(Bytes(peer.host.address.bytes));
    for (const std::uint32_t word : {peer.host.ifindex, peer.answer_us, peer.deviation_us, peer.window,
                                     peer.window_credit, peer.in_flight, peer.window_before}) {
      hash.add(word);
    }
    hash.add(peer.held.size());
    for (auto i = peer.held.front(); i != peer.held.kNone; i = exchanges[i].link.next) hash.add(exchanges[i].slot);
    for (const bool flag : {peer.heard, peer.measured, peer.is_ucm, peer.slow_start, peer.in_turn}) hash.add(flag);
    hash.add(peer.shrunk_at);
  }
}

}  // namespace ucm::cm
