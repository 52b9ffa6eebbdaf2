#include "network.h"

#include <algorithm>
#include <array>

#include "base/hash.h"

namespace ucm::roce::test {

void Network::drain(Host& host) {
  std::array<std::uint8_t, kPacketSizeMax> buffer;
  wire::DatagramInfo info;
  while (const std::size_t size = host.engine.poll_packet(now_, 0xC123, info, buffer)) {
    enter(info, Bytes{buffer}.first(size));
  }
  while (const std::optional<Event> event = host.engine.poll_event()) host.events.push_back(*event);
}

void Network::enter(const wire::DatagramInfo& info, Bytes payload) {
  StateHash hash;
  hash.add(digest_);
  hash.add(now_);
  hash.add(payload);
  digest_ = hash.value();
  ++carried_;
  if (filter && !filter(info, payload)) return;
  if (random_.chance(faults_.loss_percent, 100)) return;
  schedule(info, payload);
  if (random_.chance(faults_.duplicate_percent, 100)) schedule(info, payload);
}

void Network::schedule(const wire::DatagramInfo& info, Bytes payload) {
  InFlight packet{info, {payload.begin(), payload.end()}};
  if (random_.chance(faults_.corrupt_percent, 100)) {
    packet.payload[random_.below(packet.payload.size())] ^= static_cast<std::uint8_t>(1 + random_.below(255));
  }
  TimeNs at = now_ + faults_.delay_ns;
  if (random_.chance(faults_.reorder_percent, 100)) at += static_cast<TimeNs>(random_.below(faults_.reorder_delay_ns));
  in_flight_.emplace(std::pair{at, carried_ * 2 + in_flight_.count({at, carried_ * 2})}, std::move(packet));
}

void Network::deliver(const InFlight& packet) {
  for (const std::unique_ptr<Host>& host : hosts_) {
    if (host->address != packet.info.destination) continue;
    host->engine.on_packet(now_, packet.info, packet.payload);
    drain(*host);
  }
}

bool Network::run_until(const std::function<bool()>& done, TimeNs limit) {
  const TimeNs end = now_ + limit;
  for (const std::unique_ptr<Host>& host : hosts_) drain(*host);
  while (!done()) {
    TimeNs next = in_flight_.empty() ? kNever : in_flight_.begin()->first.first;
    for (const std::unique_ptr<Host>& host : hosts_) next = std::min(next, host->engine.next_deadline());
    if (next == kNever || next > end) return false;
    now_ = std::max(now_, next);
    while (!in_flight_.empty() && in_flight_.begin()->first.first <= now_) {
      const InFlight packet = std::move(in_flight_.begin()->second);
      in_flight_.erase(in_flight_.begin());
      deliver(packet);
    }
    for (const std::unique_ptr<Host>& host : hosts_) {
      if (host->engine.next_deadline() <= now_) host->engine.on_deadline(now_);
      drain(*host);
    }
  }
  return true;
}

}  // namespace ucm::roce::test
