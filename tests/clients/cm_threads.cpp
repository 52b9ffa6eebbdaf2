// cm_threads ADDRESS [THREADS [ROUNDS]]: a server and THREADS client threads in one process. Each client has an event
// channel of its own and, ROUNDS times, connects, sends a message, checks the echo and disconnects.
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <thread>
#include <vector>

#include "cm_client.h"

using namespace ucm::test;

namespace {

constexpr std::uint16_t kPort = 7997;
constexpr std::size_t kMessageSize = 3000;  // more than one packet

using Message = std::array<std::uint8_t, kMessageSize>;

class Buffer {
 public:
  explicit Buffer(rdma_cm_id* id) : region_(rdma_reg_msgs(id, message.data(), message.size())) {
    require(region_ != nullptr, "rdma_reg_msgs");
  }
  ~Buffer() { rdma_dereg_mr(region_); }
  void receive(rdma_cm_id* id) {
    succeed(rdma_post_recv(id, nullptr, message.data(), message.size(), region_), "recv");
  }
  void send(rdma_cm_id* id) {
    succeed(rdma_post_send(id, nullptr, message.data(), message.size(), region_, 0), "send");
  }

  Message message{};

 private:
  ibv_mr* region_;
};

ibv_wc_status wait_for_receive(rdma_cm_id* id) {
  ibv_wc completion{};
  require(rdma_get_recv_comp(id, &completion) > 0, "rdma_get_recv_comp");
  return completion.status;
}

void wait_for_send(rdma_cm_id* id) {
  ibv_wc completion{};
  require(rdma_get_send_comp(id, &completion) > 0, "rdma_get_send_comp");
  require(completion.status == IBV_WC_SUCCESS, std::string("send: ") + ibv_wc_status_str(completion.status));
}

class Server {
 public:
  Server(const std::string& address, std::size_t connections)
      : channel_(open_channel()), listener_(make_id(channel_)), connections_(connections) {
    Address at(address, kPort);
    succeed(rdma_bind_addr(listener_.get(), at.get()), "rdma_bind_addr");
    succeed(rdma_listen(listener_.get(), 64), "rdma_listen");
  }

  // Serves as many connections as expected, each to its end.
  void run() {
    for (std::size_t ended = 0; ended < connections_;) {
      const Told told = next_event(channel_);
      switch (told.type) {
        case RDMA_CM_EVENT_CONNECT_REQUEST:
          serve(told.id);
          break;
        case RDMA_CM_EVENT_ESTABLISHED:
        case RDMA_CM_EVENT_TIMEWAIT_EXIT:
          break;
        case RDMA_CM_EVENT_DISCONNECTED:
          end(told.id);
          ++ended;
          break;
        default:
          die(std::string("the server was told ") + rdma_event_str(told.type));
      }
    }
  }

 private:
  struct Connection {
    std::unique_ptr<Buffer> buffer;
    std::thread echo;
  };

  void serve(rdma_cm_id* id) {
    create_qp(id);
    Connection& connection = open_[id];
    connection.buffer = std::make_unique<Buffer>(id);
    connection.buffer->receive(id);
    succeed(rdma_accept(id, nullptr), "rdma_accept");
    connection.echo = std::thread([id, buffer = connection.buffer.get()] {
      require(wait_for_receive(id) == IBV_WC_SUCCESS, "the server's receive");
      buffer->send(id);
      wait_for_send(id);
    });
  }

  void end(rdma_cm_id* id) {
    Connection& connection = open_.at(id);
    connection.echo.join();
    succeed(rdma_disconnect(id), "the server's rdma_disconnect");
    connection.buffer.reset();
    rdma_destroy_ep(id);
    open_.erase(id);
  }

  Channel channel_;
  IdPointer listener_;
  const std::size_t connections_;
  std::map<rdma_cm_id*, Connection> open_;
};

void connect_once(const Channel& channel, const std::string& address, std::uint8_t seed) {
  const IdPointer id = make_id(channel);
  resolve(channel, id.get(), Address(address, kPort));
  create_qp(id.get());
  Buffer out(id.get());
  Buffer in(id.get());
  in.receive(id.get());
  succeed(rdma_connect(id.get(), nullptr), "rdma_connect");
  expect_event(channel, RDMA_CM_EVENT_ESTABLISHED);
  for (std::size_t i = 0; i < out.message.size(); ++i) out.message[i] = static_cast<std::uint8_t>(seed + i);
  out.send(id.get());
  wait_for_send(id.get());
  require(wait_for_receive(id.get()) == IBV_WC_SUCCESS, "the client's receive");
  require(in.message == out.message, "the echo differs");
  succeed(rdma_disconnect(id.get()), "rdma_disconnect");
  expect_event(channel, RDMA_CM_EVENT_DISCONNECTED);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) die("usage: cm_threads ADDRESS [THREADS [ROUNDS]]");
  const std::string address = argv[1];
  const std::size_t threads = argc > 2 ? std::stoul(argv[2]) : 4;
  const std::size_t rounds = argc > 3 ? std::stoul(argv[3]) : 25;
  Server server(address, threads * rounds);
  std::thread serving([&] { server.run(); });
  std::vector<std::thread> clients;
  for (std::size_t i = 0; i < threads; ++i) {
    clients.emplace_back([&, i] {
      const Channel channel = open_channel();
      for (std::size_t round = 0; round < rounds; ++round) {
        connect_once(channel, address, static_cast<std::uint8_t>(i * 37 + round));
      }
    });
  }
  for (std::thread& client : clients) client.join();
  serving.join();
  std::printf("%zu connections by %zu threads\n", threads * rounds, threads);
  return 0;
}
