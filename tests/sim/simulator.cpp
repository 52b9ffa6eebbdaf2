#include "sim/simulator.h"

#include <algorithm>

#include "wire/mad.h"

namespace ucm::sim {

NodeIndex Simulator::add_node(const wire::IpAddress& address, cm::Config config) {
  config.random_key = {random_.next(), random_.next()};
  nodes_.push_back({address, config, cm::Engine(config)});
  return nodes_.size() - 1;
}

void Simulator::restart(NodeIndex node) {
  cm::Config& config = nodes_[node].config;
  config.random_key = {random_.next(), random_.next()};
  nodes_[node].engine = cm::Engine(config);
}

void Simulator::after(TimeNs delay, std::function<void()> call) {
  queue_.push({now_ + delay, happenings_++, std::move(call)});
}

void Simulator::deliver_later(const cm::Packet& packet) {
  const TimeNs jitter =
      link_.jitter == 0 ? 0 : static_cast<TimeNs>(random_.below(static_cast<std::uint64_t>(link_.jitter)));
  after(link_.delay + jitter, [this, packet] {
    for (NodeIndex node = 0; node < nodes_.size(); ++node) {
      if (nodes_[node].address != packet.path.remote) continue;
      cm::Path path = packet.path;
      std::swap(path.local, path.remote);
      nodes_[node].engine.on_packet(now_, path, packet.mad);
      return settle(node);
    }
  });
}

void Simulator::send(NodeIndex from, const cm::Packet& packet) {
  const std::uint64_t bit = sent_.size() < 64 ? std::uint64_t{1} << sent_.size() : 0;
  const bool lost = (link_.loss_mask & bit) != 0 || random_.chance(link_.loss_per_mille, 1000);
  const bool twice = (link_.duplicate_mask & bit) != 0 || random_.chance(link_.duplicate_per_mille, 1000);
  sent_.push_back({now_, from, packet, wire::MadHeader::parse(packet.mad)->attribute, lost});
  if (lost) return;
  deliver_later(packet);
  if (twice) deliver_later(packet);
}

void Simulator::settle(NodeIndex node) {
  cm::Engine& engine = nodes_[node].engine;
  while (const auto packet = engine.poll_packet()) send(node, *packet);
  while (const auto event = engine.poll_event()) {
    if (on_event) on_event(node, *event);
  }
  // What the application did in on_event has been settled by itself.
}

TimeNs Simulator::next_deadline() const {
  TimeNs next = kNever;
  for (const Node& node : nodes_) next = std::min(next, node.engine.next_deadline());
  return next;
}

bool Simulator::run(TimeNs end) {
  for (;;) {
    const TimeNs deadline = next_deadline();
    const TimeNs next = std::min(deadline, queue_.empty() ? kNever : queue_.top().time);
    if (next == kNever) return true;
    if (next > end) {
      now_ = end;
      return false;
    }
    now_ = std::max(now_, next);
    if (!queue_.empty() && queue_.top().time <= now_) {
      const auto call = queue_.top().call;
      queue_.pop();
      call();
      continue;
    }
    for (NodeIndex node = 0; node < nodes_.size(); ++node) {
      if (nodes_[node].engine.next_deadline() > now_) continue;
      nodes_[node].engine.on_deadline(now_);
      settle(node);
    }
  }
}

}  // namespace ucm::sim
