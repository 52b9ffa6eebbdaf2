#include "net/memory_port.h"

#include <utility>

namespace ucm::net {

class MemoryNetwork::Port final : public PacketPort {
 public:
  Port(MemoryNetwork& network, std::shared_ptr<Queue> queue, std::uint16_t source_port)
      : network_(network), queue_(std::move(queue)), source_port_(source_port) {}

  std::size_t receive(const Sink& sink, std::size_t datagrams_max) override {
    std::size_t received = 0;
    while (received < datagrams_max && !queue_->datagrams.empty()) {
      const Stored stored = std::move(queue_->datagrams.front());
      queue_->datagrams.pop_front();
      ++received;
      sink({stored.info, stored.payload});
    }
    return received;
  }

  void send(std::span<const Datagram> datagrams) override {
    for (const Datagram& datagram : datagrams) network_.send(datagram, source_port_);
  }

  std::uint16_t source_port() const override { return source_port_; }
  Result<void> join_group(const wire::MulticastGroup& group) override {
    network_.groups_[group.address].insert(queue_);
    return {};
  }
  void leave_group(const wire::MulticastGroup& group) override { network_.groups_[group.address].erase(queue_); }
  std::vector<int> wait_fds() const override { return {}; }

 private:
  MemoryNetwork& network_;
  std::shared_ptr<Queue> queue_;
  std::uint16_t source_port_;
};

std::unique_ptr<PacketPort> MemoryNetwork::attach(std::vector<wire::IpAddress> addresses, std::uint16_t source_port) {
  auto queue = std::make_shared<Queue>();
  for (const wire::IpAddress& address : addresses) queues_[address] = queue;
  return std::make_unique<Port>(*this, std::move(queue), source_port);
}

void MemoryNetwork::send(const Datagram& datagram, std::uint16_t source_port) {
  ++sent_count_;
  Stored stored{datagram.info, Payload(datagram.payload.begin(), datagram.payload.end())};
  stored.info.source_port = source_port;
  if (tap_ && !tap_(stored.info, stored.payload)) return;
  if (stored.info.destination.is_multicast()) {
    for (const auto& member : groups_[stored.info.destination]) member->datagrams.push_back(stored);
    return;
  }
  const auto queue = queues_.find(stored.info.destination);
  if (queue == queues_.end()) {
    ++unroutable_count_;
    return;
  }
  queue->second->datagrams.push_back(std::move(stored));
}

}  // namespace ucm::net
