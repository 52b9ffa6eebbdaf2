// cm_datagrams ADDRESS [CLIENTS]: what rdma_cm says of datagram services; then a service and CLIENTS client threads in
// one process. Each client finds the service, and sends a datagram until its echo comes. The network may lose some.
#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <thread>
#include <vector>

#include "cm_client.h"

using namespace ucm::test;

namespace {

constexpr std::uint16_t kPort = 7996;
constexpr std::uint16_t kFreePort = 7995;
constexpr std::size_t kGrhSize = 40;
constexpr std::size_t kMessageSize = 1000;

using Clock = std::chrono::steady_clock;

// One message and the header in front of a received one.
class Buffer {
 public:
  explicit Buffer(rdma_cm_id* id) : region_(rdma_reg_msgs(id, bytes_.data(), bytes_.size())) {
    require(region_ != nullptr, "rdma_reg_msgs");
  }
  ~Buffer() { rdma_dereg_mr(region_); }
  std::uint8_t* message() { return bytes_.data() + kGrhSize; }
  ibv_grh* grh() { return reinterpret_cast<ibv_grh*>(bytes_.data()); }
  void receive(rdma_cm_id* id) { succeed(rdma_post_recv(id, this, bytes_.data(), bytes_.size(), region_), "recv"); }
  void send(rdma_cm_id* id, ibv_ah* to, std::uint32_t qpn) {
    succeed(rdma_post_ud_send(id, nullptr, message(), kMessageSize, region_, IBV_SEND_SIGNALED, to, qpn), "send");
    ibv_wc completion{};
    require(rdma_get_send_comp(id, &completion) > 0, "rdma_get_send_comp");
    require(completion.status == IBV_WC_SUCCESS, std::string("send: ") + ibv_wc_status_str(completion.status));
  }

 private:
  alignas(8) std::array<std::uint8_t, kGrhSize + kMessageSize> bytes_{};
  ibv_mr* region_;
};

IdPointer make_listener(const Channel& channel, const std::string& address) {
  IdPointer listener = make_id(channel, RDMA_PS_UDP);
  Address at(address, kPort);
  succeed(rdma_bind_addr(listener.get(), at.get()), "rdma_bind_addr");
  succeed(rdma_listen(listener.get(), 256), "rdma_listen");
  return listener;
}

IdPointer make_client(const Channel& channel, const std::string& address, std::uint16_t port) {
  IdPointer id = make_id(channel, RDMA_PS_UDP);
  resolve(channel, id.get(), Address(address, port));
  create_qp(id.get());
  return id;
}

// ---- What rdma_cm says.

void nobody_listens(const std::string& address) {
  const Channel channel = open_channel();
  const IdPointer id = make_client(channel, address, kFreePort);
  succeed(rdma_connect(id.get(), nullptr), "rdma_connect");
  expect_event(channel, RDMA_CM_EVENT_UNREACHABLE, 1);  // SIDR: service ID not supported
  expect_errno(rdma_connect(id.get(), nullptr), EINVAL, "asking again after a refusal");
  succeed(rdma_disconnect(id.get()), "rdma_disconnect of a datagram ID");
}

void sizes_of_private_data(const std::string& address) {
  const Channel channel = open_channel();
  const IdPointer id = make_client(channel, address, kFreePort);
  char data[181] = {};
  rdma_conn_param param{};
  param.private_data = data;
  param.private_data_len = sizeof(data);
  expect_errno(rdma_connect(id.get(), &param), EINVAL, "181 bytes of private data");
  param.private_data_len = 180;
  succeed(rdma_connect(id.get(), &param), "180 bytes of private data");
  expect_event(channel, RDMA_CM_EVENT_UNREACHABLE, 1);
}

void rejected_by_the_program(const std::string& address) {
  const Channel channel = open_channel();
  const IdPointer listener = make_listener(channel, address);
  const Channel client_channel = open_channel();
  const IdPointer client = make_client(client_channel, address, kPort);
  succeed(rdma_connect(client.get(), nullptr), "rdma_connect");
  const Told request = next_event(channel);
  require(request.type == RDMA_CM_EVENT_CONNECT_REQUEST, "CONNECT_REQUEST");
  const IdPointer server(request.id);
  succeed(rdma_reject(server.get(), "busy", 4), "rdma_reject");
  rdma_cm_event* event = nullptr;
  succeed(rdma_get_cm_event(client_channel.get(), &event), "rdma_get_cm_event");
  require(event->event == RDMA_CM_EVENT_UNREACHABLE && event->status == 2, "UNREACHABLE 2");
  require(event->param.ud.private_data_len == 136 && std::memcmp(event->param.ud.private_data, "busy", 5) == 0,
          "the reject's private data");
  rdma_ack_cm_event(event);
}

// ---- The service.

class Server {
 public:
  explicit Server(const std::string& address) : channel_(open_channel()), listener_(make_listener(channel_, address)) {}
  ~Server() {
    for (auto& [id, buffer] : open_) {
      buffer.reset();
      rdma_destroy_ep(id);
    }
  }

