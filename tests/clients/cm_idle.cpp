// cm_idle LOCAL COUNT PORT: sets up COUNT connections between two IDs of its own each, says "idle", and holds them
// until a signal ends it. LOCAL is an address of this host, PORT where it listens; 0: anywhere.
#include <unistd.h>

#include <vector>

#include "cm_client.h"

using namespace ucm::test;

namespace {

constexpr std::size_t kInFlight = 64;

// Both ends are on one channel.
class Holder {
 public:
  Holder(const std::string& local, std::uint16_t port) : to_(local, port) {
    succeed(rdma_bind_addr(listener_.get(), to_.get()), "rdma_bind_addr");
    succeed(rdma_listen(listener_.get(), 1024), "rdma_listen");
    to_ = Address(local, ntohs(rdma_get_src_port(listener_.get())));
  }

  void connect(std::size_t count) {
    while (established_ < 2 * count) {
      for (; begun_ < count && begun_ - established_ / 2 < kInFlight; ++begun_) begin();
      rdma_cm_event* event = nullptr;
      succeed(rdma_get_cm_event(channel_.get(), &event), "rdma_get_cm_event");
      const rdma_cm_event_type type = event->event;
      rdma_cm_id* const id = event->id;
      rdma_ack_cm_event(event);
      proceed(type, id);
    }
  }

 private:
  void begin() {
    ids_.push_back(make_id(channel_));
    succeed(rdma_resolve_addr(ids_.back().get(), nullptr, to_.get(), 10'000), "rdma_resolve_addr");
  }

  void proceed(rdma_cm_event_type type, rdma_cm_id* id) {
    switch (type) {
      case RDMA_CM_EVENT_ADDR_RESOLVED:
        return succeed(rdma_resolve_route(id, 10'000), "rdma_resolve_route");
      case RDMA_CM_EVENT_ROUTE_RESOLVED:
        create_qp(id, queue(id));
        return succeed(rdma_connect(id, nullptr), "rdma_connect");
      case RDMA_CM_EVENT_CONNECT_REQUEST:
        ids_.emplace_back(id);
        create_qp(id, queue(id));
        return succeed(rdma_accept(id, nullptr), "rdma_accept");
      case RDMA_CM_EVENT_ESTABLISHED:
        ++established_;
        return;
      default:
        die(std::string("unexpected ") + rdma_event_str(type));
    }
  }

  // One for all: every queue of an ID's own would cost a descriptor.
  ibv_cq* queue(rdma_cm_id* id) {
    if (queue_ == nullptr) queue_ = ibv_create_cq(id->verbs, 16, nullptr, nullptr, 0);
    require(queue_ != nullptr, "ibv_create_cq");
    return queue_;
  }

  Channel channel_ = open_channel();
  IdPointer listener_ = make_id(channel_);
  Address to_;
  ibv_cq* queue_ = nullptr;
  std::vector<IdPointer> ids_;
  std::size_t begun_ = 0;
  std::size_t established_ = 0;  // ends of connections
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) die("usage: cm_idle LOCAL COUNT PORT");
  Holder holder(argv[1], static_cast<std::uint16_t>(std::strtoul(argv[3], nullptr, 10)));
  holder.connect(std::strtoul(argv[2], nullptr, 10));
  std::puts("idle");
  std::fflush(stdout);
  for (;;) pause();
}
