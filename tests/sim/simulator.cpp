#include "sim/simulator.h"

#include <algorithm>

#include "base/check.h"
#include "wire/mad.h"
#include "wire/ud_packet.h"

namespace ucm::sim {

NodeIndex Simulator::add_node(const wire::IpAddress& address,
                              std::function<std::unique_ptr<Node>(std::uint64_t seed)> make) {
  const NodeIndex index = hosts_.size();
  UCM_CHECK(by_address_.emplace(address, index).second);
  Host host{.address = address, .make = std::move(make)};
  host.node = host.make(random_.next());
  hosts_.push_back(std::move(host));
  return index;
}

NodeIndex Simulator::add_ucm(const wire::IpAddress& address, const cm::Config& config) {
  return add_node(address, [address, guid = guid(hosts_.size()), config](std::uint64_t seed) {
    cm::Config own = config;
    own.random_key = {seed, ~seed};
    return std::make_unique<UcmNode>(address, guid, own);
  });
}

NodeIndex Simulator::add_linux(const wire::IpAddress& address, const LinuxConfig& config) {
  return add_node(address, [address, guid = guid(hosts_.size()), config](std::uint64_t seed) {
    LinuxConfig own = config;
    own.address = address;
    own.guid = guid;
    own.seed = seed;
    return std::make_unique<LinuxPeer>(own);
  });
}

void Simulator::crash(NodeIndex node) {
  hosts_[node].node.reset();
  deadlines_.remove(static_cast<DeadlineHeap::Key>(node));
}

void Simulator::restart(NodeIndex node) {
  hosts_[node].node = hosts_[node].make(random_.next());
  deadlines_.remove(static_cast<DeadlineHeap::Key>(node));
}

LinkOptions& Simulator::link(NodeIndex from, NodeIndex to) {
  return links_.try_emplace(pair_of(from, to), link_).first->second;
}

void Simulator::heal() {
  link_ = {.delay = link_.delay};
  links_.clear();
  partition_ = {0, 0};
  for (Host& host : hosts_) host.cpu = {};
}

bool Simulator::was_faithful() const {
  const auto keeps_order = [](const LinkOptions& link) { return link.jitter == 0; };
  const bool in_order = keeps_order(link_) && std::all_of(links_.begin(), links_.end(),
                                                          [&](const auto& link) { return keeps_order(link.second); });
  return in_order && traffic_.reordered + traffic_.replayed + traffic_.corrupted == 0 &&
         traffic_.lost + traffic_.queue_full + traffic_.nobody == 0;
}

std::uint64_t Simulator::sent(wire::Attribute attribute) const {
  return sent_by_attribute_[static_cast<std::size_t>(attribute) % sent_by_attribute_.size()];
}

void Simulator::schedule(TimeNs time, Kind kind, std::uint32_t index) {
  queue_.push({time, happenings_++, kind, index});
}

void Simulator::after(TimeNs delay, std::function<void()> call) {
  const std::uint32_t index = calls_.take();
  calls_.items[index] = std::move(call);
  schedule(now_ + delay, Kind::kCall, index);
}

// --------------------------------------------------------------------------------------------------------------------
// Packets.

bool Simulator::is_lost(const LinkOptions& link, NodeIndex from, NodeIndex to, std::uint64_t bit) {
  const auto side = [&](NodeIndex node) { return node < 64 && (partition_.first >> node & 1) != 0; };
  if (now_ < partition_.second && side(from) != side(to)) return true;
  return (link.loss_mask & bit) != 0 || (link.loss_per_mille != 0 && random_.chance(link.loss_per_mille, 1000));
}

// Flips bits of the packet as it is on the wire; false when the receiver's check of it fails.
bool Simulator::corrupt(const LinkOptions& link, Packet& packet) {
  const auto flip = [&](MutableBytes bytes) {
    for (std::uint64_t flips = 1 + random_.below(3); flips > 0; --flips) {
      bytes[random_.below(bytes.size())] ^= static_cast<std::uint8_t>(1u << random_.below(8));
    }
  };
  ++traffic_.corrupted;
  if (!link.icrc_checked) {
    flip(packet.mad);
    return true;
  }
  const wire::DatagramInfo info{
      .source = packet.from, .destination = packet.to, .source_port = wire::kRoceSourcePortMin};
  std::array<std::uint8_t, wire::kGsiPacketSize> datagram{};
  wire::emit_gsi_packet(info, 0, packet.mad, datagram);
  flip(datagram);
  const auto mad = wire::parse_gsi_packet(datagram);
  if (wire::verify_icrc(info, datagram) != wire::IcrcCheck::kGood || !mad) {
    ++traffic_.bad_icrc;
    return false;
  }
  std::copy(mad->begin(), mad->end(), packet.mad.begin());
  return true;
}

void Simulator::deliver_later(TimeNs delay, const Packet& packet) {
  const std::uint32_t index = packets_.take();
  packets_.items[index] = packet;
  schedule(now_ + delay, Kind::kArrival, index);
}

void Simulator::send(NodeIndex from, const Packet& packet) {
  const auto attribute = wire::MadHeader::parse(packet.mad)->attribute;
  const std::uint64_t bit = traffic_.sent < 64 ? std::uint64_t{1} << traffic_.sent : 0;
  ++traffic_.sent;
  ++sent_by_attribute_[static_cast<std::size_t>(attribute) % sent_by_attribute_.size()];
  const auto found = by_address_.find(packet.to);
  const NodeIndex to = found != by_address_.end() ? found->second : hosts_.size();
  const auto own = links_.empty() ? links_.end() : links_.find(pair_of(from, to));
  const LinkOptions& link = own == links_.end() ? link_ : own->second;
  const auto happens = [&](std::uint32_t per_mille) { return per_mille != 0 && random_.chance(per_mille, 1000); };

  const bool lost = is_lost(link, from, to, bit);
  if (record) sent_.push_back({now_, from, packet, attribute, lost});
  if (on_send) on_send({now_, from, packet, attribute, lost});
  traffic_.lost += lost;
  if (lost) return;
  Packet arriving = packet;
  if (happens(link.corrupt_per_mille) && !corrupt(link, arriving)) return;
  TimeNs delay = link.delay;
  if (link.packets_per_second != 0) {
    TimeNs& free_at = link_free_at_[pair_of(from, to)];
    free_at = std::max(free_at, now_) + kNanosecondsPerSecond / static_cast<TimeNs>(link.packets_per_second);
    delay += free_at - now_;
  }
  if (happens(link.reorder_per_mille)) {
    ++traffic_.reordered;
    delay += link.reorder_delay;
  }
  deliver_later(delay + chosen_below(link.jitter), arriving);
  if ((link.duplicate_mask & bit) != 0 || happens(link.duplicate_per_mille)) {
    ++traffic_.duplicated;
    deliver_later(delay + chosen_below(link.jitter), arriving);
  }
  if (happens(link.replay_per_mille)) {
    ++traffic_.replayed;
    deliver_later(delay + chosen_below(link.replay_delay), arriving);
  }
}

void Simulator::arrive(std::uint32_t index) {
  const auto found = by_address_.find(packets_.items[index].to);
  if (found == by_address_.end() || !is_up(found->second)) {
    ++traffic_.nobody;
    return packets_.free.push_back(index);
  }
  Host& host = hosts_[found->second];
  if (host.cpu.packet_cost == 0) return process(index);
  if (host.queued >= host.cpu.queue_max) {
    ++traffic_.queue_full;
    return packets_.free.push_back(index);
  }
  ++host.queued;
  host.busy_until = std::max(host.busy_until, now_) + host.cpu.packet_cost;
  schedule(host.busy_until, Kind::kProcessing, index);
}

void Simulator::process(std::uint32_t index) {
  const Packet packet = packets_.items[index];
  packets_.free.push_back(index);
  const NodeIndex to = by_address_.at(packet.to);
  if (!is_up(to)) {
    ++traffic_.nobody;
    return;
  }
  hosts_[to].node->on_packet(now_, packet.from, packet.mad);
  settle(to);
}

// --------------------------------------------------------------------------------------------------------------------
// Nodes.

void Simulator::settle(NodeIndex node) {
  if (!is_up(node)) return;
  ++hosts_[node].depth;
  Packet packet;
  Event event;
  while (is_up(node) && hosts_[node].node->poll_packet(packet)) {
    hosts_[node].busy_until = std::max(hosts_[node].busy_until, now_) + hosts_[node].cpu.packet_cost;
    send(node, packet);
  }
  while (is_up(node) && hosts_[node].node->poll_event(event)) {
    if (on_event) on_event(node, event);
  }
  // What the program did in on_event has been settled by itself.
  if (--hosts_[node].depth > 0 || !is_up(node)) return;
  deadlines_.set(static_cast<DeadlineHeap::Key>(node), hosts_[node].node->next_deadline());
  if (on_rest) on_rest(node);
}

bool Simulator::run(TimeNs end) {
  for (;;) {
    const TimeNs next = std::min(deadlines_.next(), queue_.empty() ? kNever : queue_.top().time);
    if (next == kNever) return true;
    if (next > end) {
      now_ = end;
      return false;
    }
    now_ = std::max(now_, next);
    if (!queue_.empty() && queue_.top().time <= now_) {
      const Happening happening = queue_.top();
      queue_.pop();
      switch (happening.kind) {
        case Kind::kArrival:
          arrive(happening.index);
          break;
        case Kind::kProcessing:
          --hosts_[by_address_.at(packets_.items[happening.index].to)].queued;
          process(happening.index);
          break;
        case Kind::kCall: {
          const auto call = std::move(calls_.items[happening.index]);
          calls_.free.push_back(happening.index);
          call();
          break;
        }
      }
      continue;
    }
    const NodeIndex node = deadlines_.pop();
    if (hosts_[node].busy_until > now_) {
      deadlines_.set(static_cast<DeadlineHeap::Key>(node), hosts_[node].busy_until);
      continue;
    }
    hosts_[node].node->on_deadline(now_);
    settle(node);
  }
}

}  // namespace ucm::sim