  void run(const std::atomic<bool>& over) {
    while (!over) {
      pollfd poller{channel_->fd, POLLIN, 0};
      if (poll(&poller, 1, 1) == 1) take_request();
      for (auto& [id, buffer] : open_) answer(id, *buffer);
    }
  }
  std::size_t requests() const { return open_.size(); }

 private:
  // Gives the request's data back.
  void take_request() {
    rdma_cm_event* event = nullptr;
    succeed(rdma_get_cm_event(channel_.get(), &event), "rdma_get_cm_event");
    require(event->event == RDMA_CM_EVENT_CONNECT_REQUEST, rdma_event_str(event->event));
    rdma_cm_id* const id = event->id;
    create_qp(id);
    auto& buffer = open_[id] = std::make_unique<Buffer>(id);
    buffer->receive(id);
    rdma_conn_param param{};
    param.private_data = event->param.ud.private_data;
    param.private_data_len = 136;
    param.qp_num = id->qp->qp_num;
    succeed(rdma_accept(id, &param), "rdma_accept");
    rdma_ack_cm_event(event);
  }

  void answer(rdma_cm_id* id, Buffer& buffer) {
    ibv_wc completion{};
    if (ibv_poll_cq(id->recv_cq, 1, &completion) != 1) return;
    require(completion.status == IBV_WC_SUCCESS, "the server's receive");
    ibv_ah* const back = ibv_create_ah_from_wc(id->pd, &completion, buffer.grh(), id->port_num);
    require(back != nullptr, "ibv_create_ah_from_wc");
    buffer.send(id, back, completion.src_qp);
    ibv_destroy_ah(back);
    buffer.receive(id);
  }

  Channel channel_;
  IdPointer listener_;
  std::map<rdma_cm_id*, std::unique_ptr<Buffer>> open_;
};

// True when the answer has come within a tenth of a second.
bool wait_for_receive(rdma_cm_id* id) {
  const auto end = Clock::now() + std::chrono::milliseconds(100);
  ibv_wc completion{};
  while (ibv_poll_cq(id->recv_cq, 1, &completion) != 1) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  require(completion.status == IBV_WC_SUCCESS, "the client's receive");
  return true;
}

void ask(const std::string& address, std::uint32_t number) {
  constexpr int kTries = 300;
  const Channel channel = open_channel();
  const IdPointer id = make_client(channel, address, kPort);
  Buffer in(id.get());
  Buffer out(id.get());
  in.receive(id.get());
  rdma_conn_param param{};
  param.private_data = &number;
  param.private_data_len = sizeof(number);
  succeed(rdma_connect(id.get(), &param), "rdma_connect");
  rdma_cm_event* event = nullptr;
  succeed(rdma_get_cm_event(channel.get(), &event), "rdma_get_cm_event");
  require(event->event == RDMA_CM_EVENT_ESTABLISHED, rdma_event_str(event->event));
  rdma_ud_param& peer = event->param.ud;
  require(peer.private_data_len == 136 && std::memcmp(peer.private_data, &number, sizeof(number)) == 0,
          "the answer's private data");
  require(peer.qkey == RDMA_UDP_QKEY, "the Q_Key");
  ibv_ah* const to = ibv_create_ah(id->pd, &peer.ah_attr);
  require(to != nullptr, "ibv_create_ah");
  const std::uint32_t qpn = peer.qp_num;
  rdma_ack_cm_event(event);

  std::fill_n(out.message(), kMessageSize, static_cast<std::uint8_t>(number));
  bool answered = false;
  for (int i = 0; i < kTries && !answered; ++i) {
    out.send(id.get(), to, qpn);
    answered = wait_for_receive(id.get());
  }
  require(answered, "no echo");
  require(std::equal(in.message(), in.message() + kMessageSize, out.message()), "the echo differs");
  ibv_destroy_ah(to);
  succeed(rdma_disconnect(id.get()), "rdma_disconnect");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) die("usage: cm_datagrams ADDRESS [CLIENTS]");
  const std::string address = argv[1];
  const std::uint32_t clients = argc > 2 ? static_cast<std::uint32_t>(std::stoul(argv[2])) : 16;
  nobody_listens(address);
  sizes_of_private_data(address);
  rejected_by_the_program(address);
  Server server(address);
  std::atomic<bool> over{false};
  std::thread serving([&] { server.run(over); });
  std::vector<std::thread> threads;
  for (std::uint32_t number = 0; number < clients; ++number)
    threads.emplace_back([&, number] { ask(address, number); });
  for (std::thread& thread : threads) thread.join();
  over = true;
  serving.join();
  // However many messages were lost.
  require(server.requests() == clients, "one request for each client");
  std::printf("%u services found\n", clients);
  return 0;
}
